"""Streaming any agent without a store: 004-17 to 004-23, 004-33."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.exceptions import ModelConnectionError, UserError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import UsageLimits

from pydantic_deep import create_deep_agent
from pydantic_deep.approvals import Approve, answer_approvals
from pydantic_deep.retries import Retries
from pydantic_deep.streaming import (
    AgentStream,
    EndEvent,
    ErrorEvent,
    OpenaiEncoder,
    RetriedEvent,
    StartEvent,
    StreamEvent,
    TextEvent,
    UsageEvent,
    current_session_id,
    session_scope,
    stream_agent,
)
from pydantic_deep.testing import ScriptedModel, call, deps_for_test

pytestmark = pytest.mark.anyio

TENANT: ContextVar[str] = ContextVar('tenant', default='nobody')


async def read(stream: AgentStream[Any]) -> list[StreamEvent]:
    async with stream:
        return [event async for event in stream]


def error_of(events: list[StreamEvent]) -> ErrorEvent:
    [error] = [event for event in events if isinstance(event, ErrorEvent)]
    return error


def looping() -> tuple[Agent[None, str], ScriptedModel]:
    """Return an agent that calls a tool forever, and its model."""
    model = ScriptedModel(then=lambda messages, info: call('look'))
    agent = Agent(model)

    @agent.tool_plain
    def look() -> str:
        return 'nothing'

    return agent, model


async def test_any_agent_can_be_streamed() -> None:
    """004-18: the request has the prompt, the history and the instructions; 004-23: the answer is returned."""
    model = ScriptedModel('Hello there')
    stream = stream_agent(
        Agent(model, instructions='Be kind.'),
        'Hi',
        message_history=[ModelRequest(parts=[UserPromptPart('Before')]), ModelResponse(parts=[TextPart('Yes')])],
        model_settings={'temperature': 0.5},
    )
    events = await read(stream)
    assert [event.type for event in events] == ['start', 'text', 'text', 'usage', 'end']
    assert (stream.content, stream.result.output, stream.tool_calls) == ('Hello there', 'Hello there', [])
    [request] = model.requests
    assert (request.instructions, request.settings) == ('Be kind.', {'temperature': 0.5})
    parts = [part for message in request.messages for part in message.parts]
    assert [part.content for part in parts if isinstance(part, (UserPromptPart, TextPart))] == ['Before', 'Yes', 'Hi']


async def test_loop_continues_until_no_calls_are_left() -> None:
    """004-22: each call runs and its result is returned to the model."""
    agent = create_deep_agent(ScriptedModel(['Look.', call('ls')], call('ls', path='/'), 'Done'))
    stream = stream_agent(agent, 'Go', deps=deps_for_test())
    events = await read(stream)
    assert [event.id for event in stream.tool_calls] == ['call-1', 'call-2']
    assert stream.content == 'Look.Done'
    assert [event for event in events if isinstance(event, UsageEvent)][-1].requests == 3


async def test_conversation_of_the_history_is_continued() -> None:
    agent = Agent(ScriptedModel('One', 'Two'), name='clerk')
    first = await agent.run('Hi')
    events = await read(stream_agent(agent, 'Again', message_history=first.all_messages()))
    start = events[0]
    assert isinstance(start, StartEvent)
    assert (start.conversation_id, start.model) == (first.conversation_id, 'clerk')
    assert start.id


async def test_number_of_requests_is_limited_by_max_iterations() -> None:
    """004-19: at most `max_iterations` requests; exceeding it is reported as an error."""
    agent, model = looping()
    stream = stream_agent(agent, 'Go', max_iterations=3)
    events = await read(stream)
    assert len(model.requests) == 3
    assert error_of(events).kind == 'limit_exceeded'
    assert events[-1] == EndEvent(
        finish_reason='error',
        status='failed',
        usage=UsageEvent(input_tokens=300, output_tokens=30, requests=3, tool_calls=3),
    )
    with pytest.raises(RuntimeError, match='has no result'):
        _ = stream.result


@pytest.mark.parametrize(
    ('limits', 'most', 'made'),
    [
        (UsageLimits(request_limit=2), 5, 2),
        (UsageLimits(request_limit=9), 5, 5),
        (UsageLimits(request_limit=None), 4, 4),
        (UsageLimits(request_limit=1), None, 1),
    ],
)
async def test_lower_of_both_request_limits_applies(limits: UsageLimits, most: int | None, made: int) -> None:
    agent, model = looping()
    await read(stream_agent(agent, 'Go', usage_limits=limits, max_iterations=most))
    assert len(model.requests) == made


async def test_max_iterations_may_exceed_the_default_request_limit() -> None:
    agent, model = looping()
    await read(stream_agent(agent, 'Go', max_iterations=60))
    assert len(model.requests) == 60


async def test_usage_limits_of_deps_limit_a_stream() -> None:
    model = ScriptedModel(then=lambda messages, info: call('ls'))
    deps = deps_for_test(usage_limits=UsageLimits(request_limit=2))
    await read(stream_agent(create_deep_agent(model), 'Go', deps=deps))
    assert len(model.requests) == 2


@pytest.mark.parametrize('most', [0, -1])
async def test_max_iterations_must_be_at_least_one(most: int) -> None:
    with pytest.raises(ValueError, match='Pass 1 or more'):
        stream_agent(Agent(ScriptedModel()), 'Go', max_iterations=most)


async def test_agent_that_cannot_start_reports_the_error() -> None:
    """An error before the first event is emitted instead of raised."""
    events = await read(stream_agent(Agent(), 'Go'))
    assert [event.type for event in events] == ['start', 'error', 'end']
    assert error_of(events).kind == 'run_failed'


async def test_leaving_the_stream_early_stops_the_run() -> None:
    reached, stopped = asyncio.Event(), asyncio.Event()

    async def hang(messages: object, info: object) -> str:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ''

    agent = Agent(ScriptedModel(['Look.', call('look')], then=hang))

    @agent.tool_plain
    def look() -> str:
        return 'nothing'

    async with stream_agent(agent, 'Go') as stream:
        async for event in stream:
            if event.type == 'tool_result':
                break
        await reached.wait()
    assert stopped.is_set()


async def test_unread_stream_starts_no_run() -> None:
    model = ScriptedModel('Hello')
    async with stream_agent(Agent(model), 'Go'):
        pass
    assert model.requests == []


async def test_stream_can_be_read_only_once() -> None:
    stream = stream_agent(Agent(ScriptedModel('Hello')), 'Go')
    await read(stream)
    with pytest.raises(RuntimeError, match='already'):
        stream.iter_lines()


async def test_iter_lines_yields_the_events_of_the_run() -> None:
    """C25: `iter_lines()` stays, over run events."""
    async with stream_agent(Agent(ScriptedModel('Hello')), 'Go') as stream:
        lines = [line async for line in stream.iter_lines()]
    assert [line.split('\n')[0] for line in lines] == ['event: start', 'event: text', 'event: usage', 'event: end']
    assert stream.content == 'Hello'


async def test_iter_lines_uses_the_format_of_the_encoder() -> None:
    async with stream_agent(Agent(ScriptedModel('Hello')), 'Go') as stream:
        lines = [line async for line in stream.iter_lines(encoder=OpenaiEncoder())]
    assert lines[-1] == 'data: [DONE]\n\n'


async def test_leaving_iter_lines_early_stops_the_run() -> None:
    model = ScriptedModel(call('ls'), 'Done')
    async with stream_agent(create_deep_agent(model), 'Go', deps=deps_for_test()) as stream:
        async for _ in stream.iter_lines():
            break
    assert len(model.requests) <= 1


async def test_closing_iter_lines_stops_the_run() -> None:
    """As a response does that only received the lines."""
    reached, stopped = asyncio.Event(), asyncio.Event()
    agent = Agent(ScriptedModel(['Look.', call('look')]))

    @agent.tool_plain
    async def look() -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    lines = stream_agent(agent, 'Go').iter_lines()

    async def read_on() -> None:
        async for _ in lines:
            pass

    reading = asyncio.create_task(read_on())
    await reached.wait()
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading
    await lines.aclose()
    assert stopped.is_set()


async def test_suspended_run_is_resumed_with_answers() -> None:
    agent = create_deep_agent(
        ScriptedModel(call('write_file', path='/a', content='x'), 'Written'), interrupt_on={'write_file': True}
    )
    deps = deps_for_test()
    first = stream_agent(agent, 'Go', deps=deps)
    await read(first)
    output = first.result.output
    assert isinstance(output, DeferredToolRequests)
    second = stream_agent(
        agent,
        deps=deps,
        message_history=first.result.all_messages(),
        deferred_tool_results=answer_approvals(output, {'call-1': Approve()}),
    )
    events = await read(second)
    assert second.content == 'Written'
    assert 'file' in [event.type for event in events]


async def test_void_text_is_not_part_of_the_content() -> None:
    attempts: list[int] = []

    async def answer(messages: object, info: object) -> AsyncGenerator[str]:
        attempts.append(1)
        yield 'Hello '
        if len(attempts) == 1:
            raise ModelConnectionError('m', 'The line broke.')
        yield 'there'

    async def no_sleep(seconds: float) -> None:
        pass

    agent = Agent(FunctionModel(stream_function=answer), capabilities=[Retries(sleep=no_sleep)])
    stream = stream_agent(agent, 'Go')
    events = await read(stream)
    assert [event.void_text for event in events if isinstance(event, RetriedEvent)] == ['Hello ']
    assert (stream.content, stream.result.output) == ('Hello there', 'Hello there')


async def test_session_id_reaches_events_and_tools_at_any_depth() -> None:
    """004-33: `session_id` and context propagate."""
    seen: list[tuple[str | None, str]] = []
    agent = create_deep_agent(
        ScriptedModel(call('note'), call('task', subagent='general-purpose', description='x'), call('note'), 'a', 'b')
    )

    @agent.tool
    def note(ctx: RunContext[Any]) -> str:
        seen.append((current_session_id(), TENANT.get()))
        return 'noted'

    TENANT.set('acme')
    events = await read(stream_agent(agent, 'Go', deps=deps_for_test(), session_id='s-1'))
    start = events[0]
    assert isinstance(start, StartEvent)
    assert start.session_id == 's-1'
    assert seen == [('s-1', 'acme'), ('s-1', 'acme')]
    assert current_session_id() is None


async def test_session_id_defaults_to_that_of_the_caller() -> None:
    seen: list[str | None] = []
    agent = Agent(ScriptedModel(call('note'), 'Done'))

    @agent.tool_plain
    def note() -> str:
        seen.append(current_session_id())
        return 'noted'

    with session_scope('outer'):
        await read(stream_agent(agent, 'Go'))
    assert seen == ['outer']


async def test_concurrent_streams_have_their_own_session_ids() -> None:
    seen: set[tuple[str, str | None]] = set()

    async def one(name: str) -> None:
        agent = Agent(ScriptedModel(call('note'), 'Done'))

        @agent.tool_plain
        def note() -> str:
            seen.add((name, current_session_id()))
            return 'noted'

        await read(stream_agent(agent, 'Go', session_id=name))

    await asyncio.gather(one('a'), one('b'))
    assert seen == {('a', 'a'), ('b', 'b')}


async def test_failing_tool_ends_the_stream_with_an_error() -> None:
    agent = Agent(ScriptedModel(call('look')))

    @agent.tool_plain
    def look() -> str:
        raise UserError('Not configured.')

    events = await read(stream_agent(agent, 'Go'))
    assert error_of(events) == ErrorEvent(kind='run_failed', message='Not configured.', status=500)
    assert [event for event in events if isinstance(event, TextEvent)] == []
