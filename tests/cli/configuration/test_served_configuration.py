"""The configuration files in `serve`, `mcp` and `worker`: the files, the order and the trust of `chat`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import DeferredToolRequests
from typer.testing import Result

from pydantic_deep import DeepAgentDeps, VersionedAgent
from pydantic_deep._agent_imports import AnyAgent
from pydantic_deep.budgets import BudgetExceededError
from pydantic_deep.server import ServerSettings
from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]

MODULE = """
from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel

agent = create_deep_agent(ScriptedModel('Hello.'), name='analyst', interrupt_on={})
"""

COMMANDS = [
    ('serve',),
    ('serve', '--agents', 'configured_fleet:agent'),
    ('worker', '--agents', 'configured_fleet:agent'),
    ('mcp',),
    ('mcp', '--agents', 'configured_fleet:agent'),
]
WRITE = call('write_file', path='/a.txt', content='a')


class Served:
    """What each server or worker would do with its agents: one run that writes a file."""

    def __init__(self) -> None:
        self.outputs: list[Any] = []
        self.tools: list[set[str]] = []
        self.instructions: list[str] = []
        self.memory: list[bool] = []
        """The setting of each server and worker."""

    async def note(self, agents: Mapping[str, AnyAgent], *args: object, **options: object) -> None:
        self.memory += [each.memory for each in args if isinstance(each, ServerSettings)]
        for agent in agents.values():
            assert not isinstance(agent, VersionedAgent)
            model = ScriptedModel(WRITE, 'Done.')
            try:
                result = await agent.run('go', model=model, deps=DeepAgentDeps())
                self.outputs.append(result.output)
            except BudgetExceededError as error:
                self.outputs.append(error)
            if model.requests:
                self.tools.append({tool.name for tool in model.requests[0].tools})
                self.instructions.append(model.requests[0].instructions or '')


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, work: Path) -> Served:
    """The runs of the agents of each command, instead of its work."""
    found = Served()
    monkeypatch.setattr('pydantic_deep.server.serve', found.note)
    monkeypatch.setattr('pydantic_deep.server.run_worker', found.note)
    monkeypatch.setattr('pydantic_deep.server.mcp.stdio.serve_stdio', found.note)
    (work / 'configured_fleet.py').write_text(MODULE)
    monkeypatch.setattr(sys, 'path', [*sys.path])
    return found


@pytest.fixture
def start(invoke: Invoke, work: Path) -> Invoke:
    """Run a command with a store in the working directory."""

    def run(*command: str, **options: Any) -> Result:
        return invoke(*command, '--store', f'sqlite:///{work}/agents.db', model=ScriptedModel(), **options)

    return run


@pytest.mark.parametrize('command', COMMANDS)
def test_budget_of_the_project_limits_each_agent_once_trusted(
    invoke: Invoke, start: Invoke, work: Path, served: Served, command: tuple[str, ...]
) -> None:
    """Without a terminal, an untrusted project refuses with the command that trusts it; then its budget applies."""
    (work / 'pydantic-deep.toml').write_text('max_tokens = 1\n')
    refused = start(*command)
    assert (refused.exit_code, served.outputs) == (2, [])
    assert 'To review and trust them: `pydantic-deep config trust --dir ' in refused.stderr
    assert start(*command, '--no-project-config').exit_code == 0
    assert invoke('config', 'trust', '--yes').exit_code == 0
    result = start(*command)
    assert result.exit_code == 0, result.stderr
    without, limited = served.outputs
    assert without == 'Done.'
    assert isinstance(limited, BudgetExceededError)
    assert (limited.measure, limited.limit) == ('tokens', 1)


@pytest.mark.parametrize('command', ['serve', 'mcp'])
def test_default_agent_has_rules_skills_and_the_web(
    invoke: Invoke, start: Invoke, work: Path, served: Served, command: str
) -> None:
    """The agent that is served without `--agents` is configured as that of `chat`."""
    skill = work / 'skills/tidy/SKILL.md'
    skill.parent.mkdir(parents=True)
    skill.write_text('---\nname: tidy\ndescription: Tidies notes.\n---\nTidy.\n')
    (work / 'pydantic-deep.toml').write_text('skills = ["skills"]\nweb = true\n[rules]\nwrite_file = true\n')
    invoke('config', 'trust', '--yes')
    result = start(command)
    assert result.exit_code == 0, result.stderr
    assert isinstance(served.outputs[0], DeferredToolRequests)
    assert {'web_fetch', 'load_skill'} <= served.tools[0]
    assert 'tidy' in served.instructions[0]


def test_file_of_the_user_is_stronger_than_the_project(
    invoke: Invoke, start: Invoke, work: Path, tmp_path: Path, served: Served
) -> None:
    """A project cannot raise the budget of the user, and `config` names the file that wins."""
    own = tmp_path / 'home/.config/pydantic-deep/config.toml'
    own.parent.mkdir(parents=True)
    own.write_text('max_cost = 0.01\nmax_tokens = 2\n')
    (work / 'pydantic-deep.toml').write_text('max_tokens = 1000000\n')
    invoke('config', 'trust', '--yes')
    assert str(own) in invoke('config', '--json').stdout
    assert start('serve').exit_code == 0
    assert isinstance(served.outputs[0], BudgetExceededError)
    assert served.outputs[0].limit == 2


def test_settings_without_effect_are_named(invoke: Invoke, start: Invoke, work: Path, served: Served) -> None:
    """Agents from Python have their own rules; a line says so."""
    (work / 'pydantic-deep.toml').write_text('[rules]\nwrite_file = true\n')
    invoke('config', 'trust', '--yes')
    own = start('worker', '--agents', 'configured_fleet:agent').stderr
    source = work / 'pydantic-deep.toml'
    assert f'Not used: rules.write_file ({source}). Agents that --agents names have their own rules and skills.' in own
    default = start('serve').stderr
    assert 'rules.write_file' not in default


@pytest.mark.parametrize('command', [('serve',), ('worker', '--agents', 'configured_fleet:agent')])
def test_memory_is_switched_on_by_option_or_configuration(
    invoke: Invoke, start: Invoke, work: Path, served: Served, command: tuple[str, ...]
) -> None:
    """`--memory` and `memory = true` give served agents a memory, `--no-memory` does not, and the default is none."""
    pytest.importorskip('pydantic_ai_harness', reason='the harness pins pydantic-ai to an older release than this one')
    start(*command)
    start(*command, '--memory')
    (work / 'pydantic-deep.toml').write_text('memory = true\n')
    invoke('config', 'trust', '--yes')
    start(*command)
    start(*command, '--no-memory')
    assert served.memory == [False, True, True, False]


def test_rules_of_mcp_servers_apply_to_agents_from_python(
    invoke: Invoke, start: Invoke, work: Path, served: Served
) -> None:
    """A rule that lets tools of a configured MCP server run without approval has an effect on every agent."""
    (work / 'pydantic-deep.toml').write_text(
        f'[rules]\n"shop_get_*" = false\n[mcp_servers.shop]\ncommand = {sys.executable!r}\nargs = ["-c", ""]\n'
    )
    invoke('config', 'trust', '--yes')
    result = start('serve', '--agents', 'configured_fleet:agent')
    assert 'Not used' not in result.stderr


@pytest.mark.parametrize('rule', ['true', '{deny = ["*"]}'])
@pytest.mark.parametrize('command', COMMANDS)
def test_rule_without_effect_does_not_leave_a_tool_without_approval(
    invoke: Invoke, start: Invoke, work: Path, served: Served, command: tuple[str, ...], rule: str
) -> None:
    """A pattern that lets tools run has an effect on agents from Python, and the rule that takes one of them out of it has
    none. So this is an error and not a line that nobody reads. The configured agent has both rules."""
    (work / 'pydantic-deep.toml').write_text(
        f'[rules]\n"shop_*" = false\nshop_pay = {rule}\n'
        f'[mcp_servers.shop]\ncommand = {sys.executable!r}\nargs = ["-c", ""]\n'
    )
    invoke('config', 'trust', '--yes')
    result = start(*command)
    if '--agents' not in command:
        assert result.exit_code == 0, result.stderr
        return
    assert (result.exit_code, served.outputs) == (2, [])
    assert "'rules.shop_pay' does not apply to agents that --agents names" in result.stderr


def test_model_option_without_effect_is_named(start: Invoke, served: Served) -> None:
    """Agents from Python have their own models; the option says so, as it would seem to replace them."""
    own = start('serve', '--agents', 'configured_fleet:agent', '--model', 'given').stderr
    assert 'Not used: --model. Agents that --agents names have their own models.' in own
    assert 'Not used' not in start('serve', '--model', 'given').stderr


def test_domains_of_the_web_apply_to_agents_from_python(
    invoke: Invoke, start: Invoke, work: Path, served: Served
) -> None:
    """The domains of `rules.web_fetch` belong to the web, which all agents have, so they are not named as unused."""
    (work / 'pydantic-deep.toml').write_text('web = true\n[rules]\nweb_fetch = {allow = ["python.org"]}\n')
    invoke('config', 'trust', '--yes')
    result = start('serve', '--agents', 'configured_fleet:agent')
    assert result.exit_code == 0, result.stderr
    assert 'Not used' not in result.stderr


@pytest.mark.parametrize(
    'server',
    [
        {'command': 'pydantic-deep', 'args': ['mcp', '--agents', 'house:agents']},
        {'command': 'uvx', 'args': ['--from', 'versioned-deep-agents', '/bin/pydantic-deep', 'mcp']},
        {'command': 'sh', 'args': ['-c', 'exec pydantic-deep mcp']},
    ],
)
def test_mcp_server_does_not_start_itself(
    invoke: Invoke, start: Invoke, work: Path, served: Served, server: dict[str, object]
) -> None:
    """Editors read `.mcp.json` too, so it may have the command `mcp`, which leaves itself out and says so."""
    (work / '.mcp.json').write_text(json.dumps({'mcpServers': {'deep': server}}))
    invoke('config', 'trust', '--yes')
    result = start('mcp')
    assert result.exit_code == 0, result.stderr
    assert f'Not used: mcp_servers.deep ({work / ".mcp.json"}). It starts `pydantic-deep mcp`' in result.stderr
    assert not [tool for tool in served.tools[0] if tool.startswith('deep')]
