"""Capabilities shared with subagents."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, ModelRequestContext, RunContext
from pydantic_ai.capabilities import AbstractCapability, Capability, Hooks

from pydantic_deep import DeepAgentDeps, Todos
from pydantic_deep.approvals import Approvals, pending_approvals
from pydantic_deep.subagents import Shared, Subagent, Subagents
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


@dataclass(kw_only=True)
class Watch(AbstractCapability[object]):
    """Logs the requests of each run. The count restarts in each run."""

    log: list[str]
    count: int = field(default=0, init=False)

    async def for_run(self, ctx: RunContext[object]) -> Watch:
        return replace(self)

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self.count += 1
        self.log.append(f'{ctx.prompt} {self.count}')
        return request_context


def ping() -> str:
    return 'pong'


def test_shared_capability_is_transparent() -> None:
    shared = Shared(Todos())
    assert (shared.id, shared.for_subagent()) == ('todos', shared)


async def test_only_shared_capabilities_reach_nested_children_with_separate_state() -> None:
    shared, own = list[str](), list[str]()
    inner = Subagent('inner', 'x', model=ScriptedModel('answer'))
    script = ScriptedModel(call('task', subagent='inner', description='inner'), 'answer')
    outer = Subagent('outer', 'x', model=script, subagents=[inner])
    parent = Agent(
        ScriptedModel(call('task', subagent='outer', description='outer'), 'done'),
        capabilities=[Subagents([outer]), Shared(Watch(log=shared)), Watch(log=own)],
    )
    await parent.run('go', deps=DeepAgentDeps(max_depth=2))
    assert shared == ['go 1', 'outer 1', 'inner 1', 'outer 2', 'go 2']
    assert own == ['go 1', 'go 2']


async def test_general_purpose_subagent_has_a_shared_capability_once() -> None:
    log = list[str]()
    model = ScriptedModel(call('task', subagent='general-purpose', description='child'), 'answer', 'done')
    await Agent(model, capabilities=[Subagents(), Shared(Watch(log=log))]).run('go', deps=DeepAgentDeps())
    assert log == ['go 1', 'child 1', 'go 2']


async def test_shared_capability_of_a_run_reaches_the_general_purpose_subagent() -> None:
    log = list[str]()
    model = ScriptedModel(call('task', subagent='general-purpose', description='child'), 'answer', 'done')
    parent = Agent(model, capabilities=[Subagents()])
    await parent.run('go', deps=DeepAgentDeps(), capabilities=[Shared(Watch(log=log))])
    assert log == ['go 1', 'child 1', 'go 2']


async def test_shared_tools_and_hooks_reach_children(ask: Any) -> None:
    seen = list[str]()
    hooks = Hooks[Any]()

    @hooks.on.before_tool_execute
    async def note(ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any) -> Any:
        seen.append(f'{call.tool_name} {ctx.prompt}')
        return args

    child = Subagent('worker', 'x', model=ScriptedModel(call('ping'), 'answer'))
    model = ScriptedModel([call('ping'), call('task', subagent='worker', description='work')], 'done')
    shared: list[Any] = [Shared(Capability(tools=[ping])), Shared(hooks)]
    await Agent(model, capabilities=[Subagents([child]), *shared]).run('go', deps=DeepAgentDeps())
    assert sorted(seen) == ['ping go', 'ping work', 'task go']


async def test_shared_approvals_do_not_replace_those_of_a_subagent() -> None:
    ran: list[str] = []

    def wipe() -> None:
        ran.append('wipe')

    child = Agent[Any, Any](
        ScriptedModel(call('wipe'), 'done'), tools=[wipe], capabilities=[Approvals(interrupt_on={'wipe': True})]
    )
    parent = Agent[Any, Any](
        ScriptedModel(call('task', subagent='child', description='work')),
        output_type=[str, DeferredToolRequests],
        capabilities=[Subagents([Subagent('child', 'A child.', agent=child)]), Shared(Approvals())],
    )
    paused = await parent.run('go', deps=DeepAgentDeps())
    assert [each.tool for each in pending_approvals(paused.output)] == ['wipe']
    assert ran == []
