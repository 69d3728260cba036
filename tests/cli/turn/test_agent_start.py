"""The start of an agent tells what it waits for."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from pydantic_deep.cli.turn import _agent_start
from pydantic_deep.testing import ScriptedModel
from tests.mcp.conftest import SERVER

Invoke = Callable[..., Result]


def configured(work: Path, *names: str) -> str:
    path = work / 'servers.json'
    path.write_text(json.dumps({'mcpServers': {name: {'command': 'false'} for name in names}}))
    return str(path)


@pytest.mark.parametrize(
    'command',
    [
        ('run', 'Go'),
        ('run', 'Go', '--output-format', 'json'),
        ('run', 'Go', '--output-format', 'stream-json'),
        ('chat',),
    ],
)
def test_start_that_takes_long_is_told(
    invoke: Invoke, work: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """An MCP server may take half a minute to fail. Without a word, the command seems to hang."""
    monkeypatch.setattr(_agent_start, 'PATIENCE_SECONDS', 0)
    config = configured(work, 'shop', 'st\u202eock')
    result = invoke(*command, '--mcp-config', config, model=ScriptedModel('Done.'), stdin='Go\n')
    assert result.exit_code == 0, result.stderr
    assert result.stderr.count('Waiting for the start of the MCP servers shop, st\\u202eock.') == 1
    assert 'Waiting' not in result.stdout


def test_one_server_is_named_in_the_singular(invoke: Invoke, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_agent_start, 'PATIENCE_SECONDS', 0)
    result = invoke('run', 'Go', '--mcp-config', configured(work, 'shop'), model=ScriptedModel('Done.'))
    assert 'Waiting for the start of the MCP server shop.\n' in result.stderr


def test_start_that_takes_no_time_is_not_told(invoke: Invoke) -> None:
    assert 'Waiting' not in invoke('run', 'Go', model=ScriptedModel('Done.')).stderr


@pytest.mark.parametrize('command', [('run', 'Go'), ('run', 'Go', '--output-format', 'json'), ('chat',)])
def test_server_that_is_not_running_is_named(invoke: Invoke, work: Path, command: tuple[str, ...]) -> None:
    """Only the model was told, so that its answers lacked the tools of the server without a visible reason."""
    result = invoke(
        *command, '--mcp-config', configured(work, 'sh\u202eop'), model=ScriptedModel('Done.'), stdin='Go\n'
    )
    assert result.exit_code == 0, result.stderr
    [line] = [line for line in result.stderr.splitlines() if 'is not running' in line]
    assert line.startswith('The MCP server sh\\u202eop is not running: ')
    assert 'MCP server' not in result.stdout


def test_server_with_an_invalid_list_of_tools_is_named(invoke: Invoke, work: Path) -> None:
    """It has started, and is used no more than one that cannot start."""
    server = {'command': sys.executable, 'args': [str(SERVER)], 'env': {'CALLS': str(work / 'calls'), 'INVALID': '1'}}
    config = work / 'servers.json'
    config.write_text(json.dumps({'mcpServers': {'shop': server}}))
    result = invoke('run', 'Go', '--mcp-config', str(config), model=ScriptedModel('Done.'))
    assert 'The MCP server shop is not running: `tools`: Input should be a valid list' in result.stderr


def test_skill_that_cannot_be_loaded_is_named(invoke: Invoke, work: Path) -> None:
    """The user has named its directory, and would look for the reason in the answers of the model."""
    (work / 'own/fo\u202eo').mkdir(parents=True)
    (work / 'own/fo\u202eo/SKILL.md').write_text('Sort them.')
    result = invoke('run', 'Go', '--skills', 'own', model=ScriptedModel('Done.'))
    assert result.exit_code == 0
    assert f'{work}/own/fo\\u202eo/SKILL.md:1: error: It has no frontmatter. ' in result.stderr


def test_text_of_a_server_is_not_printed_as_a_traceback(
    invoke: Invoke, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs print banners. The SDK logs each line that is no message, which Python prints if nothing handles it."""
    monkeypatch.setattr(logging.getLogger('mcp'), 'propagate', False)  # as in a process without pytest's handlers
    config = work / 'servers.json'
    config.write_text(json.dumps({'mcpServers': {'shop': {'command': 'echo', 'args': ['Welcome!']}}}))
    result = invoke('run', 'Go', '--mcp-config', str(config), model=ScriptedModel('Done.'))
    assert 'The MCP server shop is not running: Connection closed' in result.stderr
    assert 'Traceback' not in result.stderr
