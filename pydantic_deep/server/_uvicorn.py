"""`serve`: run an application in uvicorn, draining running turns before it stops."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import cast

import anyio
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import SqlStore

from ._agents import AnyAgent
from ._app import create_app
from ._settings import ServerSettings
from ._state import ServerState

CONNECTION_SECONDS = 5
"""How long clients may take to read the remaining data when the server stops."""


_START_FAILED = 'lifespan.startup.failed'
"""The type of the message with which an application refuses to start (ASGI lifespan protocol)."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ServerStartError(DeepAgentError):
    """The server failed to start."""

    def __init__(self, reason: str = 'The preceding log messages contain the reason.') -> None:
        super().__init__(f'The server could not start. {reason}')


async def serve(
    agents: Mapping[str, AnyAgent],
    store: SqlStore,
    settings: ServerSettings | None = None,
    *,
    on_start: Callable[[str], object] = print,
) -> None:
    """Serve agents over HTTP until SIGINT or SIGTERM stops the server. Running turns end first.

    Args:
        agents: The agents, by the names that clients use.
        store: The store of their versions, and of the API keys.
        settings: The settings of the server. By default, those of `ServerSettings`.
        on_start: Called with the URL of the server once it accepts requests.

    Raises:
        OSError: The host and port of the settings are not available.
        ServerStartError: The application failed to start.
        InvalidAgentsError: There are no agents, a name is invalid, or a versioned agent has another store.
    """
    settings = settings or ServerSettings()
    app = create_app(agents, store, settings.model_copy(update={'allowed_hosts': _hosts(settings)}))
    family = socket.AF_INET6 if ':' in settings.host else socket.AF_INET
    try:
        opened = socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        address = f'{_url_host(settings.host)}:{settings.port}'
        reason = str(error.strerror).partition(' (while')[0]
        raise OSError(f'The server cannot listen at {address}: {reason}. Set another `host` or `port`.') from None
    with opened as listening:
        port = listening.getsockname()[1]
        url = f'http://{_url_host(settings.host)}:{port}'
        await _UvicornServer(app, settings, on_start=lambda: on_start(url)).serve(sockets=[listening])


def _hosts(settings: ServerSettings) -> tuple[str, ...]:
    """Return the accepted host names, including the address that the server listens on."""
    named = _url_host(settings.host)
    return settings.allowed_hosts if named in settings.allowed_hosts else (*settings.allowed_hosts, named)


def _url_host(host: str) -> str:
    return f'[{host}]' if ':' in host else host


class _WithoutTracebacks:
    """An application without the tracebacks that uvicorn logs for requests that the server cancels, and for errors with
    which a start is expected to fail, such as that of an engine that is down.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.start_error: DeepAgentError | None = None
        """The expected error with which the start has failed."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] == 'lifespan':
            await self._live(scope, receive, send)
            return
        with suppress(asyncio.CancelledError):
            await self._app(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        failures: list[Message] = []

        async def send_unless_failed(message: Message) -> None:
            if message['type'] == _START_FAILED:
                failures.append(message)  # with the traceback of the error that Starlette raises next
            else:
                await send(message)

        try:
            await self._app(scope, receive, send_unless_failed)
        except BaseException as error:
            if failures and isinstance(error, DeepAgentError):
                self.start_error, failures = error, [{'type': _START_FAILED}]
            for message in failures:
                await send(message)
            raise


class _UvicornServer(uvicorn.Server):
    """A server that answers requests while turns are drained, so that clients can read their final events."""

    def __init__(self, app: FastAPI, settings: ServerSettings, *, on_start: Callable[[], object]) -> None:
        self._served = _WithoutTracebacks(app)
        super().__init__(
            uvicorn.Config(
                self._served,
                http='h11',  # uvicorn's alternative, httptools, accepts headers of unlimited length
                access_log=settings.access_log,
                log_level='info' if settings.access_log else 'warning',
                server_header=False,
                proxy_headers=False,  # any local process could claim to be another client
                timeout_graceful_shutdown=CONNECTION_SECONDS,
                lifespan='on',
            )
        )
        self._app = app
        self._on_start = on_start
        self._loop = asyncio.get_running_loop()
        self._drain = anyio.CancelScope()
        self._is_drained = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept requests."""
        with suppress(SystemExit):  # newer versions of uvicorn exit, older ones return without having started
            await super().startup(sockets)
        if not self.started:
            error = self._served.start_error
            raise ServerStartError if error is None else ServerStartError(str(error))
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain running turns, cancel those that take too long, then stop accepting requests."""
        runs = cast('ServerState', self._app.state.server).runs
        with self._drain:
            await runs.drain()
        self._is_drained = True
        await runs.stop()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first signal, cancel running turns on the second, and requests on the next one.

        sse-starlette replaces uvicorn's method, to cut the streams of MCP and A2A on a signal. Here they end as soon as
        their runs have ended, or are not followed any more.
        """
        if not self.should_exit:
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self._hurry)

    def _hurry(self) -> None:
        if not self._is_drained and not self._drain.cancel_called:
            self._drain.cancel()
            return
        for task in self.server_state.tasks:
            task.cancel()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle signals without uvicorn's final re-raise, which would end the process before the store is closed."""
        is_main = threading.current_thread() is threading.main_thread()  # only the main thread can handle signals
        handler = partial(self.handle_exit)  # sse-starlette would find the server by a bound method
        handlers = {number: signal.signal(number, handler) for number in _SIGNALS if is_main}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
