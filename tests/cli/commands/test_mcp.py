"""The `mcp` command: its streams, its options and the missing extra. `tests/server/mcp/test_kill.py` kills it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pydantic_deep.server import ServerSettings
from pydantic_deep.testing import ScriptedModel
from tests.cli.conftest import Invoke

MODULE = """
from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel

agent = create_deep_agent(ScriptedModel(), name='analyst')
bad = {'a b': agent}
"""

HELLO = {
    'jsonrpc': '2.0',
    'id': 1,
    'method': 'initialize',
    'params': {'protocolVersion': '2025-11-25', 'capabilities': {}, 'clientInfo': {'name': 'test', 'version': '1'}},
}


@pytest.mark.parametrize('named', [True, False])
def test_standard_output_has_messages_only(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """The command answers a client on standard output, skips a line that is no JSON, and exits when the input ends."""
    monkeypatch.chdir(tmp_path)
    Path('served_by_mcp.py').write_text(MODULE)
    agents = ['--agents', 'served_by_mcp:agent'] if named else []
    lines = f'nonsense\n{json.dumps(HELLO)}\n'
    result = invoke('mcp', *agents, '--store', 'memory:', model=ScriptedModel(), stdin=lines)
    assert result.exit_code == 0
    messages = [json.loads(line) for line in result.stdout.splitlines()]
    assert [message['result']['serverInfo']['name'] for message in messages if 'result' in message] == ['pydantic-deep']


@pytest.mark.slow
def test_output_of_modules_goes_to_standard_error(tmp_path: Path) -> None:
    """Modules of agents may print when they are imported, and start processes that print or read."""
    noise = (
        "import subprocess\nsubprocess.run('echo printed by a child; cat', shell=True)\nprint('printed by a module')\n"
    )
    (tmp_path / 'noisy.py').write_text(noise + MODULE)
    process = subprocess.run(
        [Path(sys.executable).with_name('pydantic-deep'), 'mcp', '--agents', 'noisy:agent', '--store', 'memory:'],
        input=f'{json.dumps(HELLO)}\n',
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=100,
        check=True,
    )
    [answer] = [json.loads(line) for line in process.stdout.splitlines()]
    assert answer['id'] == 1
    assert process.stderr.startswith('printed by a child\nprinted by a module\n')


LISTED = [
    HELLO,
    {'jsonrpc': '2.0', 'method': 'notifications/initialized'},
    {'jsonrpc': '2.0', 'id': 2, 'method': 'tools/list'},
]


@pytest.mark.parametrize('options', [[], ['--allow-answers']])
def test_client_answers_approvals_only_with_the_option(invoke: Invoke, options: list[str]) -> None:
    """By default, the calling agent gets no tool with which it could approve calls of ours."""
    # The end of the input cancels what is not answered yet, so lines that are no messages delay it.
    lines = ''.join(f'{json.dumps(message)}\n' for message in LISTED) + 5 * 'nonsense\n'
    result = invoke('mcp', '--store', 'memory:', *options, model=ScriptedModel(), stdin=lines)
    assert result.exit_code == 0
    assert ('answer_approval' in result.stdout) is bool(options)


def test_agents_that_cannot_be_served_are_refused(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid name of an agent is wrong usage."""
    monkeypatch.chdir(tmp_path)
    Path('refused_by_mcp.py').write_text(MODULE)
    result = invoke('mcp', '--agents', 'refused_by_mcp:bad', '--store', 'memory:')
    assert (result.exit_code, result.stdout) == (2, '')
    assert "'a b' cannot be the name" in result.stderr


def test_missing_extra_is_named(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra `mcp`, the command exits with the command that installs it."""
    for name in [name for name in sys.modules if name.startswith('pydantic_deep.server.mcp')]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, 'mcp', None)
    result = invoke('mcp', '--store', 'memory:')
    assert result.exit_code == 2
    assert "pip install 'versioned-deep-agents[mcp,server]'" in result.stderr


@pytest.mark.parametrize(
    ('memory', 'setting', 'expected'), [(False, None, False), (True, None, True), (True, 'false', False)]
)
def test_configured_memory_is_used(
    memory: bool, setting: str | None, expected: bool, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for `serve`: no setting of a configuration file is ignored without a message, except that the server's own
    setting is stronger: an operator who has switched the memory off keeps it off."""
    if setting is not None:
        monkeypatch.setenv('PYDANTIC_DEEP_SERVER_MEMORY', setting)
    if expected:
        pytest.importorskip(
            'pydantic_ai_harness', reason='the harness pins pydantic-ai to an older release than this one'
        )
    (tmp_path / 'pydantic-deep').mkdir()
    served: list[bool] = []

    async def serve_stdio(agents: object, store: object, settings: ServerSettings, **options: object) -> None:
        served.append(settings.memory)

    # The command only has to pass the settings on; `tests/server/routes/test_memory.py` uses a memory.
    monkeypatch.setattr('pydantic_deep.server.mcp.stdio.serve_stdio', serve_stdio)
    (tmp_path / 'pydantic-deep/config.toml').write_text(f'memory = {str(memory).lower()}\n')
    variables = {'XDG_CONFIG_HOME': str(tmp_path)}
    result = invoke('mcp', '--store', 'memory:', model=ScriptedModel(), variables=variables)
    assert result.exit_code == 0, result.stderr
    assert served == [expected]
