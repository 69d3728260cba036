"""Properties of retries, for any sequence of failures."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, ModelRateLimitError, UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    ThinkingPart,
)
from pydantic_ai.run import AgentRunResultEvent

from pydantic_deep.retries import CutAnswerError, ModelRetriedEvent

from .conftest import FaultyModel, Step, Waits, cut, whole

PARTS = st.lists(
    st.one_of(
        st.text('ab ', min_size=1, max_size=9).map(lambda text: TextPart(f'{text}.')),
        st.text('ab ', min_size=1, max_size=9).map(lambda text: ThinkingPart(f'{text}.')),
    ),
    min_size=1,
    max_size=3,
)
"""Parts with non-empty texts, because pydantic-ai itself retries empty ones."""

ERRORS = st.one_of(
    st.builds(lambda: ModelAPIError('m', 'unreadable')),
    st.builds(lambda: UnexpectedModelBehavior('empty')),
    st.floats(0, 20).map(
        lambda seconds: ModelHTTPError.for_category(
            ModelRateLimitError, status_code=429, model_name='m', retry_after=seconds
        )
    ),
)


def of_anthropic(response: ModelResponse) -> ModelResponse:
    """Return the response as one of a provider that always streams."""
    return replace(response, provider_name='anthropic')


CUTS = PARTS.map(lambda parts: of_anthropic(cut(*parts)))
FAILURES = st.lists(st.one_of(ERRORS, CUTS, st.tuples(CUTS, ERRORS)), max_size=6)


@pytest.mark.slow
@settings(max_examples=80)
@given(failures=FAILURES, parts=PARTS, attempts=st.integers(1, 5), streamed=st.booleans())
def test_run_returns_the_complete_answer_or_raises_the_last_error(
    failures: list[Step], parts: list[ModelResponsePart], attempts: int, streamed: bool
) -> None:
    answer = of_anthropic(whole(*parts, 'end'))
    model = FaultyModel(*failures, answer, system='anthropic')
    waits = Waits()
    agent = Agent(model, capabilities=[waits.retries(attempts=attempts, max_seconds=1_000)])

    async def run() -> ModelResponse:
        if not streamed:
            return (await agent.run('go')).response
        async with agent.run_stream_events('go') as events:
            results = [event.result async for event in events if isinstance(event, AgentRunResultEvent)]
        return results[0].response

    if len(failures) < attempts:
        response = anyio.run(run)
        assert response.parts == answer.parts
        assert len(response.failed_attempts or ()) == len(failures)
    else:
        with pytest.raises((ModelAPIError, UnexpectedModelBehavior)) as caught:
            anyio.run(run)
        last = failures[attempts - 1]
        if isinstance(last, ModelResponse):
            assert caught.type is CutAnswerError
        else:
            assert caught.value is (last[1] if isinstance(last, tuple) else last)
    assert model.asked == min(attempts, len(failures) + 1)
    assert len(waits.seconds) == model.asked - 1
    assert model.open_count == 0


@pytest.mark.slow
@settings(max_examples=80)
@given(failures=FAILURES, parts=PARTS)
def test_events_without_void_parts_equal_the_response(failures: list[Step], parts: list[ModelResponsePart]) -> None:
    answer = of_anthropic(whole(*parts, 'end'))
    waits = Waits()
    retries = waits.retries(attempts=len(failures) + 1, max_seconds=1_000)
    agent = Agent(FaultyModel(*failures, answer, system='anthropic'), capabilities=[retries])
    shown: dict[int, ModelResponsePart] = {}
    open_parts: set[int] = set()

    async def run() -> None:
        async with agent.run_stream_events('go') as events:
            async for event in events:
                if isinstance(event, PartStartEvent):
                    assert not open_parts
                    open_parts.add(event.index)
                    shown[event.index] = event.part
                elif isinstance(event, PartDeltaEvent):
                    part = event.delta.apply(shown[event.index])
                    shown[event.index] = part
                elif isinstance(event, PartEndEvent):
                    open_parts.remove(event.index)
                elif isinstance(event, ModelRetriedEvent) and event.is_void:
                    shown.clear()

    anyio.run(run)
    assert list(shown.values()) == answer.parts
    assert not open_parts
