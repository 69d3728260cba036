"""The retrying model and its stream, around a model that fails on demand."""

from __future__ import annotations

import logging
from dataclasses import replace
from decimal import Decimal

import pytest
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelAPIError, ModelHTTPError, ModelRateLimitError
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    FinalResultEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel

from pydantic_deep.retries import CutAnswerError, Retries

from .conftest import FaultyModel, Waits, cut, lost, whole

pytestmark = pytest.mark.anyio

MESSAGES: list[ModelMessage] = [ModelRequest.user_text_prompt('Hello')]
PARAMETERS = ModelRequestParameters()
TEXT = TextPart('one two three')


def retried(model: Model, retries: Retries) -> Model:
    wrapper = retries.get_wrapper_model(model)
    assert wrapper is not None
    return wrapper


async def read(model: Model, before: list[ModelResponseStreamEvent] | None = None) -> ModelResponse:
    """Read a stream to its end and return its response."""
    async with model.request_stream(MESSAGES, None, PARAMETERS) as stream:
        async for event in stream:
            if before is not None:
                before.append(event)
    return stream.get()


def shapes(events: list[ModelResponseStreamEvent]) -> list[str]:
    """Return each event's type and part index."""
    parts = [event for event in events if not isinstance(event, FinalResultEvent)]
    return [f'{type(event).__name__[4:-5]}{event.index}' for event in parts]


async def test_successful_response_is_returned_unchanged_after_one_request(waits: Waits) -> None:
    answer = whole('hello')
    model = FaultyModel(answer, answer)
    assert await retried(model, waits.retries()).request(MESSAGES, None, PARAMETERS) == answer
    streamed = await read(retried(model, waits.retries()))
    assert (streamed.parts, streamed.failed_attempts, streamed.state) == (answer.parts, None, 'complete')
    assert (model.asked, waits.seconds) == (2, [])


async def test_delays_grow_and_stop_at_max_seconds(waits: Waits) -> None:
    model = FaultyModel(*(lost() for _ in range(9)))
    with pytest.raises(ModelAPIError) as caught:
        await retried(model, waits.retries(attempts=9, max_seconds=5)).request(MESSAGES, None, PARAMETERS)
    assert waits.seconds == [0.5, 1, 2]
    assert caught.value.__notes__ == [
        'pydantic-deep: attempt 4 at this request was the last, after: unreadable answer, unreadable answer, '
        'unreadable answer; the next would start in 4.0 s, with 1.5 s of `max_seconds` left.'
    ]


async def test_retry_after_beyond_max_seconds_is_not_retried(waits: Waits) -> None:
    busy = ModelHTTPError.for_category(
        ModelRateLimitError, status_code=429, model_name='m', headers={'Retry-After': '3600'}
    )
    model = FaultyModel(busy)
    with pytest.raises(ModelRateLimitError):
        await read(retried(model, waits.retries()))
    assert (model.asked, waits.seconds) == (1, [])


async def test_each_retry_is_logged_without_contents(waits: Waits, caplog: pytest.LogCaptureFixture) -> None:
    secret = ModelHTTPError.for_category(ModelRateLimitError, status_code=429, model_name='m', body='secret')
    await read(retried(FaultyModel(secret, whole('hello')), waits.retries()))
    assert caplog.record_tuples == [
        (
            'pydantic_deep',
            logging.WARNING,
            'A request to gpt-5.2 failed: rate limited (429). Attempt 2 of 3 follows in 0.5 s.',
        )
    ]


async def test_retried_stream_ends_every_started_part(waits: Waits) -> None:
    events: list[ModelResponseStreamEvent] = []
    model = FaultyModel((cut(TEXT), lost()), cut(TEXT), whole(TEXT))
    response = await read(retried(model, waits.retries()), events)
    one = ['Start0', 'Delta0', 'Delta0', 'End0']
    assert shapes(events) == one * 3
    assert response.text == 'one two three'
    assert (model.open_count, waits.seconds) == (0, [0.5, 1])
    assert [attempt.error for attempt in response.failed_attempts or ()] == [
        'ModelAPIError: unreadable answer',
        'CutAnswerError: the answer was cut',
    ]


async def test_a_part_without_deltas_ends_before_the_stream_is_retried(waits: Waits) -> None:
    events: list[ModelResponseStreamEvent] = []
    image = FilePart(BinaryContent(b'x', media_type='image/png'))
    await read(retried(FaultyModel((cut(image), lost()), whole(TEXT)), waits.retries()), events)
    assert [type(event) for event in events[:3]] == [PartStartEvent, PartEndEvent, PartStartEvent]
    assert isinstance(events[1], PartEndEvent)
    assert events[1].part == image

    events.clear()
    await read(retried(FaultyModel(whole(image)), waits.retries()), events)
    assert shapes(events) == ['Start0']


async def test_part_ends_before_the_next_one_starts(waits: Waits) -> None:
    events: list[ModelResponseStreamEvent] = []
    call = ToolCallPart('ls', {'path': '/'}, tool_call_id='1')
    await read(retried(FaultyModel(whole(TEXT, call)), waits.retries()), events)
    assert [shape for shape in shapes(events) if 'Delta' not in shape] == ['Start0', 'End0', 'Start1', 'End1']


async def test_usage_and_price_of_failed_attempts_are_in_the_response(waits: Waits) -> None:
    response = await read(retried(FaultyModel(cut(TEXT), whole(TEXT)), waits.retries()))
    (attempt,) = response.failed_attempts or []
    assert attempt.usage is not None
    assert (attempt.usage.input_tokens, attempt.usage.output_tokens) == (7, 3)
    assert attempt.usage.cost is not None
    assert attempt.usage.cost > Decimal(0)
    assert (attempt.model_name, attempt.provider_name, attempt.outcome) == ('gpt-5.2', 'openai', 'error')
    assert response.usage.input_tokens == 7


async def test_failed_attempt_without_a_price_records_its_tokens(waits: Waits) -> None:
    half = replace(cut(TEXT), model_name='of-nobody')
    unnamed = replace(cut(TEXT), model_name=None)
    response = await read(retried(FaultyModel(half, unnamed, whole(TEXT)), waits.retries()))
    usages = [attempt.usage for attempt in response.failed_attempts or ()]
    assert [(usage.input_tokens, usage.cost) for usage in usages if usage] == [(7, None), (7, None)]


async def test_suspended_provider_job_is_not_retried(waits: Waits) -> None:
    job = replace(cut(TEXT), state='suspended')
    model = FaultyModel((job, lost()))
    with pytest.raises(ModelAPIError):
        await read(retried(model, waits.retries()))
    assert model.asked == 1
    assert (await read(retried(FaultyModel(job), waits.retries()))).state == 'suspended'


async def test_abandoned_stream_is_closed(waits: Waits) -> None:
    model = FaultyModel(whole(TEXT))
    async with retried(model, waits.retries()).request_stream(MESSAGES, None, PARAMETERS) as stream:
        async for _ in stream:
            break
        assert (model.open_count, stream.get().state) == (1, 'incomplete')
    assert model.open_count == 0
    async with retried(model, waits.retries()).request_stream(MESSAGES, None, PARAMETERS):
        """Not read, so no request is made."""
    assert model.asked == 1


async def test_cancelled_stream_is_not_retried(waits: Waits) -> None:
    model = FaultyModel((cut(TEXT), lost()))
    async with retried(model, waits.retries()).request_stream(MESSAGES, None, PARAMETERS) as stream:
        async for event in stream:
            if isinstance(event, PartDeltaEvent):
                await stream.cancel()
    assert (model.asked, stream.cancelled, stream.get().state) == (1, True, 'interrupted')


async def test_failure_after_close_stream_is_raised_unchanged(waits: Waits) -> None:
    model = FaultyModel((cut(), lost()))
    async with retried(model, waits.retries()).request_stream(MESSAGES, None, PARAMETERS) as stream:
        await stream.close_stream()
        with pytest.raises(ModelAPIError):
            await anext(aiter(stream))
    assert (model.asked, waits.seconds) == (1, [])


async def test_stream_cancelled_during_the_delay_ends(waits: Waits) -> None:
    streams: list[StreamedResponse] = []

    async def stop(seconds: float) -> None:
        await streams[0].cancel()

    model = FaultyModel((cut(TEXT), lost()), whole(TEXT))
    async with retried(model, waits.retries(sleep=stop)).request_stream(MESSAGES, None, PARAMETERS) as stream:
        streams.append(stream)
        async for _ in stream:
            pass
    response = stream.get()
    assert (model.asked, response.state, response.parts) == (1, 'interrupted', [])
    assert len(response.failed_attempts or ()) == 1


async def test_stream_metadata_before_and_after_reading(waits: Waits) -> None:
    model = FaultyModel(whole(TEXT))
    async with retried(model, waits.retries()).request_stream(MESSAGES, None, PARAMETERS) as stream:
        assert (stream.model_name, stream.provider_name, stream.provider_url) == ('gpt-5.2', None, None)
        assert (stream.get().state, stream.usage.input_tokens, stream.time_to_first_chunk(0)) == ('incomplete', 0, None)
        assert stream.get_stream_cancel_errors()
        assert stream.timestamp.tzinfo is not None
        async for _ in stream:
            pass
        assert (stream.provider_name, stream.usage.input_tokens) == ('openai', 7)
        assert stream.timestamp == stream.get().timestamp
        assert stream.provider_url is None
        assert stream.time_to_first_chunk(0) is not None
        assert stream.get_stream_cancel_errors()


def test_retrying_model_is_not_wrapped_twice(waits: Waits) -> None:
    model = retried(FaultyModel(), waits.retries())
    assert waits.retries().get_wrapper_model(model) is None


async def test_each_attempt_tries_all_models_of_a_fallback(waits: Waits) -> None:
    for streamed in (False, True):
        first, second = FaultyModel(lost(), lost()), FaultyModel(lost(), whole(TEXT))
        model = retried(FallbackModel(first, second), waits.retries())
        response = await (read(model) if streamed else model.request(MESSAGES, None, PARAMETERS))
        assert response.text == 'one two three'
        assert (first.asked, second.asked) == (2, 2)
        assert len(response.failed_attempts or ()) == 3


async def test_fallback_error_has_the_usage_of_all_models(waits: Waits) -> None:
    model = retried(FallbackModel(FaultyModel(lost(), lost()), FaultyModel(lost(), lost())), waits.retries(attempts=2))
    with pytest.raises(FallbackExceptionGroup) as caught:
        await model.request(MESSAGES, None, PARAMETERS)
    assert len(caught.value.attempts) == 4


async def test_fallback_model_can_wrap_retrying_models(waits: Waits) -> None:
    for streamed in (False, True):
        first = FaultyModel(lost(), lost())
        second = FaultyModel(lost(), (cut(TEXT), lost()), whole(TEXT)) if streamed else FaultyModel(lost(), whole(TEXT))
        model = FallbackModel(retried(first, waits.retries(attempts=2)), retried(second, waits.retries()))
        response = await (read(model) if streamed else model.request(MESSAGES, None, PARAMETERS))
        assert (response.text, first.asked, second.asked) == ('one two three', 2, 3 if streamed else 2)
        assert len(response.failed_attempts or ()) == second.asked


async def test_suspended_job_in_a_fallback_records_its_model(waits: Waits) -> None:
    job = replace(cut(TEXT), state='suspended')
    response = await read(FallbackModel(retried(FaultyModel(job, system='openai'), waits.retries())))
    assert response.metadata == {'__pydantic_ai__': {'fallback_model_id': 'openai:gpt-5.2'}}


async def test_truncated_answer_raises_when_no_attempt_is_left(waits: Waits) -> None:
    model = FaultyModel(cut(TEXT), cut(TEXT))
    async with retried(model, waits.retries(attempts=2)).request_stream(MESSAGES, None, PARAMETERS) as stream:
        with pytest.raises(CutAnswerError):
            async for _ in stream:
                pass
    response = stream.get()
    assert response.text == 'one two three'
    assert len(response.failed_attempts or ()) == 1
