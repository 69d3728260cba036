"""Every fault over real HTTP: the providers' own SDKs in front, a server by other people that breaks its answers.

The server is `llmock`. What it cannot do, a few lines of a server of our own do: a stream whose events are not those of
the protocol, and a body that ends before its JSON does.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from llmock.scenarios import Behavior, Fail, Reply, StreamFault, ToolCall
from llmock.testing import LLMockServer
from pydantic_ai import Agent, models
from pydantic_ai.exceptions import ModelConnectionError, ModelRequestRejectedError, ModelServerError
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelResponse,
    PartEndEvent,
    PartStartEvent,
    ToolReturnPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.run import AgentRunResult, AgentRunResultEvent
from pydantic_ai.settings import ModelSettings

from pydantic_deep.retries import CutAnswerError, ModelRetriedEvent

from .conftest import Waits

pytestmark = pytest.mark.anyio

KEY = 'no-key'
ANSWER = 'It rains in Paris and the sun shines in London, says the weather service today.'
CALL = ToolCall('weather', {'cities': ['Paris', 'London'], 'day': 'today'})


def openai_chat(url: str) -> Model:
    return OpenAIChatModel('gpt-5.2', provider=OpenAIProvider(base_url=url, api_key=KEY))


def openai_responses(url: str) -> Model:
    return OpenAIResponsesModel('gpt-5.2', provider=OpenAIProvider(base_url=url, api_key=KEY))


def anthropic(url: str) -> Model:
    # With room for the longest answer, pydantic-ai asks for a stream even where the run is not streamed.
    settings = ModelSettings(max_tokens=1000)
    return AnthropicModel('claude-opus-4-5', provider=AnthropicProvider(base_url=url, api_key=KEY), settings=settings)


def google(url: str) -> Model:
    return GoogleModel('gemini-2.5-pro', provider=GoogleProvider(base_url=url, api_key=KEY))


WIRES: dict[str, tuple[str, Callable[[str], Model]]] = {
    'openai-chat': ('openai', openai_chat),
    'openai-responses': ('openai', openai_responses),
    'anthropic': ('anthropic', anthropic),
    'google': ('gemini', google),
}
"""What the server calls a provider, and its model."""

each_wire = pytest.mark.parametrize('wire', WIRES)


@pytest.fixture(autouse=True)
def requests_to_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the models of this module ask: every base URL here is one of loopback."""
    monkeypatch.setattr(models, 'ALLOW_MODEL_REQUESTS', True)
    monkeypatch.setenv('GOOGLE_GENAI_API_VERSION', 'v1beta')  # which the server speaks


@pytest.fixture
def server(llmock_server: LLMockServer) -> Iterator[LLMockServer]:
    """The server, with a turn of one call and an answer to play; what else is added breaks it."""
    llmock_server.state.reset()
    yield llmock_server
    llmock_server.state.reset()


@dataclass(kw_only=True)
class Turn:
    """What a turn came to."""

    result: AgentRunResult[str]
    events: list[AgentStreamEvent]
    tool_runs: list[list[str]]

    @property
    def retried(self) -> list[ModelRetriedEvent]:
        return [event for event in self.events if isinstance(event, ModelRetriedEvent)]


async def take_turn(model: Model, waits: Waits, *, streamed: bool, **options: Any) -> Turn:
    """Run a turn of two requests and one call, without the retries of the SDKs."""
    settings = ModelSettings(max_retries=0)
    agent = Agent(model, capabilities=[waits.retries(**options)], model_settings=settings)
    tool_runs: list[list[str]] = []
    events: list[AgentStreamEvent] = []

    @agent.tool_plain
    def weather(cities: list[str], day: str) -> str:
        tool_runs.append(cities)
        return 'rain, sun'

    async with agent:  # entering it closes the SDK's connections at the end
        if not streamed:
            return Turn(result=await agent.run('And the weather?'), events=events, tool_runs=tool_runs)
        results: list[AgentRunResult[str]] = []
        async with agent.run_stream_events('And the weather?') as stream:
            async for event in stream:
                if isinstance(event, AgentRunResultEvent):
                    results.append(event.result)
                else:
                    events.append(event)
    return Turn(result=results[0], events=events, tool_runs=tool_runs)


def play(server: LLMockServer, *faults: Behavior) -> None:
    """Let the server break requests, and then play the turn.

    A reply is used up by the request it was for, also where that is broken in mid-stream: each has one of its own.
    """
    broken = [fault for fault in faults if isinstance(fault, StreamFault)]
    server.state.scenarios.add(*faults, *(Reply(tool_calls=(CALL,)) for _ in broken))
    server.state.scenarios.add(Reply(tool_calls=(CALL,)), Reply(text=ANSWER))


def told(messages: list[ModelMessage]) -> list[list[tuple[str, object]]]:
    """Return a history without what is another one in each run: ids and times."""
    return [
        [(part.part_kind, getattr(part, 'args', None) or getattr(part, 'content', None)) for part in message.parts]
        for message in messages
    ]


def finish_reasons(turn: Turn) -> list[bool]:
    responses = [message for message in turn.result.all_messages() if isinstance(message, ModelResponse)]
    return ['finish_reason' in (response.provider_details or {}) for response in responses]


@pytest.mark.parametrize('streamed', [False, True], ids=['plain', 'streamed'])
@pytest.mark.parametrize('status', [429, 500, 503, 529])
@each_wire
async def test_a_failure_that_passes_leaves_no_trace_in_the_history(
    server: LLMockServer, waits: Waits, wire: str, status: int, streamed: bool
) -> None:
    provider, make = WIRES[wire]
    play(server)
    expected = await take_turn(make(server.base_url(provider)), waits, streamed=streamed)
    play(server, Fail(status, retry_after=11))
    turn = await take_turn(make(server.base_url(provider)), waits, streamed=streamed)

    assert told(turn.result.all_messages()) == told(expected.result.all_messages())
    assert turn.result.output == ANSWER
    assert turn.tool_runs == expected.tool_runs == [['Paris', 'London']]
    assert turn.result.usage.requests == 2
    assert len(server.state.journal.records(wait=2)) == 2 + 3
    assert waits.seconds == [11]
    assert len(turn.retried) == streamed


@pytest.mark.parametrize('fault', ['disconnect', 'truncate', 'malformed'])
@pytest.mark.parametrize('after_chunks', [0, 4])
@each_wire
async def test_a_stream_that_breaks_is_begun_anew_and_its_call_runs_once(
    server: LLMockServer, waits: Waits, wire: str, fault: Any, after_chunks: int
) -> None:
    provider, make = WIRES[wire]
    after = 0 if wire == 'google' else after_chunks  # Google sends a call in one piece
    play(server, StreamFault(fault, after_chunks=after))
    turn = await take_turn(make(server.base_url(provider)), waits, streamed=True)

    assert turn.tool_runs == [['Paris', 'London']]
    assert turn.result.output == ANSWER
    assert finish_reasons(turn) == [True, True]
    assert len(server.state.journal.records(wait=2)) == 3
    assert waits.seconds == [0.5]
    assert len(turn.retried) == 1


@pytest.mark.parametrize('fault', ['disconnect', 'truncate', 'malformed'])
@each_wire
async def test_an_answer_that_breaks_after_text_has_come_is_whole_in_the_end(
    server: LLMockServer, waits: Waits, wire: str, fault: Any
) -> None:
    provider, make = WIRES[wire]
    after = {'openai-chat': 4, 'openai-responses': 8, 'anthropic': 6, 'google': 4}[wire]
    server.state.scenarios.add(Reply(tool_calls=(CALL,)), Reply(text=ANSWER), Reply(text=ANSWER))
    model = make(server.base_url(provider))
    turn = await take_turn(model, waits, streamed=True)
    server.state.reset()
    server.state.scenarios.add(StreamFault(fault, after_chunks=after), Reply(text=ANSWER, times=2))
    turn = await take_turn(make(server.base_url(provider)), waits, streamed=True)

    assert turn.result.output == ANSWER
    assert [event.is_void for event in turn.retried] == [True]
    assert finish_reasons(turn) == [True]
    kinds = [type(event) for event in turn.events]
    at = kinds.index(ModelRetriedEvent)
    # What was begun is ended before the event, and begun anew after it.
    assert kinds[at - 1 : at + 2] == [PartEndEvent, ModelRetriedEvent, PartStartEvent]
    assert [event.index for event in turn.events if isinstance(event, PartStartEvent)] == [0, 0]


@each_wire
async def test_a_request_that_is_rejected_is_made_once(server: LLMockServer, waits: Waits, wire: str) -> None:
    provider, make = WIRES[wire]
    play(server, Fail(400))
    with pytest.raises(ModelRequestRejectedError):
        await take_turn(make(server.base_url(provider)), waits, streamed=True)
    assert len(server.state.journal.records(wait=2)) == 1


@pytest.mark.parametrize('streamed', [False, True], ids=['plain', 'streamed'])
@each_wire
async def test_the_last_error_is_raised_when_no_attempt_is_left(
    server: LLMockServer, waits: Waits, wire: str, streamed: bool
) -> None:
    provider, make = WIRES[wire]
    server.state.scenarios.add(Fail(500, times=None))
    with pytest.raises(ModelServerError) as caught:
        await take_turn(make(server.base_url(provider)), waits, streamed=streamed)
    assert len(server.state.journal.records(wait=2)) == 3
    assert caught.value.__notes__ == [
        'pydantic-deep: attempt 3 at this request was the last, after: server error (500), server error (500); '
        '`attempts` is 3.'
    ]


@each_wire
async def test_an_answer_that_is_always_cut_is_no_answer(server: LLMockServer, waits: Waits, wire: str) -> None:
    provider, make = WIRES[wire]
    after = {'openai-chat': 4, 'openai-responses': 8, 'anthropic': 6, 'google': 4}[wire]
    server.state.scenarios.add(StreamFault('truncate', after_chunks=after, times=None), Reply(text=ANSWER, times=None))
    with pytest.raises(CutAnswerError, match='without a finish reason'):
        await take_turn(make(server.base_url(provider)), waits, streamed=True)
    assert len(server.state.journal.records(wait=2)) == 3


async def test_anthropic_is_streamed_behind_a_run_that_is_not(server: LLMockServer, waits: Waits) -> None:
    url = server.base_url('anthropic')
    settings = ModelSettings(max_tokens=64_000)  # for which the SDK requires a stream
    model = AnthropicModel('claude-opus-4-5', provider=AnthropicProvider(base_url=url, api_key=KEY), settings=settings)
    server.state.scenarios.add(StreamFault('truncate', after_chunks=6), Reply(text=ANSWER, times=2))
    turn = await take_turn(model, waits, streamed=False)

    assert [request.stream for request in server.state.journal.records(wait=2)] == [True, True]
    assert turn.result.output == ANSWER
    assert [attempt.error for attempt in turn.result.response.failed_attempts or ()] == [
        'CutAnswerError: the answer was cut'
    ]


async def test_the_sdk_of_openai_tries_three_times_within_each_attempt(server: LLMockServer, waits: Waits) -> None:
    server.state.scenarios.add(Fail(500, retry_after=0.001, times=None))
    agent = Agent(openai_chat(server.base_url('openai')), capabilities=[waits.retries(attempts=2)])
    with pytest.raises(ModelServerError):
        async with agent:
            await agent.run('Hello')
    assert len(server.state.journal.records(wait=2)) == 2 * 3


@dataclass(kw_only=True)
class Bodies:
    """A server on loopback that answers with bodies as they are given, one a request."""

    url: str
    bodies: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list[tuple[str, dict[str, str], bytes]])
    """Content type, further headers, and what is sent; a length in the headers that is not reached is a reset."""
    asked: int = 0


@pytest.fixture
def bodies() -> Iterator[Bodies]:
    served = Bodies(url='')

    class Handler(BaseHTTPRequestHandler):
        protocol_version = 'HTTP/1.1'

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers['content-length']))
            content_type, headers, body = served.bodies[served.asked]
            served.asked += 1
            self.send_response(int(headers.get('status', 200)))
            self.send_header('content-type', content_type)
            for name, value in ({'content-length': str(len(body)), 'connection': 'close'} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(('127.0.0.1', 0), Handler) as http_server:
        served.url = f'http://127.0.0.1:{http_server.server_port}'
        thread = threading.Thread(target=http_server.serve_forever, args=(0.01,))
        thread.start()
        yield served
        http_server.shutdown()
        thread.join()


CHAT_ANSWER = {
    'id': 'x',
    'object': 'chat.completion',
    'created': 1,
    'model': 'gpt-5.2',
    'choices': [{'index': 0, 'finish_reason': 'stop', 'message': {'role': 'assistant', 'content': ANSWER}}],
}
CHAT_CHUNK = {**CHAT_ANSWER, 'choices': [{'index': 0, 'finish_reason': 'stop', 'delta': {'content': ANSWER}}]}
CLAUDE_START: dict[str, Any] = {
    'type': 'message_start',
    'message': {
        'id': 'x',
        'type': 'message',
        'role': 'assistant',
        'content': [],
        'model': 'claude-opus-4-5',
        'usage': {'input_tokens': 1, 'output_tokens': 1},
    },
}
CLAUDE_REST = [
    {'type': 'content_block_start', 'index': 0, 'content_block': {'type': 'text', 'text': ANSWER}},
    {'type': 'content_block_stop', 'index': 0},
    {'type': 'message_delta', 'delta': {'stop_reason': 'end_turn'}, 'usage': {'output_tokens': 9}},
    {'type': 'message_stop'},
]


def sse(*events: dict[str, Any] | None) -> tuple[str, dict[str, str], bytes]:
    lines = [f'event: {event["type"]}\n' if event and 'type' in event else '' for event in events]
    data = [f'{line}data: {json.dumps(event)}\n\n' for line, event in zip(lines, events, strict=True)]
    return 'text/event-stream', {}, ''.join(data).encode()


def as_json(body: bytes, **headers: str) -> tuple[str, dict[str, str], bytes]:
    return 'application/json', {name.replace('_', '-'): value for name, value in headers.items()}, body


async def test_a_stream_of_anthropic_that_does_not_begin_is_begun_anew(bodies: Bodies, waits: Waits) -> None:
    bodies.bodies = [sse(*CLAUDE_REST), sse(CLAUDE_START, *CLAUDE_REST)]
    turn = await take_turn(anthropic(bodies.url), waits, streamed=True)
    assert (turn.result.output, bodies.asked) == (ANSWER, 2)
    assert [event.reason for event in turn.retried] == ['unreadable answer']


async def test_a_chunk_of_openai_that_is_null_is_no_answer(bodies: Bodies, waits: Waits) -> None:
    bodies.bodies = [sse(CHAT_CHUNK, None), sse(CHAT_CHUNK)]
    turn = await take_turn(openai_chat(bodies.url), waits, streamed=True)
    assert (turn.result.output, bodies.asked) == (ANSWER, 2)


WHOLE_BODY = json.dumps(CHAT_ANSWER).encode()


@pytest.mark.parametrize(
    ('body', 'reason'),
    [
        (as_json(WHOLE_BODY[:-20]), 'unreadable answer'),
        (as_json(WHOLE_BODY[:-20], content_length=str(len(WHOLE_BODY))), 'connection lost'),
        (as_json(b'', content_length='100'), 'connection lost'),
    ],
    ids=['JSON that ends early', 'a connection lost within JSON', 'a connection lost before it'],
)
async def test_a_body_that_is_not_whole_is_asked_for_again(
    bodies: Bodies, waits: Waits, body: tuple[str, dict[str, str], bytes], reason: str
) -> None:
    bodies.bodies = [body, as_json(WHOLE_BODY)]
    turn = await take_turn(openai_chat(bodies.url), waits, streamed=False)
    assert (turn.result.output, bodies.asked) == (ANSWER, 2)
    assert [attempt.error for attempt in turn.result.response.failed_attempts or ()] == [
        f'{"ModelAPIError" if reason == "unreadable answer" else "ModelConnectionError"}: {reason}'
    ]


async def test_a_date_says_how_long_to_wait_too(bodies: Bodies, waits: Waits) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    bodies.bodies = [as_json(b'{}', status='503', retry_after=date), as_json(WHOLE_BODY)]
    await take_turn(openai_chat(bodies.url), waits, streamed=False)
    assert 20 < waits.seconds[0] <= 30


async def test_a_server_that_never_says_why_it_finished_is_left_out(bodies: Bodies, waits: Waits) -> None:
    silent = {**CHAT_ANSWER, 'choices': [{'index': 0, 'finish_reason': None, 'delta': {'content': ANSWER}}]}
    bodies.bodies = [sse(silent)]
    turn = await take_turn(openai_chat(bodies.url), waits, streamed=True, finish_reason_from={'anthropic'})
    assert turn.result.output == ANSWER


async def test_an_answer_that_is_not_streamed_needs_no_finish_reason(bodies: Bodies, waits: Waits) -> None:
    message = {'role': 'assistant', 'content': ANSWER}
    silent = {**CHAT_ANSWER, 'choices': [{'index': 0, 'finish_reason': None, 'message': message}]}
    bodies.bodies = [as_json(json.dumps(silent).encode())]
    turn = await take_turn(openai_chat(bodies.url), waits, streamed=False)
    assert turn.result.output == ANSWER


async def test_a_refused_connection_is_tried_again(waits: Waits) -> None:
    with pytest.raises(ModelConnectionError) as caught:
        await take_turn(google('http://127.0.0.1:9'), waits, streamed=True)
    assert waits.seconds == [0.5, 1.0]
    assert 'attempt 3' in caught.value.__notes__[0]


async def test_the_tool_has_run_once_in_the_history_too(server: LLMockServer, waits: Waits) -> None:
    play(server, StreamFault('truncate', after_chunks=4))
    turn = await take_turn(openai_chat(server.base_url('openai')), waits, streamed=True)
    parts = [part for message in turn.result.all_messages() for part in message.parts]
    assert [part.content for part in parts if isinstance(part, ToolReturnPart)] == ['rain, sun']
