"""Names of subagent tools, for capabilities that check tool names."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from pydantic_deep import DeepAgentDeps, Todos
from pydantic_deep.extensions import SupportsHiddenTools
from pydantic_deep.subagents import Subagent, Subagents

pytestmark = pytest.mark.anyio


def one() -> str:
    return ''


def two() -> str:
    return ''


def three() -> str:
    return ''


async def test_tools_of_nested_subagents_are_named_without_a_request() -> None:
    inner = Subagent('inner', 'x', model='test', tools=[one])
    ready = Agent(tools=[two], toolsets=[FunctionToolset([three])], capabilities=[Todos()])
    capability = Subagents(
        [Subagent('outer', 'x', model='test', subagents=[inner]), Subagent('ready', 'x', agent=ready)]
    )
    deps = DeepAgentDeps()
    ctx = RunContext[Any](deps=deps, model=TestModel(), usage=RunUsage())
    assert isinstance(capability, SupportsHiddenTools)
    assert await capability.hidden_tool_names(ctx) == {'task', 'one', 'two', 'three', 'write_todos'}
    assert list(deps.subagents) == ['outer']


async def test_task_is_known_without_subagents() -> None:
    ctx = RunContext[Any](deps=None, model=TestModel(), usage=RunUsage())
    assert await Subagents().hidden_tool_names(ctx) == {'task'}
