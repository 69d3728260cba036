"""Fixtures of an application with an echoing agent, a store in memory, and clients with separate keys."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent, KeyScope, ServerSettings, create_api_key, create_app
from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._identity import caller_with_key
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import install_error_handlers
from pydantic_deep.store import SqlStore, open_store
from pydantic_deep.streaming import Frame, FrameReader
from pydantic_deep.testing import ScriptedModel

BASE_URL = 'http://localhost'

Client: TypeAlias = httpx.AsyncClient
MakeClient: TypeAlias = Callable[..., Awaitable[Client]]
"""Returns a client with a key of the given scopes and owner: `await make_client('run', owner='ada')`."""


def _echo(messages: list[ModelMessage], info: AgentInfo) -> str:
    """Answer with the last user prompt."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    said = [part.content for part in last.parts if isinstance(part, UserPromptPart)]
    return f'You said: {said[-1] if said else "nothing"}'


@pytest.fixture
def agents() -> Mapping[str, AnyAgent]:
    """Two agents, so that a key can be limited to one of them."""
    return {name: create_deep_agent(ScriptedModel(then=_echo)) for name in ('analyst', 'writer')}


@pytest.fixture
def settings() -> ServerSettings:
    """Settings with limits that no test reaches by accident."""
    return ServerSettings(requests_per_second=1000, request_burst=100_000)


@pytest.fixture
async def store() -> AsyncGenerator[SqlStore]:
    """A store in memory."""
    async with open_store('memory:') as store:
        yield store


@dataclass(frozen=True, kw_only=True)
class Served:
    """A running application."""

    app: FastAPI
    store: SqlStore

    @property
    def state(self) -> ServerState:
        """The state of its routes."""
        return self.app.state.server

    async def key(
        self,
        *scopes: KeyScope,
        owner: str | None = 'ada',
        agents: Sequence[str] | None = None,
        expires_in_seconds: float | None = None,
    ) -> str:
        """Create a key with the given scopes, by default `run`."""
        return await create_api_key(
            self.store,
            name='test',
            scopes=scopes or ('run',),
            owner=owner,
            agents=agents,
            expires_in_seconds=expires_in_seconds,
        )

    async def access(self, key: str) -> Access:
        """Return the access of a key."""
        found = await self.state.keys.find(key)
        assert found is not None
        return Access(state=self.state, caller=caller_with_key(found))

    def client(self, key: str | None = None, headers: Mapping[str, str] | None = None, **options: Any) -> Client:
        """Return a client. Close it, or use `make_client`."""
        headers = dict(headers or {}) if key is None else {'authorization': f'Bearer {key}'}
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app, **options), base_url=BASE_URL, headers=headers)


Serve: TypeAlias = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def serve(agents: Mapping[str, AnyAgent], store: SqlStore, settings: ServerSettings) -> Serve:
    """Return a context manager that serves other agents, settings or options."""

    @asynccontextmanager
    async def serve(
        agents: Mapping[str, AnyAgent] = agents,
        settings: ServerSettings = settings,
        store: SqlStore = store,
        **options: Any,
    ) -> AsyncGenerator[Served]:
        app = create_app(agents, store, settings, **options)
        async with app.router.lifespan_context(app):
            yield Served(app=app, store=store)

    return serve


@pytest.fixture
async def served(serve: Serve) -> AsyncGenerator[Served]:
    """The application."""
    async with serve() as served:
        yield served


@pytest.fixture
async def make_client(served: Served) -> AsyncGenerator[MakeClient]:
    """Create clients of the application and close them after the test."""
    clients: list[Client] = []

    async def make(*scopes: KeyScope, **options: Any) -> Client:
        clients.append(served.client(await served.key(*scopes, **options)))
        return clients[-1]

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
async def nobody(served: Served) -> AsyncGenerator[Client]:
    """A client without a key."""
    async with served.client() as client:
        yield client


@dataclass
class Gate:
    """A tool that blocks until the test opens the gate."""

    reached: anyio.Event
    opened: anyio.Event

    async def hold(self) -> str:
        """Wait."""
        self.reached.set()
        await self.opened.wait()
        return 'held'


@pytest.fixture
async def gate() -> Gate:
    """A closed gate."""
    return Gate(anyio.Event(), anyio.Event())


Listen: TypeAlias = Callable[[FastAPI], AbstractAsyncContextManager[str]]


@pytest.fixture
def listen() -> Listen:
    """Return a context manager that serves an application on a loopback port and yields its URL."""

    @asynccontextmanager
    async def listen(app: FastAPI) -> AsyncGenerator[str]:
        with socket.create_server(('127.0.0.1', 0)) as listener:
            server = uvicorn.Server(uvicorn.Config(app, lifespan='off', log_config=None))
            async with anyio.create_task_group() as group:
                group.start_soon(partial(server.serve, sockets=[listener]))
                while not server.started:
                    await anyio.lowlevel.checkpoint()
                try:
                    yield f'http://127.0.0.1:{listener.getsockname()[1]}'
                finally:
                    server.should_exit = True

    return listen


def frames_in(data: bytes) -> list[Frame]:
    """Return the frames of a complete stream."""
    reader = FrameReader()
    frames = reader.feed(data)
    assert reader.finish() is None
    return frames


def told(frames: Sequence[Frame]) -> list[tuple[str | None, Any]]:
    """Return the type of each frame and its JSON without the type."""
    return [(frame.event, {k: v for k, v in json.loads(frame.data).items() if k != 'type'}) for frame in frames]


def said(frames: Sequence[Frame]) -> str:
    """Return the text of the frames."""
    return ''.join(fields['text'] for event, fields in told(frames) if event == 'text')


# A small application around which the layers of the server are tested


@pytest.fixture
def read() -> list[int]:
    """The lengths of the body's pieces that `inner` has read."""
    return []


@pytest.fixture
def inner(read: list[int]) -> Starlette:
    """An application that counts the bytes of bodies, ignores them, streams, or fails."""

    async def count(request: Request) -> PlainTextResponse:
        total = 0
        async for chunk in request.stream():
            total += len(chunk)
            read.append(len(chunk))
        return PlainTextResponse(str(total))

    async def ignore(request: Request) -> PlainTextResponse:
        return PlainTextResponse('ignored')

    async def stream(request: Request) -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            yield b'one'
            yield b'two'

        return StreamingResponse(pieces(), headers={'cache-control': 'no-cache'})

    async def fail(request: Request) -> PlainTextResponse:
        raise RuntimeError('a defect')

    app = Starlette(
        routes=[
            Route('/count', count, methods=['POST']),
            Route('/v1/messages', count, methods=['POST']),
            Route('/ignore', ignore, methods=['POST']),
            Route('/stream', stream),
            Route('/fail', fail),
        ]
    )
    install_error_handlers(app)
    return app
