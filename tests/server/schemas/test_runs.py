"""A run has one form, in the process that ran it and in others."""

from __future__ import annotations

import pytest

from tests.server.conftest import Serve

pytestmark = pytest.mark.anyio

LOCAL = ('is_here', 'session_id', 'started_at', 'ended_at')
"""Fields that only the process of the run knows exactly."""


async def test_ended_run_is_the_same_from_the_store(serve: Serve) -> None:
    async with serve() as first:
        key = await first.key('run')
        async with first.client(key) as client:
            path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
            run = (await client.post(f'{path}/turns', json={'prompt': 'Hi', 'session_id': 's'})).json()
    async with serve() as second, second.client(key) as client:
        stored = (await client.get(f'/api/runs/{run["id"]}')).json()

    assert (run['is_here'], run['session_id'], stored['is_here'], stored['session_id']) == (True, 's', False, None)
    assert (run['state'], run['output'], run['attempts']) == ('complete', 'You said: Hi', 1)
    assert {name: stored[name] for name in stored if name not in LOCAL} == {
        name: run[name] for name in run if name not in LOCAL
    }
