"""Our capabilities add no layer to a run or to its events, unless they override a hook."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import pytest
from pydantic_ai import Agent, AgentRunResult, AgentStreamEvent, RunContext
from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.messages import ModelMessage, PartStartEvent
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_deep import create_deep_agent
from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep.todos import Todos

pytestmark = pytest.mark.anyio


class Quiet(BaseCapability[object]):
    """A capability without hooks."""


async def contexts_of(capabilities: int) -> int:
    """Return how many contexts a run with a number of capabilities keeps while it streams."""
    found: list[int] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield 'word '
        gc.collect()
        found.append(sum(isinstance(each, RunContext) for each in gc.get_objects()))
        yield 'end'

    agent = Agent(FunctionModel(stream_function=stream), capabilities=[Quiet() for _ in range(capabilities)])
    async with agent.run_stream_events('hi') as events:
        async for _ in events:
            pass
    return found[0]


async def test_capability_without_hooks_keeps_no_context_during_a_run():
    gc.collect()
    assert await contexts_of(10) == await contexts_of(1)


async def test_overridden_hooks_of_a_subclass_are_called():
    """They are called for the run and each event, also if the run is not streamed, and may call those of the base."""
    seen: list[str] = []

    class Watching(Todos):
        async def wrap_run(self, ctx: RunContext[object], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
            seen.append('run')
            return await super().wrap_run(ctx, handler=handler)

        async def wrap_run_event_stream(
            self, ctx: RunContext[object], *, stream: AsyncIterable[AgentStreamEvent]
        ) -> AsyncIterable[AgentStreamEvent]:
            async for event in super().wrap_run_event_stream(ctx, stream=stream):
                if isinstance(event, PartStartEvent):
                    seen.append(event.part.part_kind)
                yield event

    agent = Agent(TestModel(call_tools=[], custom_output_text='Hello.'), capabilities=[Watching()])

    assert (await agent.run('hi')).output == 'Hello.'
    assert seen == ['run', 'text']


def test_deep_agent_does_not_stream_for_its_own_capabilities():
    """A run of which nobody reads the events is not streamed."""
    assert not create_deep_agent(TestModel()).root_capability.has_wrap_run_event_stream
