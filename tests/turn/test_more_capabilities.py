"""Code mode and hooks: what the guide says about approvals, versions and costs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip('pydantic_monty', reason='the harness pins pydantic-ai to an older release than this one')

from pydantic_ai import ModelRequestContext, RunContext, ToolDefinition, UserError
from pydantic_ai.capabilities import Hooks
from pydantic_ai.messages import ToolCallPart
from pydantic_ai_harness import CodeMode

from pydantic_deep import Approve, DeepAgentDeps, VersionedAgent, create_deep_agent, open_store, pending_approvals
from pydantic_deep.testing import ScriptedModel, SeenRequest, Step, call

pytestmark = pytest.mark.anyio

GUIDE = Path(__file__).parent.parent.parent / 'docs/guides/more-capabilities.md'
READING = ['glob', 'grep', 'ls', 'read_file']
WRITE = {'path': 'a.txt', 'content': '1'}
WRITING_PROGRAM = call('run_code', code="write_file(path='a.txt', content='1')")


def agent_for(*steps: Step, tools: Any = 'all', **rules: bool) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel(*steps)
    return create_deep_agent(model, capabilities=[CodeMode[Any](tools=tools)], interrupt_on=rules), model


async def test_gated_call_in_a_program_fails_and_cannot_be_asked_for() -> None:
    """A call that needs approval does not run inside of a program, nobody is asked, and the model is informed."""
    agent, model = agent_for(WRITING_PROGRAM, 'done', write_file=True)
    async with open_store('memory:') as store:
        version = await (await VersionedAgent(agent, store).create()).advance('go')
        assert (version.state, list(version.pending)) == ('complete', [])
        assert not await (await version.files()).exists('/a.txt')
    [result] = model.requests[-1].tool_returns
    assert (result.outcome, 'ApprovalRequired inside code mode' in str(result.content)) == ('retried', True)


async def test_rule_for_a_tool_of_the_programs_is_refused_without_a_store() -> None:
    """The rule would have no effect, as the tool is not one of the agent any more."""
    agent, model = agent_for(WRITING_PROGRAM, 'done', write_file=True)
    with pytest.raises(UserError, match="`interrupt_on` names 'write_file', but no tool has this name"):
        await agent.run('go', deps=DeepAgentDeps())
    assert model.requests == []


async def test_tool_outside_of_the_program_is_asked_for() -> None:
    """A tool that is left out of code mode is called directly, pauses the turn, and runs once it is approved."""
    reading = call('run_code', code="await ls(path='/')")
    agent, _ = agent_for(reading, call('write_file', **WRITE), 'done', tools=READING, write_file=True)
    async with open_store('memory:') as store:
        paused = await (await VersionedAgent(agent, store).create()).advance('go')
        [pending] = paused.pending
        done = await paused.resume({pending.id: Approve()})
        assert await (await done.files()).exists('/a.txt')
        assert (await done.replay()).difference is None


async def test_program_without_gated_calls_runs_and_replays() -> None:
    """Files that a program writes are in the version, and a replay equals the recording."""
    agent, _ = agent_for(WRITING_PROGRAM, 'done')
    async with open_store('memory:') as store:
        version = await (await VersionedAgent(agent, store).create()).advance('go')
        assert await (await version.files()).exists('/a.txt')
        assert (await version.replay()).difference is None


async def test_rule_for_the_program_asks_without_a_store_and_is_refused_with_one() -> None:
    """A rule for `run_code` asks about each program; with a store, it is an error instead of being without effect."""
    agent, _ = agent_for(WRITING_PROGRAM, 'done', run_code=True)
    [pending] = pending_approvals((await agent.run('go', deps=DeepAgentDeps())).output)
    assert pending.tool == 'run_code'
    agent, _ = agent_for(WRITING_PROGRAM, 'done', run_code=True)
    async with open_store('memory:') as store:
        root = await VersionedAgent(agent, store).create()
        with pytest.raises(UserError, match="`interrupt_on` names 'run_code', but no tool has this name"):
            await root.advance('go')


async def test_hooks_of_calls_do_not_run_in_a_replay() -> None:
    """A hook before a call runs after the approval; a replay runs only hooks of requests."""
    ran: list[str] = []
    hooks = Hooks[Any]()

    async def before_request(ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        ran.append('request')
        return request_context

    async def before_call(
        ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> dict[str, Any]:
        ran.append(call.tool_name)
        return args

    hooks.on.before_model_request(before_request)
    hooks.on.before_tool_execute(before_call)
    model = ScriptedModel(call('write_file', **WRITE), 'done')
    agent = create_deep_agent(model, capabilities=[hooks], interrupt_on={'write_file': True})
    async with open_store('memory:') as store:
        paused = await (await VersionedAgent(agent, store).create()).advance('go')
        assert ran == ['request']
        done = await paused.resume({pending.id: Approve() for pending in paused.pending})
        assert ran == ['request', 'write_file', 'request']
        ran.clear()
        assert (await done.replay()).difference is None
        assert ran == ['request']


def size_of(request: SeenRequest) -> int:
    return len(request.instructions or '') + sum(
        len(json.dumps([tool.name, tool.description, tool.parameters_json_schema], separators=(',', ':')))
        for tool in request.tools
    )


async def test_cost_in_the_guide_is_the_measured_one() -> None:
    """The guide has the number of characters that code mode adds to each request."""
    with_code, model = agent_for('done', tools=READING)
    await with_code.run('go', deps=DeepAgentDeps())
    plain_model = ScriptedModel('done')
    await create_deep_agent(plain_model, interrupt_on={}).run('go', deps=DeepAgentDeps())
    added = size_of(model.requests[0]) - size_of(plain_model.requests[0])
    [stated] = re.findall(r'language, ([\d,]+) characters', GUIDE.read_text())
    assert stated == f'{added:,}'
