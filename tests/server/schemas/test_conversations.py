"""A conversation lists the running runs of every process."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pydantic_deep import create_deep_agent
from pydantic_deep.server._agents import AnyAgent
from pydantic_deep.testing import ScriptedModel, call
from tests.server.conftest import Gate, Serve

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, AnyAgent]:
    return {'analyst': create_deep_agent(ScriptedModel(call('hold'), 'Done.'), tools=[gate.hold])}


async def test_running_run_is_listed_here_and_by_other_servers(serve: Serve, gate: Gate) -> None:
    async with serve() as here, serve() as elsewhere:
        key = await here.key('run')
        async with here.client(key) as client, elsewhere.client(key) as other:
            path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
            begun = await client.post(f'{path}/turns', json={'prompt': 'Hi'}, params={'wait': 'false'})
            await gate.reached.wait()
            for each in (client, other):
                assert (await each.get(path)).json()['running'] == [begun.json()['id']]
            gate.opened.set()
            await client.get(f'{begun.headers["location"]}/events')
            for each in (client, other):
                assert (await each.get(path)).json()['running'] == []
