"""A proxy between the agents and the model: the same settings and the same limit for all, and a record of each request.

Each run has a URL of its own, so that runs can share the proxy. The proxy counts what the model received and returned,
subagents and summaries included, whichever framework sent it; a run that is stopped keeps its record. Agents do not
see the key of the provider.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from .trace import Message, Step, trace_of

UNAVAILABLE = frozenset((401, 402, 403, 404, 408, 429, 502, 503, 504))
"""The statuses that say nothing about the agent: a wrong key, URL or model, a limit, or a server that is down."""


@dataclass(kw_only=True)
class Journal:
    """The requests of one run."""

    request_limit: int
    """Number of requests that reach the model. Further ones are refused."""
    settings: Mapping[str, Any]
    """Fields that replace those of each request; a field whose value is `None` is removed."""
    exchanges: list[tuple[list[Message], Message, Mapping[str, Any]]] = field(default_factory=list[Any])
    """The messages, the reply and the usage of each request that the model answered."""
    errors: list[str] = field(default_factory=list[str])
    """The errors of the other requests."""
    sent: int = 0
    """Number of requests that were forwarded, without those that failed: clients repeat these."""
    is_unavailable: bool = False
    """Whether the last request could not reach the model, or has a status of `UNAVAILABLE`."""
    was_limited: bool = False
    """Whether a request was refused because of the limit."""
    is_stopped: bool = False
    """Whether the run was stopped: its requests are refused."""
    connections: set[HTTPConnection] = field(default_factory=set[HTTPConnection])
    """Open connections to the model."""
    lock: Lock = field(default_factory=Lock)
    """Held while a request is admitted, since an agent may send several at once."""

    @property
    def trace(self) -> list[Step]:
        """The steps of the run."""
        return trace_of((messages, reply) for messages, reply, _ in self.exchanges)

    def tokens(self, key: str) -> int:
        """Return the sum of a figure of the usage: `prompt_tokens` or `completion_tokens`."""
        return sum(usage.get(key) or 0 for _, _, usage in self.exchanges)

    def admit(self, connection: HTTPConnection) -> str | None:
        """Count a request; return why it is refused, or `None`."""
        with self.lock:
            if self.is_stopped:
                return 'The run was stopped.'
            if self.sent >= self.request_limit:
                self.was_limited = True
                return f'The limit of {self.request_limit} requests is reached.'
            self.sent += 1
            self.connections.add(connection)
        return None

    def stop(self) -> None:
        """Close open connections, so that the model stops working on requests that nobody waits for."""
        with self.lock:
            self.is_stopped = True
            for connection in list(self.connections):
                if connection.sock is not None:
                    connection.sock.shutdown(socket.SHUT_RDWR)


class Recorder:
    """The journals of the runs at the moment, and the server that writes them."""

    def __init__(self, base_url: str, api_key: str) -> None:
        self.upstream = urlsplit(base_url)
        self.api_key = api_key
        self.journal_by_run: dict[str, Journal] = {}
        self.server = ThreadingHTTPServer(('127.0.0.1', 0), _handler_of(self))

    @contextmanager
    def serve(self) -> Generator[Recorder]:
        """Answer requests until the end of the `with` block."""
        thread = Thread(target=self.server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()

    @contextmanager
    def record(self, run: str, journal: Journal) -> Generator[str]:
        """Yield the base URL of a run whose requests are written to a journal."""
        self.journal_by_run[run] = journal
        try:
            yield f'http://127.0.0.1:{self.server.server_port}/{run}/v1'
        finally:
            journal.stop()
            del self.journal_by_run[run]

    def connect(self) -> HTTPConnection:
        """Return a new connection to the model. It is not open yet."""
        kind = HTTPSConnection if self.upstream.scheme == 'https' else HTTPConnection
        return kind(self.upstream.netloc)

    def send(self, connection: HTTPConnection, path: str, body: Mapping[str, Any]) -> HTTPResponse:
        """Return the model's response to a request for a path below the base URL."""
        headers = {'Content-Type': 'application/json', 'Authorization': f'Bearer {self.api_key}'}
        connection.request('POST', self.upstream.path.rstrip('/') + path, json.dumps(body), headers)
        return connection.getresponse()


def apply_settings(body: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with these fields; a field whose value is `None` is removed."""
    return {key: value for key, value in {**body, **settings}.items() if value is not None}


def _handler_of(recorder: Recorder) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = 'HTTP/1.1'

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
            run, _, path = self.path.removeprefix('/').partition('/v1')
            journal = recorder.journal_by_run.get(run)
            if journal is None:
                self._refuse('The run has ended.')
            elif path != '/chat/completions' or body.get('stream'):
                self._refuse(f'The lab records complete chat completions only, not {path!r} or streams.')
            else:
                self._forward(journal, path, body)

        def _forward(self, journal: Journal, path: str, body: Mapping[str, Any]) -> None:
            connection = recorder.connect()
            refusal = journal.admit(connection)
            if refusal is not None:
                self._refuse(refusal)
                return
            try:
                response = recorder.send(connection, path, apply_settings(body, journal.settings))
                status, content = response.status, response.read()
                journal.is_unavailable = status in UNAVAILABLE
            except (OSError, HTTPException) as error:
                status, content = 400, _error(f'The model cannot be reached: {error}')
                journal.is_unavailable = True
            finally:
                journal.connections.discard(connection)
                connection.close()
            if status == 200:
                reply = json.loads(content)
                journal.exchanges.append((body['messages'], reply['choices'][0]['message'], reply.get('usage') or {}))
            elif not journal.is_stopped:
                with journal.lock:
                    journal.sent -= 1
                journal.errors.append(f'{status}: {content.decode(errors="replace")[:500]}')
            self._answer(status, content)

        def _refuse(self, message: str) -> None:
            self._answer(400, _error(message))  # clients repeat a request after 408, 409, 429 and 5xx, not after 400

        def _answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header('Content-Type', 'application/json')
            self.send_header('Content-Length', str(len(content)))
            self.end_headers()
            with suppress(BrokenPipeError):  # of an agent that was stopped
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: the journal has all requests."""

    return Handler


def _error(message: str) -> bytes:
    return json.dumps({'error': {'message': message, 'type': 'lab', 'param': None, 'code': None}}).encode()
