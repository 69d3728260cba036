"""A receiver of webhooks on loopback, and a sender whose rounds a test starts."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import anyio
import pytest
from fastapi import FastAPI, Request, Response
from pydantic_ai import Tool
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server import ServerSettings, Webhook, Webhooks, open_webhooks
from pydantic_deep.server._state import OWNER
from pydantic_deep.server.webhooks._sender import WebhookSender
from pydantic_deep.store import SqlStore
from pydantic_deep.testing import Answer, FakeClock, ScriptedModel, call
from tests.server.conftest import Client, Gate, Listen, MakeClient, Served

KEY = 'a key of thirty-two or more characters'


@dataclass
class Receiver:
    """A server that records requests, and answers with settable responses."""

    url: str = ''
    requests: list[tuple[Mapping[str, str], str]] = field(default_factory=list[tuple[Mapping[str, str], str]])
    """The headers and bodies of the requests."""
    responses: list[Response] = field(default_factory=list[Response])
    """The next responses; 204 after them."""

    @property
    def events(self) -> list[dict[str, Any]]:
        """The received events."""
        return [json.loads(body) for _, body in self.requests]

    @property
    def types(self) -> list[str]:
        """The types of the received events."""
        return [event['type'] for event in self.events]


@pytest.fixture
async def receiver(listen: Listen) -> AsyncGenerator[Receiver]:
    receiver = Receiver()
    app = FastAPI()

    @app.post('/hook')
    async def hook(request: Request) -> Response:
        receiver.requests.append((dict(request.headers), (await request.body()).decode()))
        return receiver.responses.pop(0) if receiver.responses else Response(status_code=204)

    async with listen(app) as url:
        receiver.url = f'{url}/hook'
        yield receiver


def write_then_answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Write a file, then answer."""
    return 'Done.' if has_results(messages) else call('write_file', path='/a.txt', content='a')


def hold_then_answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Call the tool that blocks, then answer."""
    return 'Done.' if has_results(messages) else call('hold')


def has_results(messages: list[ModelMessage]) -> bool:
    """Return whether the last request contains results of tools."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    return any(isinstance(part, ToolReturnPart) for part in last.parts)


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, Any]:
    """An agent that asks before it writes, one that does not, one that fails, and one with a tool that blocks."""

    def fail(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        raise RuntimeError('a defect')

    return {
        'careful': create_deep_agent(ScriptedModel(then=write_then_answer), interrupt_on={'write_file': True}),
        'writer': create_deep_agent(ScriptedModel(then=write_then_answer)),
        'held': create_deep_agent(
            ScriptedModel(then=hold_then_answer), tools=[Tool(gate.hold, metadata={'effect': 'read'})]
        ),
        'broken': create_deep_agent(ScriptedModel(then=fail)),
    }


@pytest.fixture
def settings() -> ServerSettings:
    """Settings without a key for webhooks, so that the application itself sends nothing."""
    return ServerSettings(requests_per_second=1000, request_burst=100_000)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def webhooks(store: SqlStore, clock: FakeClock) -> AsyncGenerator[Webhooks]:
    def tick() -> datetime:
        clock.advance(0.000_001)  # events have different times
        return clock.now()

    async with open_webhooks(store, key=KEY, private_hosts=['127.0.0.1'], clock=tick) as webhooks:
        yield webhooks


@dataclass
class Rounds:
    """A sender of one process, one round at a time."""

    sender: WebhookSender

    async def __call__(self) -> None:
        """Find events and send what is due, until all requests have ended."""
        async with anyio.create_task_group() as group:
            await self.sender.work(group)


def new_rounds(served: Served, webhooks: Webhooks, public_url: str | None = None) -> Rounds:
    """Return a new sender, as another process would have it."""
    sender = WebhookSender(
        served.store, webhooks, keys=served.state.keys, owner_key=OWNER, public_url=public_url, jitter=lambda: 0
    )
    return Rounds(sender)


@pytest.fixture
def rounds(served: Served, webhooks: Webhooks) -> Rounds:
    return new_rounds(served, webhooks, 'https://agents.example/')


@pytest.fixture
async def hook(webhooks: Webhooks, receiver: Receiver, rounds: Rounds) -> Webhook:
    """A webhook of ada for all events, whose sender has begun to look for events."""
    hook, _ = await webhooks.create(owner='ada', url=receiver.url)
    await rounds()
    return hook


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run', 'approve')


async def run(client: Client, agent: str = 'writer', prompt: str = 'go') -> dict[str, Any]:
    """Start a turn in a new conversation, wait for its end, and return the run."""
    path = (await client.post('/api/conversations', json={'agent': agent})).headers['location']
    started = (await client.post(f'{path}/turns', json={'prompt': prompt})).json()
    return started | {'path': path}
