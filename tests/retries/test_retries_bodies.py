"""What `llmock` cannot do, over real HTTP with the real SDKs: a server on loopback that sends the bodies it is given.

Streams whose events are not those of the protocol, bodies that end before their JSON does, and headers of its own.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelConnectionError

from .conftest import ANSWER, Waits, anthropic, google, openai_chat, take_turn

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures('loopback')]


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


async def test_an_anthropic_stream_without_a_start_is_retried(bodies: Bodies, waits: Waits) -> None:
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
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=110), usegmt=True)
    bodies.bodies = [as_json(b'{}', status='503', retry_after=date), as_json(WHOLE_BODY)]
    await take_turn(openai_chat(bodies.url), waits, streamed=False)
    assert 20 < waits.seconds[0] <= 110


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
    with socket.socket() as deaf:
        deaf.bind(('127.0.0.1', 0))  # and nobody listens
        model = google(f'http://127.0.0.1:{deaf.getsockname()[1]}')
        with pytest.raises(ModelConnectionError) as caught:
            await take_turn(model, waits, streamed=True)
    assert waits.seconds == [0.5, 1.0]
    assert 'attempt 3' in caught.value.__notes__[0]
