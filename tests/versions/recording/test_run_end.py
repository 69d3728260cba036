"""Runs whose end cannot be stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import UserError

from pydantic_deep import LocalBackend
from pydantic_deep.store import StoreUnavailableError
from pydantic_deep.testing import call
from pydantic_deep.versions import workspace_key
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


async def test_store_failure_at_the_end_is_noted_on_the_error(make: MakeAgent, store: SpyStore):
    agent = make(RuntimeError('overloaded'))
    root = await agent.create()
    store.refuse = lambda commit: StoreUnavailableError('The disk is full.') if commit.ends else None

    with pytest.raises(RuntimeError, match='overloaded') as caught:
        await root.advance('go')

    note, suspended = caught.value.__notes__
    assert note == 'The work of the run since its last step was not stored: The disk is full.'
    assert 'is suspended' in suspended


async def test_run_with_unstored_end_is_recovered_by_the_same_process(make: MakeAgent, store: SpyStore, tmp_path: Path):
    agent = make(call('write_file', path='/a.txt', content='a'), 'done', 'again', 'done', 'other')
    root = await agent.create(backend=LocalBackend(tmp_path))
    store.refuse = lambda commit: StoreUnavailableError('The disk is full.') if commit.ends else None
    with pytest.raises(StoreUnavailableError):
        await root.advance('go')
    [orphan] = await store.orphans()
    store.counting.fails_after = 0
    with pytest.raises(RuntimeError, match='power cut'):
        await agent.recover()
    store.refuse = lambda commit: StoreUnavailableError('The disk is full.') if commit.runs else None
    assert await agent.recover() == []
    assert [run.id for run in await store.orphans()] == [orphan.id]
    store.refuse = lambda commit: None

    [recovered] = await agent.recover()

    assert (recovered.state, recovered.output) == ('complete', 'again')
    assert await store.orphans() == []
    held = await store.workspace(workspace_key(recovered.record.backend or ''))
    assert held is not None
    assert (held.version_id, held.run_id) == (recovered.id, None)


@pytest.mark.parametrize(
    'step', [RuntimeError('overloaded'), call('ls'), '\ud800'], ids=['failed', 'paused', 'cannot be kept']
)
async def test_run_with_unstored_end_is_suspended_however_it_ends(make: MakeAgent, store: SpyStore, step: Any):
    root = await make(step, interrupt_on={'ls': True}).create()
    store.refuse = lambda commit: StoreUnavailableError('The disk is full.') if commit.ends else None

    with pytest.raises((RuntimeError, StoreUnavailableError)):
        await root.advance('go')

    assert [run.base_id for run in await store.orphans()] == [root.id]


async def test_run_that_can_neither_start_nor_end_is_orphaned(make: MakeAgent, store: SpyStore):
    root = await make('done').create()
    store.refuse = lambda commit: StoreUnavailableError('The disk is full.') if commit.ends else None
    with pytest.raises(UserError, match='nobody'):
        await root.advance('go', model='nobody:knows')
    assert [run.base_id for run in await store.orphans()] == [root.id]
