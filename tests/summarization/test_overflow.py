"""A run continues, or raises a clear error, if a summary fails or a request exceeds the context window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, capture_run_messages
from pydantic_ai.exceptions import ModelContextWindowExceededError, ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters

from pydantic_deep._messages.summary_metadata import find_summary, read_summary, usage_of
from pydantic_deep.retries import Retries
from pydantic_deep.summarization import Messages, Summarization, Tokens
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


def summarization(summarizer: Any = None, **options: Any) -> Summarization:
    return Summarization(trigger=Messages(6), keep=Messages(2), summarizer=summarizer, **options)


def overflow() -> ModelContextWindowExceededError:
    return ModelContextWindowExceededError('m', 'too long')


async def fails(messages: Sequence[ModelMessage]) -> str:
    raise RuntimeError('no ink')


async def hangs(messages: Sequence[ModelMessage]) -> str:
    await anyio.sleep_forever()
    return ''


async def is_silent(messages: Sequence[ModelMessage]) -> str:
    return ' \n'


async def run_in(
    mode: str, agent: Agent[Any, Any], prompt: str = 'go', **options: Any
) -> tuple[str, list[ModelMessage]]:
    """Run an agent with the given method and return its output and history."""
    if mode == 'iter':
        handler = options.pop('event_stream_handler', None)
        async with agent.iter(prompt, **options) as run:
            async for node in run:
                if handler is not None and Agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as stream:
                        await handler(None, stream)
        assert run.result is not None
        return run.result.output, run.result.all_messages()
    if mode == 'run_stream':
        async with agent.run_stream(prompt, **options) as streamed:
            return await streamed.get_output(), streamed.all_messages()
    result = await agent.run(prompt, **options)
    return result.output, result.all_messages()


MODES = ('run', 'run_stream', 'iter')
FAILURES = {
    'raises': (fails, 'RuntimeError: no ink'),
    'hangs': (hangs, 'TimeoutError'),
    'says nothing': (is_silent, 'NoSummaryError: The function returned an empty text.'),
    'http error': (ScriptedModel(then=lambda m, i: _raise(ModelHTTPError(500, 'm'))), 'ModelHTTPError: status_code'),
    'calls a tool': (
        ScriptedModel(then=lambda m, i: call('work')),
        'NoSummaryError: scripted answered with tool-call',
    ),
    'answers nothing': (
        ScriptedModel(then=lambda m, i: ModelResponse(parts=[])),
        'NoSummaryError: scripted answered with nothing instead of text.',
    ),
    'a name of nobody': ('nobody:nothing', 'UserError: '),
}


def _raise(error: Exception) -> str:
    raise error


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('failure', FAILURES)
async def test_run_continues_with_a_plain_summary_after_a_failure(
    agent_of: Callable[..., Agent[Any, Any]], watch: Any, failure: str, mode: str
) -> None:
    summarizer, told = FAILURES[failure]
    model = ScriptedModel(*(call('work', n=n) for n in range(3)), 'done')
    options = {'timeout_seconds': 0.01} if failure == 'hangs' else {}  # the others fail before the timeout
    agent = agent_of(model, summarization(summarizer, **options))
    output, messages = await run_in(mode, agent, event_stream_handler=watch)
    assert output == 'done'
    (event,) = watch.events
    assert event.is_plain
    assert event.error is not None
    assert event.error.startswith(told)
    summary = find_summary(messages)
    assert summary is not None
    assert summary.content == (
        'The user asked first:\ngo\n\nNo summary could be made of these 5 messages. search_history finds what they say.'
    )
    assert read_summary(summary).is_plain


async def test_usage_of_an_unusable_summary_response_counts(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    model = ScriptedModel(*(call('work', n=n) for n in range(3)), call('work'), 'done')
    result = await agent_of(model, summarization()).run('go')
    assert result.output == 'done'
    assert usage_of(result.all_messages()).requests == result.usage.requests == 5


async def test_earlier_summary_is_retained_if_the_summarizer_fails_later(
    agent_of: Callable[..., Agent[Any, Any]], watch: Any
) -> None:
    written = ['Facts: the door is green.']

    async def sometimes(messages: Sequence[ModelMessage]) -> str:
        return written.pop()

    model = ScriptedModel(*(call('work', n=n) for n in range(12)), 'done')
    result = await agent_of(model, summarization(sometimes)).run('go', event_stream_handler=watch)
    assert [event.is_plain for event in watch.events][:3] == [False, True, True]
    summary = find_summary(result.all_messages())
    assert summary is not None
    assert summary.content is not None
    assert summary.content.count('Facts: the door is green.') == 1
    assert summary.content.count('No summary could be made') == 1


@pytest.mark.parametrize('mode', MODES)
async def test_run_cancelled_during_a_summary_keeps_its_history(
    agent_of: Callable[..., Agent[Any, Any]], mode: str
) -> None:
    reached = anyio.Event()

    async def waits(messages: Sequence[ModelMessage]) -> str:
        reached.set()
        await anyio.sleep_forever()
        return ''

    model = ScriptedModel(*(call('work', n=n) for n in range(3)), 'done')
    agent = agent_of(model, summarization(waits))
    with capture_run_messages() as captured:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in, mode, agent)
            await reached.wait()
            tasks.cancel_scope.cancel()
    assert find_summary(captured) is None
    assert [message.kind for message in captured][:6] == ['request', 'response'] * 3
    model.requests.clear()
    written = ScriptedModel('Facts: none.')
    resumed = agent_of(ScriptedModel('done'), summarization(written))
    assert (await resumed.run(message_history=captured)).output == 'done'
    assert len(written.requests) == 1


# ------------------------------------------------------------------------------------------------------------ overflow


async def plain(messages: Sequence[ModelMessage]) -> str:
    return 'Facts: some.'


HISTORY: list[ModelMessage] = [
    message
    for n in range(6)
    for message in (
        ModelRequest(parts=[UserPromptPart(f'question {n} ' + 'x' * 200)]),
        ModelResponse(parts=[TextPart(f'answer {n}')], model_name='m'),
    )
]


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('order', ['alone', 'retries first', 'retries last'])
async def test_oversized_request_is_retried_once_after_a_cut(
    agent_of: Callable[..., Agent[Any, Any]], watch: Any, mode: str, order: str
) -> None:
    model = ScriptedModel(overflow(), 'done')
    capabilities: list[Any] = [Summarization(trigger=(), keep=Messages(2), summarizer=plain)]
    if order != 'alone':
        capabilities.insert(0 if order == 'retries first' else 1, Retries())
    agent = agent_of(model, *capabilities)
    output, messages = await run_in(mode, agent, message_history=HISTORY, event_stream_handler=watch)
    assert output == 'done'
    first, second = model.requests
    assert len(first.messages) == 13
    assert len(second.messages) < 9
    assert find_summary(second.messages) is not None
    assert find_summary(messages) is not None
    assert [event.reason for event in watch.events] == ['overflow']


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('order', ['alone', 'retries first', 'retries last'])
async def test_request_that_is_still_too_long_after_a_cut_fails(
    agent_of: Callable[..., Agent[Any, Any]], mode: str, order: str
) -> None:
    model = ScriptedModel(overflow(), overflow(), 'never')
    capabilities: list[Any] = [Summarization(trigger=(), keep=Messages(2), summarizer=plain)]
    if order != 'alone':
        capabilities.insert(0 if order == 'retries first' else 1, Retries())
    with pytest.raises(ModelContextWindowExceededError):
        await run_in(mode, agent_of(model, *capabilities), message_history=HISTORY)
    assert len(model.requests) == 2


@pytest.mark.parametrize('mode', MODES)
async def test_overflow_of_a_history_that_cannot_be_cut_is_raised(
    agent_of: Callable[..., Agent[Any, Any]], mode: str
) -> None:
    model = ScriptedModel(overflow(), 'never')
    with pytest.raises(ModelContextWindowExceededError):
        await run_in(mode, agent_of(model, Summarization(summarizer=plain)))
    assert len(model.requests) == 1


async def test_overflow_halves_the_retained_part(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    model = ScriptedModel(overflow(), 'done')
    agent = agent_of(model, Summarization(trigger=(), keep=Tokens(100_000), summarizer=plain))
    await agent.run('go', message_history=HISTORY)
    assert 5 <= len(model.requests[1].messages) <= 8


async def test_model_that_overflowed_receives_a_transcript_in_sections(
    agent_of: Callable[..., Agent[Any, Any]], watch: Any
) -> None:
    model = ScriptedModel(overflow(), overflow(), 'Facts: some.', 'done')
    agent = agent_of(model, Summarization(trigger=(), keep=Messages(2)))
    result = await agent.run('go', message_history=HISTORY, event_stream_handler=watch)
    assert result.output == 'done'
    assert [event.is_plain for event in watch.events] == [False]


async def test_history_after_an_overflow_is_complete_and_can_be_continued(
    agent_of: Callable[..., Agent[Any, Any]],
) -> None:
    model = ScriptedModel(overflow(), call('work'), 'done', 'again')
    agent = agent_of(model, Summarization(trigger=(), keep=Messages(2), summarizer=plain))
    result = await agent.run('go', message_history=HISTORY)
    assert [message.kind for message in result.new_messages()] == ['request', 'response'] * 2
    assert result.new_messages() == result.all_messages()[-4:]
    again = await agent.run('and?', message_history=result.all_messages())
    assert again.output == 'again'
    assert len(model.requests) == 4


async def test_other_errors_are_raised_unchanged(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    model = ScriptedModel(ModelHTTPError(400, 'm'), 'never')
    with pytest.raises(ModelHTTPError):
        await agent_of(model, Summarization()).run('go', message_history=HISTORY)
    assert len(model.requests) == 1


async def test_overflow_outside_a_run_is_raised_unchanged() -> None:
    model = Summarization().get_wrapper_model(ScriptedModel(overflow(), 'never'))
    assert model is not None
    with pytest.raises(ModelContextWindowExceededError):
        await model.request(list(HISTORY), None, ModelRequestParameters())
