"""The `mcp` command: a stock client on its standard input and output, and a process that is killed in a run."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp import Client, StdioServerParameters

from pydantic_deep.testing import ScriptedModel
from tests.cli.conftest import PATIENCE_SECONDS, Invoke

MODULE = """
import os
from pathlib import Path

import anyio
import anyio.lowlevel
from pydantic_ai.messages import ToolReturnPart

from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel, call


def answer(messages, info):
    done = any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    return 'Done.' if done else call('step')


async def step() -> str:
    "Wait until the test continues it."
    print('This line must not be on the wire.')
    Path('pid').write_text(str(os.getpid()))
    while not Path('continue').exists():
        await anyio.sleep(0.01)
    return 'stepped'


agent = create_deep_agent(ScriptedModel(then=answer), name='analyst')
agent.tool_plain(metadata={'effect': 'read'})(step)
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


@asynccontextmanager
async def connected(directory: Path) -> AsyncGenerator[Client]:
    """Start the command in a process of its own, and connect a client to it."""
    parameters = StdioServerParameters(
        command=str(Path(sys.executable).with_name('pydantic-deep')),
        args=['mcp', '--agents', 'house:agent', '--store', 'sqlite:///agents.db'],
        cwd=directory,
        env={**os.environ, 'PYTHONPATH': str(directory)},
    )
    async with Client(parameters) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


@pytest.mark.slow
@pytest.mark.anyio
async def test_run_of_a_killed_process_continues_in_the_next_one(tmp_path: Path) -> None:
    """After kill -9 in a call, the next process resumes the run, and `get_run` returns its end."""
    (tmp_path / 'house.py').write_text(MODULE)
    begun: Any = None
    with anyio.fail_after(PATIENCE_SECONDS):
        try:
            async with connected(tmp_path) as client:
                begun = await call(client, 'run', prompt='Go', wait_seconds=0)
                while not (tmp_path / 'pid').exists():
                    await anyio.lowlevel.checkpoint()
                os.kill(int((tmp_path / 'pid').read_text()), signal.SIGKILL)
        except* anyio.BrokenResourceError:
            pass
        assert begun['state'] == 'running'
        (tmp_path / 'continue').touch()
        async with connected(tmp_path) as client:
            done = await call(client, 'get_run', run=begun['run'])
    assert (done['state'], done['output']) == ('complete', 'Done.')
