"""A server with three agents in this process, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import httpx2
import pytest
from fastapi import FastAPI

from pydantic_deep import PlanMode, create_deep_agent
from pydantic_deep.client import Client
from pydantic_deep.server import KeyScope, ServerSettings, create_api_key, create_app
from pydantic_deep.store import SqlStore, open_store
from pydantic_deep.testing import ScriptedModel
from tests.server.conftest import listen as listen
from tests.server.routes.file_writer import answer

Handler: TypeAlias = Callable[[httpx2.Request], httpx2.Response]


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running application."""

    app: FastAPI
    store: SqlStore

    async def key(self, *scopes: KeyScope, owner: str = 'ada') -> str:
        return await create_api_key(self.store, name='test', scopes=scopes or ('run', 'approve'), owner=owner)

    @asynccontextmanager
    async def client(self, *scopes: KeyScope, owner: str = 'ada') -> AsyncGenerator[Client]:
        """Return a client with a key, by default for runs and approvals."""
        key = await self.key(*scopes, owner=owner)
        async with Client('http://localhost', key, transport=httpx2.ASGITransport(self.app)) as client:
            yield client


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    """A server with agents that write the files that their prompt names: at once, after approval, and never in plan mode."""
    model = ScriptedModel(then=answer)
    agents = {
        'analyst': create_deep_agent(model),
        'careful': create_deep_agent(model, interrupt_on={'write_file': True}),
        'planner': create_deep_agent(model, interrupt_on={}, capabilities=[PlanMode()]),
    }
    async with open_store('memory:') as store:
        app = create_app(agents, store, ServerSettings(requests_per_second=1000, request_burst=100_000))
        async with app.router.lifespan_context(app):
            yield Server(app=app, store=store)


@pytest.fixture
async def ada(server: Server) -> AsyncGenerator[Client]:
    """A client that may run agents and answer approvals."""
    async with server.client() as client:
        yield client


@asynccontextmanager
async def answered_by(handler: Handler) -> AsyncGenerator[Client]:
    """Return a client whose requests a function answers."""
    async with Client('http://localhost', 'key', transport=httpx2.MockTransport(handler)) as client:
        yield client
