"""The model that asks again, and its stream, on a model that fails as it is told."""

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
    """Read a stream to its end, and return its response."""
    async with model.request_stream(MESSAGES, None, PARAMETERS) as stream:
        async for event in stream:
            if before is not None:
                before.append(event)
    return stream.get()


def shapes(events: list[ModelResponseStreamEvent]) -> list[str]:
    """Return what the events are, and of which part."""
    parts = [event for event in events if not isinstance(event, FinalResultEvent)]
    return [f'{type(event).__name__[4:-5]}{event.index}' for event in parts]


async def test_a_model_that_does_not_fail_is_asked_once_and_its_answer_is_untouched(waits: Waits) -> None:
    answer = whole('hello')
    model = FaultyModel(answer, answer)
    assert await retried(model, waits.retries()).request(MESSAGES, None, PARAMETERS) == answer
    streamed = await read(retried(model, waits.retries()))
    assert (streamed.parts, streamed.failed_attempts, streamed.state) == (answer.parts, None, 'complete')
    assert (model.asked, waits.seconds) == (2, [])


async def test_waits_grow_and_end_with_max_seconds(waits: Waits) -> None:
    model = FaultyModel(*(lost() for _ in range(9)))
    with pytest.raises(ModelAPIError) as caught:
        await retried(model, waits.retries(attempts=9, max_seconds=5)).request(MESSAGES, None, PARAMETERS)
    assert waits.seconds == [0.5, 1, 2]
    assert caught.value.__notes__ == [
        'pydantic-deep: attempt 4 at this request was the last, after: unreadable answer, unreadable answer, '
        'unreadable answer; the next would start in 4.0 s, with 1.5 s of `max_seconds` left.'
    ]


async def test_who_asks_to_wait_for_longer_than_there_is_time_is_not_asked_again(waits: Waits) -> None:
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


async def test_a_retried_stream_ends_every_started_part(waits: Waits) -> None:
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


async def test_the_end_of_a_part_comes_before_the_next_begins(waits: Waits) -> None:
    events: list[ModelResponseStreamEvent] = []
    call = ToolCallPart('ls', {'path': '/'}, tool_call_id='1')
    await read(retried(FaultyModel(whole(TEXT, call)), waits.retries()), events)
    assert [shape for shape in shapes(events) if 'Delta' not in shape] == ['Start0', 'End0', 'Start1', 'End1']


async def test_what_failed_attempts_were_billed_is_in_the_response_with_its_price(waits: Waits) -> None:
    response = await read(retried(FaultyModel(cut(TEXT), whole(TEXT)), waits.retries()))
    (attempt,) = response.failed_attempts or []
    assert attempt.usage is not None
    assert (attempt.usage.input_tokens, attempt.usage.output_tokens) == (7, 3)
    assert attempt.usage.cost is not None
    assert attempt.usage.cost > Decimal(0)
    assert (attempt.model_name, attempt.provider_name, attempt.outcome) == ('gpt-5.2', 'openai', 'error')
    assert response.usage.input_tokens == 7


async def test_a_model_without_a_price_has_its_tokens_recorded(waits: Waits) -> None:
    half = replace(cut(TEXT), model_name='of-nobody')
    unnamed = replace(cut(TEXT), model_name=None)
    response = await read(retried(FaultyModel(half, unnamed, whole(TEXT)), waits.retries()))
    usages = [attempt.usage for attempt in response.failed_attempts or ()]
    assert [(usage.input_tokens, usage.cost) for usage in usages if usage] == [(7, None), (7, None)]


async def test_a_job_that_continues_at_the_provider_is_not_retried(waits: Waits) -> None:
    job = replace(cut(TEXT), state='suspended')
    model = FaultyModel((job, lost()))
    with pytest.raises(ModelAPIError):
        await read(retried(model, waits.retries()))
    assert model.asked == 1
    assert (await read(retried(FaultyModel(job), waits.retries()))).state == 'suspended'


async def test_a_reader_that_leaves_closes_the_stream(waits: Waits) -> None:
    model = FaultyModel(whole(TEXT))
    async with retried(model, waits.retries()).request_stream(MESSAGES, None, PARAMETERS) as stream:
        async for _ in stream:
            break
        assert (model.open_count, stream.get().state) == (1, 'incomplete')
    assert model.open_count == 0
    async with retried(model, waits.retries()).request_stream(MESSAGES, None, PARAMETERS):
        """Nobody reads it: nothing is asked."""
    assert model.asked == 1


async def test_a_cancelled_stream_is_not_retried(waits: Waits) -> None:
    model = FaultyModel((cut(TEXT), lost()))
    async with retried(model, waits.retries()).request_stream(MESSAGES, None, PARAMETERS) as stream:
        async for event in stream:
            if isinstance(event, PartDeltaEvent):
                await stream.cancel()
    assert (model.asked, stream.cancelled, stream.get().state) == (1, True, 'interrupted')


async def test_a_failure_because_the_user_has_stopped_is_raised_as_it_is(waits: Waits) -> None:
    model = FaultyModel((cut(), lost()))
    async with retried(model, waits.retries()).request_stream(MESSAGES, None, PARAMETERS) as stream:
        await stream.close_stream()
        with pytest.raises(ModelAPIError):
            await anext(aiter(stream))
    assert (model.asked, waits.seconds) == (1, [])


async def test_a_stream_cancelled_during_the_delay_ends(waits: Waits) -> None:
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


async def test_what_a_stream_is_before_it_is_read(waits: Waits) -> None:
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


def test_a_model_that_asks_again_is_not_wrapped_twice(waits: Waits) -> None:
    model = retried(FaultyModel(), waits.retries())
    assert waits.retries().get_wrapper_model(model) is None


async def test_an_attempt_asks_all_models_of_a_fallback(waits: Waits) -> None:
    for streamed in (False, True):
        first, second = FaultyModel(lost(), lost()), FaultyModel(lost(), whole(TEXT))
        model = retried(FallbackModel(first, second), waits.retries())
        response = await (read(model) if streamed else model.request(MESSAGES, None, PARAMETERS))
        assert response.text == 'one two three'
        assert (first.asked, second.asked) == (2, 2)
        assert len(response.failed_attempts or ()) == 3


async def test_the_error_of_a_fallback_has_the_usage_of_all_models(waits: Waits) -> None:
    model = retried(FallbackModel(FaultyModel(lost(), lost()), FaultyModel(lost(), lost())), waits.retries(attempts=2))
    with pytest.raises(FallbackExceptionGroup) as caught:
        await model.request(MESSAGES, None, PARAMETERS)
    assert len(caught.value.attempts) == 4


async def test_a_fallback_may_also_stand_around_a_model_that_asks_again(waits: Waits) -> None:
    for streamed in (False, True):
        first = FaultyModel(lost(), lost())
        second = FaultyModel(lost(), (cut(TEXT), lost()), whole(TEXT)) if streamed else FaultyModel(lost(), whole(TEXT))
        model = FallbackModel(retried(first, waits.retries(attempts=2)), retried(second, waits.retries()))
        response = await (read(model) if streamed else model.request(MESSAGES, None, PARAMETERS))
        assert (response.text, first.asked, second.asked) == ('one two three', 2, 3 if streamed else 2)
        assert len(response.failed_attempts or ()) == second.asked


async def test_a_job_that_a_fallback_is_to_go_on_with_says_by_which_model(waits: Waits) -> None:
    job = replace(cut(TEXT), state='suspended')
    response = await read(FallbackModel(retried(FaultyModel(job, system='openai'), waits.retries())))
    assert response.metadata == {'__pydantic_ai__': {'fallback_model_id': 'openai:gpt-5.2'}}


async def test_a_cut_answer_raises_when_no_attempt_is_left(waits: Waits) -> None:
    model = FaultyModel(cut(TEXT), cut(TEXT))
    async with retried(model, waits.retries(attempts=2)).request_stream(MESSAGES, None, PARAMETERS) as stream:
        with pytest.raises(CutAnswerError):
            async for _ in stream:
                pass
    response = stream.get()
    assert response.text == 'one two three'
    assert len(response.failed_attempts or ()) == 1
