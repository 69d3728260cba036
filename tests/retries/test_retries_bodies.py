"""Faults that `llmock` cannot produce, over real HTTP with the real SDKs: a loopback server that sends given bodies.

Streams with invalid events, truncated JSON bodies, and custom headers.
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
    """Loopback server that answers each request with the next given body."""

    url: str
    bodies: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list[tuple[str, dict[str, str], bytes]])
    """Content type, extra headers, and body. A `Content-Length` larger than the body causes a reset."""
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
            """Disable logging."""

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
        'model': 'claude-opus-5-5',
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


async def test_anthropic_stream_without_a_start_event_is_retried(bodies: Bodies, waits: Waits) -> None:
    bodies.bodies = [sse(*CLAUDE_REST), sse(CLAUDE_START, *CLAUDE_REST)]
    turn = await take_turn(anthropic(bodies.url), waits, streamed=True)
    assert (turn.result.output, bodies.asked) == (ANSWER, 2)
    assert [event.reason for event in turn.retried] == ['unreadable answer']


async def test_null_chunk_of_openai_is_retried(bodies: Bodies, waits: Waits) -> None:
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
async def test_incomplete_body_is_retried(
    bodies: Bodies, waits: Waits, body: tuple[str, dict[str, str], bytes], reason: str
) -> None:
    bodies.bodies = [body, as_json(WHOLE_BODY)]
    turn = await take_turn(openai_chat(bodies.url), waits, streamed=False)
    assert (turn.result.output, bodies.asked) == (ANSWER, 2)
    assert [attempt.error for attempt in turn.result.response.failed_attempts or ()] == [
        f'{"ModelAPIError" if reason == "unreadable answer" else "ModelConnectionError"}: {reason}'
    ]


async def test_retry_after_date_is_used(bodies: Bodies, waits: Waits) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=110), usegmt=True)
    bodies.bodies = [as_json(b'{}', status='503', retry_after=date), as_json(WHOLE_BODY)]
    await take_turn(openai_chat(bodies.url), waits, streamed=False)
    assert 20 < waits.seconds[0] <= 110


async def test_server_without_finish_reasons_can_be_excluded(bodies: Bodies, waits: Waits) -> None:
    silent = {**CHAT_ANSWER, 'choices': [{'index': 0, 'finish_reason': None, 'delta': {'content': ANSWER}}]}
    bodies.bodies = [sse(silent)]
    turn = await take_turn(openai_chat(bodies.url), waits, streamed=True, finish_reason_from={'anthropic'})
    assert turn.result.output == ANSWER


async def test_response_without_streaming_needs_no_finish_reason(bodies: Bodies, waits: Waits) -> None:
    message = {'role': 'assistant', 'content': ANSWER}
    silent = {**CHAT_ANSWER, 'choices': [{'index': 0, 'finish_reason': None, 'message': message}]}
    bodies.bodies = [as_json(json.dumps(silent).encode())]
    turn = await take_turn(openai_chat(bodies.url), waits, streamed=False)
    assert turn.result.output == ANSWER


async def test_refused_connection_is_retried(waits: Waits) -> None:
    with socket.socket() as deaf:
        deaf.bind(('127.0.0.1', 0))  # no listener
        model = google(f'http://127.0.0.1:{deaf.getsockname()[1]}')
        with pytest.raises(ModelConnectionError) as caught:
            await take_turn(model, waits, streamed=True)
    assert waits.seconds == [0.5, 1.0]
    assert 'attempt 3' in caught.value.__notes__[0]
