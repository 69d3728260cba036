"""The versions of a turn: its lineage, its prompt, and the reads that they need."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import BinaryContent
from pydantic_ai.messages import TextContent

from pydantic_deep import StateBackend, create_deep_agent
from pydantic_deep.store import Commit, SqlStore, Store, VersionFilter, VersionRecord, new_id
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent
from pydantic_deep.views import StoreReader, TurnLineages
from tests.versions.conftest import CountingEngine, SpyStore
from tests.views.conftest import answer

pytestmark = pytest.mark.anyio


async def test_prompt_marks_each_media_part(store: SqlStore):
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Nice.')), store)
    version = await (await agent.create()).advance(['Look', BinaryContent(b'\x89PNG', media_type='image/png')])

    assert (await StoreReader(store).version(version.record)).prompt == 'Look\n[media]'


async def test_prompt_shows_texts_with_metadata(store: SqlStore):
    """A text to which a program has added metadata is text for people."""
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Nice.')), store)
    version = await (await agent.create()).advance([TextContent('Look', metadata={'id': 1}), 'here'])

    assert (await StoreReader(store).version(version.record)).prompt == 'Look\nhere'


async def test_page_cost_does_not_depend_on_its_position():
    spy = SpyStore(CountingEngine(MemoryEngine.open()))
    agent = VersionedAgent(create_deep_agent(ScriptedModel(then=answer)), spy)
    version = await agent.create(backend=StateBackend())
    for number in range(12):
        version = await version.advance(f'write /{number}.txt')
    records = await spy.versions(VersionFilter(kinds=['turn']))
    counts: list[int] = []
    for page in (records[:4], records[8:], records):
        spy.counting.reads.clear()
        await StoreReader(spy).versions(page)
        counts.append(len(spy.counting.reads))

    late, early, whole = counts
    assert late <= early + 1
    assert whole <= 3 * late
    await spy.aclose()


async def test_details_of_a_turn_do_not_read_earlier_history(monkeypatch: pytest.MonkeyPatch):
    async with SpyStore(CountingEngine(MemoryEngine.open())) as spy:
        version = await VersionedAgent(create_deep_agent(ScriptedModel(then=answer)), spy).create(
            backend=StateBackend()
        )
        for number in range(6):
            version = await version.advance(f'write /{number}.txt')
        read: list[int] = []
        messages = spy.messages

        async def count(branch_id: str, stop: int, *, start: int = 0) -> Any:
            read.append(stop - start)
            return await messages(branch_id, stop, start=start)

        monkeypatch.setattr(spy, 'messages', count)
        details = await StoreReader(spy).details(version.record)

        assert [file.path for file in details.files] == ['/5.txt']
        assert version.message_count == 24
        assert max(read) <= 6


READ = call('read_file', path='/poem.txt')


@pytest.mark.anyio
async def test_attempts_of_one_turn_have_one_lineage(store: Store) -> None:
    agent = VersionedAgent(create_deep_agent(ScriptedModel(READ, READ, 'Done.')), store)
    root = await agent.create()
    turn = await root.advance('Go')
    first, second = [step.record for step in await turn.steps()]
    run = await store.run(turn.record.run_id or '')
    assert run is not None
    again = run._replace(id=new_id(), attempt_of=run.id, state='complete')

    async def commit(record: VersionRecord) -> VersionRecord:
        made = record._replace(id=new_id(), number=0, run_id=again.id)
        await store.commit(Commit(runs=[again], versions=[made]))
        return await store.version(made.id)

    step = await commit(second)
    again = again._replace(id=new_id(), attempt_of=again.id)
    end = await commit(turn.record)
    turns = TurnLineages(store=store)
    for record in (step, end):
        assert await turns.prompt(record) == 'Go'
        lineage = await turns.lineage(record)
        assert lineage.base == root.record
    assert [each.id for each in (await turns.lineage(step)).versions] == [first.id, step.id]
