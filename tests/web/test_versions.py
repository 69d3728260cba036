"""The web in versioned turns: pauses, replay, and recovery after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep import Approve, StateBackend, VersionedAgent, create_deep_agent, open_store
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.web import Web
from tests.versions.recovery.crashes import World, ends, plan, returns, tool_call

from .conftest import Engine, Site

pytestmark = pytest.mark.anyio


async def test_turn_pauses_resumes_and_replays_without_requests(site: Site, engine: Engine) -> None:
    """A version with a pending page resumes after an approval, and its replay neither searches nor fetches."""
    engine.results = []
    model = ScriptedModel(call('web_search', query='tea'), call('web_fetch', url=site.url()), 'done')
    agent = create_deep_agent(model, capabilities=[Web(private_addresses=True)], interrupt_on={})
    async with open_store('memory:') as store:
        paused = await (await VersionedAgent(agent, store).create()).advance('go')
        [pending] = paused.pending
        assert (pending.tool, site.requested) == ('web_fetch', [])
        done = await paused.resume({pending.id: Approve()})
        replay = await done.replay()
    assert (done.output, replay.difference) == ('done', None)
    assert (engine.queries, site.requested) == ([('tea', 10)], ['127.0.0.1/tea'])


async def test_page_is_read_again_after_a_crash(tmp_path: Path, site: Site) -> None:
    """A fetch that a crash interrupted only reads, so recovery makes it again and asks nobody."""
    world = World(
        f'sqlite:///{tmp_path}/store.db',
        plan({'go': [[tool_call('web_fetch', url=site.url())], 'end']}),
        options={'capabilities': [Web(allow=['127.0.0.1'], private_addresses=True)], 'interrupt_on': {}},
    )
    async with world.process(dies_before=ends('web_fetch')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        [version] = await agent.recover()
        assert not version.pending
        assert returns(await version.messages()) == ['Tea\n\nGreen\n=====\n\nSteep **once**.']
