"""The state of an application, outside of its lifespan and when mounted."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from pydantic_deep.server._state import NotStartedError
from tests.server.conftest import Serve, Served

pytestmark = pytest.mark.anyio


async def test_stopped_application_refuses_requests(serve: Serve) -> None:
    async with serve() as served:
        pass
    async with served.client() as client:
        with pytest.raises(NotStartedError):
            await client.get('/health')


async def test_mounted_application_serves_the_same_paths(served: Served) -> None:
    outer = Starlette(routes=[Mount('/deep', served.app)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url='http://localhost') as client:
        assert (await client.get('/deep/health')).status_code == 200
        assert (await client.get('/deep/api/me')).status_code == 401
        assert (await client.get('/deep/v1beta/models')).json()['error']['status'] == 'UNAUTHENTICATED'
        key = {'x-api-key': await served.key()}
        assert (await client.get('/deep/api/me', headers=key)).status_code == 200
        assert (await client.get('/deep/v1beta/none', headers=key)).json()['error']['status'] == 'NOT_FOUND'


async def test_addresses_in_answers_of_a_mounted_application_lead_to_it(served: Served) -> None:
    outer = Starlette(routes=[Mount('/deep', served.app)])
    headers = {'authorization': f'Bearer {await served.key()}'}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(outer, root_path='/outer'), base_url='http://localhost', headers=headers
    ) as client:
        created = await client.post('/outer/deep/api/conversations', json={'agent': 'analyst'})
        started = await client.post(f'{created.headers["location"]}/turns', json={'prompt': 'Hi'})
        run = await client.get(started.headers['location'])
        card = (await client.get('/outer/deep/a2a/analyst/.well-known/agent-card.json')).json()
    assert (run.json()['output'], started.headers['location'][:22]) == ('You said: Hi', '/outer/deep/api/runs/0')
    assert card['supportedInterfaces'][0]['url'] == 'http://localhost/outer/deep/a2a/analyst'


async def test_application_without_lifespan_raises(serve: Serve) -> None:
    async with serve() as served:
        app: FastAPI = served.app
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url='http://localhost') as client:
        with pytest.raises(NotStartedError, match=r'lifespan_context\(app\)'):
            await client.get('/api/me')
