"""MCP servers of `serve`, `mcp`, `worker` and `evals`, by the same option as for `run`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.agent import AbstractAgent
from typer.testing import Result

from pydantic_deep import DeepAgentDeps, VersionedAgent, create_deep_agent, open_store
from pydantic_deep._agent_imports import AnyAgent
from pydantic_deep.cli.turn._served_agents import with_configuration
from pydantic_deep.mcp import McpServer, McpServers
from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]

SERVER = Path(__file__).parent.parent.parent / 'mcp/fixture_server.py'
ADD = call('shop_add', a=1, b=2)

MODULE = """
from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel

agent = create_deep_agent(ScriptedModel('Hello.'), name='analyst', interrupt_on={})
"""


@pytest.fixture
def mcp_file(tmp_path: Path) -> Path:
    """A file with the fixture server."""
    path = tmp_path / 'servers.json'
    server = {'command': sys.executable, 'args': [str(SERVER)], 'env': {'CALLS': str(tmp_path / 'calls')}}
    path.write_text(json.dumps({'mcpServers': {'shop': server}}))
    return path


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, work: Path) -> list[list[str]]:
    """The tools of each agent that a server or a worker has, instead of its work."""
    found: list[list[str]] = []

    async def note(agents: Mapping[str, AnyAgent], *args: object, **options: object) -> None:
        for agent in agents.values():
            assert not isinstance(agent, VersionedAgent)
            model = ScriptedModel('Done.')
            await agent.run('go', model=model, deps=DeepAgentDeps())
            found.append([tool.name for tool in model.requests[0].tools])

    monkeypatch.setattr('pydantic_deep.server.serve', note)
    monkeypatch.setattr('pydantic_deep.server.run_worker', note)
    monkeypatch.setattr('pydantic_deep.server.mcp.stdio.serve_stdio', note)
    (work / 'mcp_fleet.py').write_text(MODULE)
    monkeypatch.setattr(sys, 'path', [*sys.path])
    return found


@pytest.mark.parametrize(
    'command',
    [
        ('serve',),
        ('serve', '--agents', 'mcp_fleet:agent'),
        ('worker', '--agents', 'mcp_fleet:agent'),
        ('mcp',),
        ('mcp', '--agents', 'mcp_fleet:agent'),
    ],
)
def test_agents_of_a_server_and_a_worker_have_the_servers(
    invoke: Invoke, work: Path, mcp_file: Path, served: list[list[str]], command: tuple[str, ...]
) -> None:
    """`--mcp-config` adds the tools to each agent, the default one too; without the option there are none."""
    options = (*command, '--store', f'sqlite:///{work}/agents.db')
    result = invoke(*options, '--mcp-config', str(mcp_file), model=ScriptedModel())
    assert result.exit_code == 0, result.stderr
    assert invoke(*options, model=ScriptedModel()).exit_code == 0
    assert [('shop_add' in tools, 'write_todos' in tools) for tools in served] == [(True, True), (False, True)]


@pytest.mark.parametrize('command', ['serve', 'worker'])
def test_first_file_with_a_name_wins_and_an_invalid_one_is_wrong_usage(
    invoke: Invoke, work: Path, mcp_file: Path, served: list[list[str]], command: str
) -> None:
    """Files add up by name, and nothing starts with a file that is invalid."""
    options = (command, '--agents', 'mcp_fleet:agent', '--store', f'sqlite:///{work}/agents.db')
    (work / 'other.json').write_text('{"mcpServers": {"shop": {"command": "no-such-program"}}}')
    both = ('--mcp-config', str(mcp_file), '--mcp-config', 'other.json')
    assert invoke(*options, *both, model=ScriptedModel()).exit_code == 0
    assert 'shop_add' in served[0]
    (work / 'bad.json').write_text('{')
    refused = invoke(*options, '--mcp-config', 'bad.json', model=ScriptedModel())
    assert (refused.exit_code, 'bad.json' in refused.stderr) == (2, True)


@pytest.mark.anyio
async def test_servers_run_as_long_as_the_agents_are_served(tmp_path: Path) -> None:
    """All agents share one process of the server, which runs until the end; versioned agents keep their store."""
    server = McpServer(command=sys.executable, args=(str(SERVER),), env={'CALLS': str(tmp_path / 'calls')})
    model = ScriptedModel(ADD, 'One.', ADD, 'Two.')
    agent: AbstractAgent[Any, Any] = create_deep_agent(model, interrupt_on={})
    async with (
        open_store('memory:') as store,
        with_configuration(
            {'plain': agent, 'versioned': VersionedAgent(agent, store)}, McpServers(servers={'shop': server})
        ) as served,
    ):
        plain, versioned = served.values()
        assert not isinstance(plain, VersionedAgent)
        assert isinstance(versioned, VersionedAgent)
        await plain.run('go', deps=DeepAgentDeps())
        version = await (await versioned.create()).advance('go')
        assert version.output == 'Two.'
    assert (tmp_path / 'calls').read_text().splitlines() == ['start', 'add 1 2', 'add 1 2']


@pytest.mark.slow
def test_case_of_a_turn_with_configuration_needs_them(invoke: Invoke, work: Path, mcp_file: Path) -> None:
    """A case of a turn with servers is recorded, replayed and run with the same option; without it, it is named."""
    option = ('--mcp-config', str(mcp_file))
    ran = invoke('run', 'Add', '--approvals=allow', *option, model=ScriptedModel(ADD, '3.'))
    assert ran.exit_code == 0, ran.stderr
    missing = invoke('evals', 'record', 'HEAD', '--name', 'sum', model=ScriptedModel())
    assert missing.exit_code == 2
    assert 'MCP servers that are not configured here: shop. Name their file with --mcp-config.' in missing.stderr
    recorded = invoke('evals', 'record', 'HEAD', '--name', 'sum', *option, model=ScriptedModel())
    assert recorded.exit_code == 0, recorded.stderr
    assert invoke('evals', 'run', '--replay', *option, model=ScriptedModel()).exit_code == 0
    assert invoke('evals', 'run', *option, model=ScriptedModel(ADD, '3.')).exit_code == 0
