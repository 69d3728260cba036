"""Helpers for tests of runs: the events of a scripted agent, or of events of pydantic-ai."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, TypeVar

from pydantic_ai import AgentRunResult, AgentRunResultEvent, AgentStreamEvent
from pydantic_ai.messages import ModelResponse

from pydantic_deep import create_deep_agent
from pydantic_deep.streaming import RunEvents, StreamEvent, stream_events
from pydantic_deep.testing import ScriptedModel, Step, deps_for_test

KindT = TypeVar('KindT')


async def told_by(*steps: Step, **options: Any) -> list[StreamEvent]:
    """Return the events of a deep agent with this script."""
    agent = create_deep_agent(ScriptedModel(*steps), **options)
    async with agent.run_stream_events('Go', deps=deps_for_test()) as run:
        is_begun = False

        async def events() -> AsyncGenerator[AgentStreamEvent | AgentRunResultEvent[Any]]:
            nonlocal is_begun
            async for event in run:
                is_begun = True
                yield event

        translator = RunEvents(usage=lambda: run.usage if is_begun else None)
        return [event async for event in stream_events(events(), translator)]


def only(kind: type[KindT], events: Sequence[object]) -> list[KindT]:
    return [event for event in events if isinstance(event, kind)]


def translate(*events: AgentStreamEvent | AgentRunResultEvent[Any]) -> list[StreamEvent]:
    translator = RunEvents()
    return [emitted for event in events for emitted in translator.translate(event)]


def result_of(output: object, *parts: Any, finish_reason: Any = None) -> AgentRunResultEvent[Any]:
    """Return the last event of a run with this output, after one response."""
    return AgentRunResultEvent(_result(output, ModelResponse(parts=list(parts), finish_reason=finish_reason)))


def _result(output: object, response: ModelResponse) -> AgentRunResult[Any]:
    class Result(AgentRunResult[Any]):
        @property
        def response(self) -> ModelResponse:
            return response

    return Result(output)
