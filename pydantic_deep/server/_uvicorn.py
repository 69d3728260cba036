"""`serve`: uvicorn with an application, which drains running turns before it stops; and agents imported by name."""

from __future__ import annotations

import asyncio
import importlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, cast

import anyio
import uvicorn
from fastapi import FastAPI
from pydantic_ai.agent import AbstractAgent

from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import SqlStore
from pydantic_deep.versions import VersionedAgent

from ._agents import AnyAgent, InvalidAgentsError
from ._app import create_app
from ._settings import ServerSettings
from ._state import ServerState

CONNECTION_SECONDS = 5
"""How long clients may take to read what is left when the server stops."""


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ServerStartError(DeepAgentError):
    """The server failed to start."""

    def __init__(self) -> None:
        super().__init__('The server could not start. What was logged before says why.')


def import_agents(reference: str) -> Mapping[str, AnyAgent]:
    """Return the agents that `package.module:attribute` names, importing from the working directory too.

    Raises:
        InvalidAgentsError: There is no such module or attribute, or it is neither an agent nor a mapping of agents.
    """
    module_name, colon, attribute = reference.partition(':')
    if not (module_name and colon and attribute.isidentifier()):
        raise InvalidAgentsError(f'{reference!r} names no agents. Write `package.module:attribute`.')
    sys.path.insert(0, str(Path.cwd()))  # a program that is installed has not the directory in it
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f'{module_name}.'.startswith(f'{error.name}.'):
            raise
        raise InvalidAgentsError(
            f'There is no module {module_name!r} to take agents from. Run it where the module can be imported.'
        ) from None
    found: object = getattr(module, attribute, None)
    agents = cast('Mapping[object, object]', found) if isinstance(found, Mapping) else {_name_of(found): found}
    if not all(isinstance(each, AbstractAgent | VersionedAgent) for each in agents.values()):
        raise InvalidAgentsError(f'{reference!r} is neither an agent nor a dictionary of agents by name.')
    return cast('Mapping[str, AnyAgent]', agents)


def _name_of(found: object) -> str:
    return (cast('AbstractAgent[Any, Any]', found).name if isinstance(found, AbstractAgent) else None) or 'agent'


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
        settings: The settings of the server; the defaults without them.
        on_start: Called with the URL of the server once it accepts requests.

    Raises:
        OSError: The host and port of the settings are not available.
        ServerStartError: The application failed to start.
        InvalidAgentsError: There are no agents, a name is invalid, or a versioned agent has another store.
    """
    settings = settings or ServerSettings()
    app = create_app(agents, store, settings.model_copy(update={'allowed_hosts': _hosts(settings)}))
    family = socket.AF_INET6 if ':' in settings.host else socket.AF_INET
    with socket.create_server((settings.host, settings.port), family=family) as listening:
        port = listening.getsockname()[1]
        url = f'http://{_url_host(settings.host)}:{port}'
        await _UvicornServer(app, settings, on_start=lambda: on_start(url)).serve(sockets=[listening])


def _hosts(settings: ServerSettings) -> tuple[str, ...]:
    """Return under which names the server may be called: that of the address that it listens on too."""
    named = _url_host(settings.host)
    return settings.allowed_hosts if named in settings.allowed_hosts else (*settings.allowed_hosts, named)


def _url_host(host: str) -> str:
    return f'[{host}]' if ':' in host else host


class _UvicornServer(uvicorn.Server):
    """A server that answers requests while turns are drained, so that clients read their ends."""

    def __init__(self, app: FastAPI, settings: ServerSettings, *, on_start: Callable[[], object]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http='h11',  # uvicorn's other one takes headers of any length, from anybody
                access_log=settings.access_log,
                log_level='info' if settings.access_log else 'warning',
                server_header=False,
                proxy_headers=False,  # whoever is on this machine could say that it is somebody else
                timeout_graceful_shutdown=CONNECTION_SECONDS,
                lifespan='on',
            )
        )
        self._app = app
        self._on_start = on_start
        self._cancel_drain: Callable[[], object] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept requests."""
        with suppress(SystemExit):  # newer ones leave the program, older ones come back without having started
            await super().startup(sockets)
        if not self.started:
            raise ServerStartError
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain running turns, cancel those that take too long, then stop accepting requests."""
        runs = cast('ServerState', self._app.state.server).runs
        with anyio.CancelScope() as drain_scope:
            loop = asyncio.get_running_loop()
            self._cancel_drain = lambda: loop.call_soon_threadsafe(drain_scope.cancel)
            await runs.drain()
        await runs.stop()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first signal, cancel running turns on the second, exit on the third."""
        if self.should_exit and self._cancel_drain is not None:
            self._cancel_drain()
            self._cancel_drain = None
        else:
            super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop by signals; uvicorn would send them again at the end, which ends the process before the store is closed."""
        is_main = threading.current_thread() is threading.main_thread()  # no other may
        before = {each: signal.signal(each, self.handle_exit) for each in _SIGNALS if is_main}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
