"""The caches that all versions of an agent share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pydantic_deep import DeepAgentDeps, DeepAgentError, StateBackend, VersionedAgent, create_deep_agent
from pydantic_deep.errors import ValidationError
from pydantic_deep.testing import ScriptedModel
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


async def test_advancing_a_cached_version_reads_no_message(make: MakeAgent, store: SpyStore):
    agent = make('one', 'two', 'three')
    first = await (await agent.create()).advance('a')
    store.counting.reads.clear()

    await first.advance('b')

    assert [sql for sql in store.counting.reads if 'FROM message' in sql or 'JOIN message' in sql] == []


async def test_advancing_a_loaded_version_reads_its_messages_once(make: MakeAgent, store: SpyStore):
    first = await (await make('one').create()).advance('a')
    later = await make('two', 'three').load(first.id)
    store.counting.reads.clear()

    await later.advance('b')
    await later.advance('c')

    assert len([sql for sql in store.counting.reads if 'message' in sql and 'body' in sql]) == 1


async def test_deps_that_need_arguments_need_make_deps(store: SpyStore):
    @dataclass(kw_only=True)
    class Tenant(DeepAgentDeps):
        name: str

    agent = create_deep_agent(ScriptedModel(), deps_type=Tenant)
    with pytest.raises(DeepAgentError, match=r'Tenant\(\) cannot create deps: .* Pass `make_deps=lambda: Tenant\(…\)`'):
        await VersionedAgent(agent, store).create()


async def test_make_deps_returns_deps(store: SpyStore):
    """A coroutine stored a conversation without files, whose turns failed."""

    async def make_deps() -> DeepAgentDeps:
        return DeepAgentDeps()

    coroutine = make_deps()
    made: Any
    for made in (coroutine, StateBackend()):
        agent = VersionedAgent(create_deep_agent(ScriptedModel()), store, make_deps=[made].pop)
        with pytest.raises(
            ValidationError, match=r'make_deps: it is of type .* Return an object of it, without `async`'
        ):
            await agent.create()
    coroutine.close()
    assert await store.conversations() == []
