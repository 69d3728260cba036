"""Deps of a capability's tool functions, with every kind of run context."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from pydantic_deep._toolsets.run_toolset import RunToolset

pytestmark = pytest.mark.anyio


@dataclass(repr=False, kw_only=True)
class Guarded(RunContext[object]):
    """A context that must be constructed, like that of a durable engine."""

    def __post_init__(self) -> None:
        self.is_built = True


@pytest.mark.parametrize('kind', [RunContext[object], Guarded])
async def test_function_sees_the_state_as_deps_but_the_run_does_not(kind: type[RunContext[object]]) -> None:
    seen: list[RunContext[list[str]]] = []
    functions = FunctionToolset[list[str]](id='notes')

    def note(ctx: RunContext[list[str]]) -> str:
        seen.append(ctx)
        return 'noted'

    functions.add_function(note)
    state = ['state']
    toolset = RunToolset(functions, lambda ctx: state)
    ctx = kind(deps='deps', model=TestModel(), usage=RunUsage(), max_retries=3, tool_call_id='call')
    tools = await toolset.get_tools(ctx)
    assert await toolset.call_tool('note', {}, ctx, tools['note']) == 'noted'
    assert seen[0].deps is state
    assert (ctx.deps, ctx.tool_call_id, ctx.max_retries) == ('deps', seen[0].tool_call_id, seen[0].max_retries)
    assert seen[0].usage is ctx.usage
    assert isinstance(seen[0], Guarded) is isinstance(ctx, Guarded)
    assert getattr(seen[0], 'is_built', None) == getattr(ctx, 'is_built', None)
