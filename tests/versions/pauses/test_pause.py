"""Paused turns as versions."""

from __future__ import annotations

import pytest

from pydantic_deep import Approve, create_deep_agent
from pydantic_deep.store import VersionNotFoundError, open_store
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent

pytestmark = pytest.mark.anyio


async def test_deleted_and_collected_pause_cannot_be_cloned_or_resumed() -> None:
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel(call('ls')), interrupt_on={'ls': True}), store)
        paused = await (await agent.create()).advance('go')
        await store.delete(paused.id)
        await store.gc(0)
        with pytest.raises(VersionNotFoundError, match=paused.id):
            await paused.clone()
        with pytest.raises(VersionNotFoundError, match=paused.id):
            await paused.with_metadata({'a': 1})
        with pytest.raises(VersionNotFoundError, match=paused.id):
            await paused.resume({paused.pending[0].id: Approve()})
