"""`--agent`: the user's own agent on the command line, with its model, approvals, deps and output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.capabilities import Toolset
from pydantic_ai.toolsets import FunctionToolset
from typer.testing import Result

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep._agent_imports import InvalidAgentsError
from pydantic_deep.caching import CacheWatch
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.turn._own_agent import OwnAgent
from pydantic_deep.cli.turn._runtime import Settings, create_runtime
from pydantic_deep.mcp import McpServer, McpServers
from pydantic_deep.testing import ScriptedModel
from tests._messages.notices import notices_in

Invoke = Callable[..., Result]

MODULE = """
from dataclasses import dataclass, field

from pydantic import BaseModel
from pydantic_ai import Agent, RunContext

from pydantic_deep import Budget, Budgets, DeepAgentDeps, ProjectContext, VersionedAgent, create_deep_agent
from pydantic_deep.mcp import McpServer, McpServers
from pydantic_deep.store import SqlStore
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.testing import ScriptedModel, call


@dataclass(kw_only=True)
class Deps(DeepAgentDeps):
    customer: str = 'ada'


class Invoice(BaseModel):
    total: int


async def look_up(ctx: RunContext[Deps]) -> str:
    "Return the customer."
    return ctx.deps.customer


def billing_agent(*answers, **options):
    return create_deep_agent(ScriptedModel(*answers), name='billing', deps_type=Deps, tools=[look_up], **options)


billing = billing_agent(call('write_file', path='a.txt', content='x'), call('look_up'), 'Billed.')
asking = billing_agent(
    call('write_file', path='a.txt', content='x'), 'Billed.', interrupt_on={'write_file': True}
)
structured = billing_agent(call('final_result', total=3), output_type=Invoice)
frugal = billing_agent(
    call('look_up'), 'Billed.', capabilities=[Budgets(run=Budget(tokens=10_000)), ProjectContext()]
)
limited = billing_agent(call('look_up'), 'Billed.')
served = billing_agent(
    'Billed.', interrupt_on={}, capabilities=[McpServers(servers={'till': McpServer(command='false')})]
)
without_model = create_deep_agent(name='billing')
other_deps = Agent(ScriptedModel('x'), deps_type=dict)


@dataclass(kw_only=True)
class Strict(DeepAgentDeps):
    customer: str


strict = create_deep_agent(ScriptedModel('x'), deps_type=Strict)
both = {'one': billing, 'two': asking}
versioned = VersionedAgent(billing, SqlStore(MemoryEngine.open()))
"""


@pytest.fixture(autouse=True)
def agents(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with agents in the working directory."""
    (work / 'firm.py').write_text(MODULE)
    monkeypatch.setattr(sys, 'path', [*sys.path])
    monkeypatch.delitem(sys.modules, 'firm', raising=False)


@pytest.mark.parametrize('name', ['billing', 'versioned'])
def test_own_agent_works_in_the_directory_with_its_own_deps_and_tools(invoke: Invoke, work: Path, name: str) -> None:
    result = invoke('run', 'Bill', '--agent', f'firm:{name}')
    assert (result.exit_code, result.stdout) == (0, 'Billed.\n'), result.stderr
    assert (work / 'a.txt').read_text() == 'x'
    assert result.stderr.startswith(f'firm:{name} with scripted in {work}\n')
    assert 'look_up' in result.stderr
    shown = json.loads(invoke('show', '--json').stdout)
    assert shown['agent'] == 'billing'


def test_approvals_are_those_of_the_agent_and_the_option_answers_them(invoke: Invoke, work: Path) -> None:
    denied = invoke('run', 'Bill', '--agent', 'firm:asking', '--approvals', 'deny')
    assert (denied.exit_code, (work / 'a.txt').exists()) == (0, False), denied.stderr


def test_paused_turn_is_resumed_only_with_the_agent_that_is_named_again(invoke: Invoke, work: Path) -> None:
    """The metadata of a version does not decide which code is imported."""
    paused = invoke('run', 'Bill', '--agent', 'firm:asking', '--approvals', 'pause')
    assert paused.exit_code == 5, paused.stderr
    assert paused.stderr.endswith(' --agent firm:asking\n')
    refused = invoke('resume', '--approvals', 'allow')
    assert (refused.exit_code, refused.stderr) == (
        2,
        "The turn ran with your agent 'firm:asking'. Add `--agent firm:asking`; in `evals`, `--agents`.\n",
    )
    refused = invoke('resume', '--approvals', 'allow', '--agent', 'firm:billing')
    assert refused.stderr.startswith("The turn ran with your agent 'firm:asking', and not with 'firm:billing'")
    done = invoke('resume', '--approvals', 'allow', '--agent', 'firm:asking')
    assert (done.exit_code, done.stdout, (work / 'a.txt').read_text()) == (0, 'Billed.\n', 'x'), done.stderr


def test_last_answer_suggests_to_resume_with_the_agent(invoke: Invoke) -> None:
    invoke('run', 'Bill', '--agent', 'firm:asking', '--approvals', 'pause')
    [pending] = json.loads(invoke('approvals', 'list', '--json').stdout)
    answered = invoke('approvals', 'answer', pending['id'], '--approve')
    assert answered.stdout.endswith(' --agent firm:asking\n')


def test_turn_of_the_command_line_is_not_resumed_with_another_agent(invoke: Invoke) -> None:
    from pydantic_deep.testing import call

    model = ScriptedModel(call('write_file', path='a.txt', content='x'), 'Done.')
    assert invoke('run', 'Go', '--approvals', 'pause', model=model).exit_code == 5
    refused = invoke('resume', '--approvals', 'allow', '--agent', 'firm:billing', model=model)
    assert refused.stderr.startswith("The turn ran with the agent of the command line, and not with 'firm:billing'")


def test_turn_is_replayed_with_the_agent(invoke: Invoke) -> None:
    assert invoke('run', 'Bill', '--agent', 'firm:billing').exit_code == 0
    assert invoke('replay').exit_code == 2
    replayed = invoke('replay', '--agent', 'firm:billing')
    assert replayed.exit_code == 0, replayed.stdout + replayed.stderr


def test_structured_output_is_printed_as_json(invoke: Invoke) -> None:
    result = invoke('run', 'Bill', '--agent', 'firm:structured')
    assert (result.exit_code, json.loads(result.stdout)) == (0, {'total': 3}), result.stderr


def test_budget_and_project_context_of_the_command_line_are_added_to_those_of_the_agent(
    invoke: Invoke, work: Path
) -> None:
    (work / 'AGENTS.md').write_text('Use tabs.')
    result = invoke('run', 'Bill', '--agent', 'firm:frugal')
    assert (result.exit_code, result.stdout) == (0, 'Billed.\n'), result.stderr
    assert str(notices_in(sys.modules['firm'].frugal.model.requests[0])).count('Use tabs.') == 1
    limited = invoke('run', 'Bill', '--agent', 'firm:limited', '--max-tokens', '1')
    assert limited.exit_code == 4, limited.stderr


def test_the_model_of_the_agent_has_one_name(invoke: Invoke) -> None:
    """A model whose provider has the name of the model is shown once: `scripted`, not `scripted:scripted`."""
    result = invoke('run', 'Bill', '--agent', 'firm:limited', '--json')
    assert json.loads(result.stdout.splitlines()[0])['model'] == 'scripted'


def test_model_of_the_agent_can_be_replaced(invoke: Invoke) -> None:
    model = ScriptedModel('Another.')
    for name in ('billing', 'without_model'):
        result = invoke('run', 'Bill', '--agent', f'firm:{name}', '--model', 'given', model=model)
        assert result.exit_code == 0
        assert result.stderr.startswith(f'firm:{name} with given in ')
        model = ScriptedModel('Another.')


def test_chat_takes_the_agent(invoke: Invoke) -> None:
    result = invoke('chat', '--agent', 'firm:billing', stdin='Bill\n')
    assert (result.exit_code, result.stdout) == (0, 'Billed.\n'), result.stderr


def test_chat_lists_the_mcp_servers_of_the_agent_and_of_the_configuration(invoke: Invoke, work: Path) -> None:
    config = work / 'more.json'
    config.write_text(json.dumps({'mcpServers': {'stock': {'command': 'false'}}}))
    result = invoke('chat', '--agent', 'firm:served', '--mcp-config', str(config), stdin='/mcp\n')
    assert 'stock: not running  false' in result.stderr
    assert 'till: not running  false' in result.stderr


@pytest.mark.parametrize(
    ('reference', 'code', 'message'),
    [
        ('firm', 2, "'firm' is not a reference to agents. Write `package.module:attribute`."),
        ('nowhere:agent', 2, "There is no module 'nowhere'"),
        ('firm:both', 2, "'firm:both' has several agents: one, two. Name one of them by an attribute."),
        ('firm:other_deps', 2, "The agent 'firm:other_deps' has deps of the type dict."),
        ('firm:strict', 2, "The deps of the agent 'firm:strict' cannot be created with `backend` alone:"),
        ('firm:without_model', 3, "The agent 'firm:without_model' has no model. Name one with --model."),
    ],
)
def test_agent_that_cannot_be_used_is_reported(invoke: Invoke, reference: str, code: int, message: str) -> None:
    result = invoke('run', 'Bill', '--agent', reference)
    assert (result.exit_code, message in result.stderr) == (code, True), result.stderr


def test_agent_of_the_store_is_quoted_in_the_suggested_option(work: Path) -> None:
    """The settings of a version may be those of another writer of the store, and a person pastes what is suggested."""
    settings = Settings(directory=str(work), model=None, agent='firm:asking; echo')
    with pytest.raises(InvalidAgentsError, match=r"Add `--agent 'firm:asking; echo'`; in `evals`, `--agents`\."):
        create_runtime(Environment(), settings, approvals=ApprovalMode.ask)


class Shop(FunctionToolset[Any]):
    """Counts its users, like the connection to an MCP server, which runs while there are any."""

    users = 0

    async def __aenter__(self) -> Shop:
        self.users += 1
        return self

    async def __aexit__(self, *args: object) -> None:
        self.users -= 1


@pytest.mark.anyio
async def test_toolsets_of_the_command_line_are_open_while_the_agent_is_entered() -> None:
    """The MCP servers of the configuration run between turns, like those of the agent itself."""
    shop = Shop()
    model = ScriptedModel(then='Done.')
    agent = OwnAgent(create_deep_agent(model), model=None, capabilities=[Toolset(shop), CacheWatch()])

    async with agent:
        async with agent:
            await agent.run('Hi', deps=DeepAgentDeps())
        assert shop.users == 1
    assert shop.users == 0


@pytest.mark.anyio
async def test_servers_of_the_agent_and_of_the_configuration_are_in_one_run() -> None:
    """A capability of a run replaces that of the agent with the same id, so both are combined."""
    own = McpServers(servers={'till': McpServer(command='false'), 'stock': McpServer(command='false')})
    configured = McpServers(servers={'stock': McpServer(command='true'), 'post': McpServer(command='false')})
    model = ScriptedModel('Done.')
    agent = create_deep_agent(model, capabilities=[own], interrupt_on={})

    await OwnAgent(agent, model=None, capabilities=[configured]).run('Hi', deps=DeepAgentDeps())
    assert 'missing: stock, post, till.' in str(model.requests[0].instructions)
    assert own.errors.keys() == {'till', 'stock'}
    assert configured.errors['stock'] == 'not started'
