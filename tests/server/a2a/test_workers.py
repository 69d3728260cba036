"""Tasks that workers execute, for servers that share a store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import GetTaskRequest, SubscribeToTaskRequest, TaskState

from pydantic_deep.server import ServerSettings
from pydantic_deep.store import new_id, open_store
from tests.server.a2a.conftest import decision, message, pending_in, responses, send
from tests.server.conftest import BASE_URL, Serve, Served

pytestmark = pytest.mark.anyio

FRONT = ServerSettings(requests_per_second=1000, request_burst=100_000, worker=False)
WORKER = ServerSettings(requests_per_second=1000, request_burst=100_000)


@asynccontextmanager
async def client_of(front: Served, key: str, *, streaming: bool) -> AsyncGenerator[Client]:
    headers = {'authorization': f'Bearer {key}'}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front.app), headers=headers) as http:
        card = await A2ACardResolver(http, f'{BASE_URL}/a2a/asker').get_agent_card()
        yield ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)).create(card)


@pytest.mark.slow
async def test_task_of_a_worker_is_streamed_decided_and_read_at_any_server(serve: Serve) -> None:
    """A task that one server has queued is followed, decided and read at another, also before a worker has begun it."""
    name = new_id()
    async with (
        open_store(f'memory:{name}') as one,
        open_store(f'memory:{name}') as two,
        open_store(f'memory:{name}') as three,
        serve(settings=FRONT, store=one) as first,
        serve(settings=FRONT, store=two) as second,
    ):
        key = await first.key('run', 'approve')
        async with client_of(first, key, streaming=True) as here, client_of(second, key, streaming=False) as there:
            async with serve(settings=WORKER, store=three):
                received = await responses(here, message('/a.txt=a'))
            id = received[0].task.id
            assert received[-1].status_update.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
            [shown] = pending_in(await there.get_task(GetTaskRequest(id=id)))
            submitted = await send(there, decision(shown, 'approve'), task_id=id, now=True)
            assert submitted.status.state == TaskState.TASK_STATE_SUBMITTED
            assert (await here.get_task(GetTaskRequest(id=id))).status.state == TaskState.TASK_STATE_SUBMITTED
            async with serve(settings=WORKER, store=three):
                subscription = here.subscribe(SubscribeToTaskRequest(id=id))
                rest = [response async for response in subscription]
            assert rest[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
            assert (await there.get_task(GetTaskRequest(id=id))).status.state == TaskState.TASK_STATE_COMPLETED
