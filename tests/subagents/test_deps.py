"""Deps of a child, for deps of any type."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, RunContext

from pydantic_deep import DeepAgentDeps, Todo, Todos
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import ScriptedModel, call

from .conftest import Theirs, worker

pytestmark = pytest.mark.anyio


async def test_child_has_its_own_todos_and_subagents_but_shared_files(ask: Any) -> None:
    seen: list[DeepAgentDeps] = []

    def look(ctx: RunContext[DeepAgentDeps]) -> str:
        seen.append(ctx.deps)
        return 'ok'

    deps = DeepAgentDeps(todos=[Todo(content='mine')], metadata={'user': 1})
    await ask(worker(call('look'), call('write_todos', todos=[]), 'x', tools=[look], capabilities=[Todos()]), deps=deps)
    [child] = seen
    assert child is not deps
    assert (child.todos, child.subagents, child.max_depth) == ([], {}, 0)
    assert (child.backend, child.uploads, child.metadata) == (deps.backend, deps.uploads, deps.metadata)
    assert deps.todos == [Todo(content='mine')]


async def test_child_without_deps_has_its_declared_subagents(ask: Any) -> None:
    inner = Subagent('inner', 'x', model='test')
    model = ScriptedModel('answer')
    parent_model = ScriptedModel(call('task', subagent='worker', description='x'), 'done')
    capability = Subagents([Subagent('worker', 'x', model=model, subagents=[inner])])
    await Agent(parent_model, capabilities=[capability]).run('go')
    assert model.requests[0].tool_names == ['task']
    assert parent_model.requests[-1].tool_returns[0].content == 'answer'


async def test_third_party_deps_are_passed_unchanged_and_agents_cached_per_run() -> None:
    seen: list[object] = []
    built: list[str] = []

    def build(subagent: Subagent) -> Agent[Any, Any]:
        built.append(subagent.name)
        child = Agent(ScriptedModel(then=lambda m, i: 'x' if len(m) > 1 else call('look')), deps_type=Theirs)

        @child.tool
        def look(ctx: RunContext[Theirs]) -> str:
            seen.append(ctx.deps)
            return ctx.deps.name

        return child

    task = call('task', subagent='worker', description='x')
    model = ScriptedModel(task, task, 'done', task, 'done')
    parent = Agent(model, deps_type=Theirs, capabilities=[Subagents([Subagent('worker', 'Works.')], build=build)])
    deps = Theirs('me')
    await parent.run('go', deps=deps)
    assert (seen, built) == ([deps, deps], ['worker'])
    await parent.run('go', deps=deps)
    assert built == ['worker', 'worker']
