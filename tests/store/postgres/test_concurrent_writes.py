"""Writes to PostgreSQL at the same time: which wait for each other, which win, and what a reader that follows sees."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import SqlRepository, Upsert
from pydantic_deep.store import (
    ApprovalAnsweredError,
    Commit,
    Decision,
    HeadMove,
    QueuedRunRecord,
    RunTakenOverError,
    SqlStore,
    StoreError,
    StoreUnavailableError,
    VersionConflictError,
    VersionFilter,
    VersionRecord,
    WorkspaceRecord,
    new_id,
    open_store,
)
from pydantic_deep.store._samples import MOMENT, Dialogue, sample_approval, sample_asset, sample_call, sample_run
from pydantic_deep.store.conformance._base import as_decision
from pydantic_deep.store.engine import Operation, Statement
from pydantic_deep.store.operations import _queue
from pydantic_deep.store.operations._commits import commit
from pydantic_deep.store.operations._runs import claim_run
from pydantic_deep.store.postgres._driver import connect
from pydantic_deep.store.sql._commit_rows import prepare
from pydantic_deep_backends.snapshots import FileVersion, Tree

pytestmark = pytest.mark.anyio

T = TypeVar('T')

GATE = 4711
"""Key of a lock that a test holds to keep a write open."""


@pytest.fixture
async def stores(postgres_url: str) -> AsyncGenerator[list[SqlStore]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_store(postgres_url)) for _ in range(3)]


@asynccontextmanager
async def held_open(store: SqlStore, operation: Operation[T]) -> AsyncGenerator[asyncio.Task[T]]:
    """Run an operation in a write that stays open, with all its changes made, until the end of the block."""

    def hold() -> Operation[T]:
        result = yield from operation
        yield Statement(f'SELECT CAST(pg_advisory_xact_lock_shared({GATE}) AS TEXT)')
        return result

    gate = await connect(store.url)
    await gate.execute(f'SELECT pg_advisory_lock({GATE})')
    task = asyncio.create_task(store.engine.write(hold))
    try:
        waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not await gate.fetch(waits):
            assert not task.done(), task
            await asyncio.sleep(0.005)
        yield task
    finally:
        await gate.close()
        await asyncio.wait([task])


def queued_turn(conversation_id: str) -> QueuedRunRecord:
    return QueuedRunRecord(
        run_id=new_id(), conversation_id=conversation_id, base_id=None, agent_name='analyst', account=None, key_id=None,
        priority=0, prompt=b'"Hello"', options='{}', submitted_at=MOMENT,
    )  # fmt: skip


def committing(store: SqlStore, new: Commit) -> Operation[Any]:
    return commit(prepare(new, MOMENT), store.owner, MOMENT)


async def has_started_to_wait(store: SqlStore) -> None:
    """Return once a write waits for a row or a unique key of another."""
    waits = Statement("SELECT 1 FROM pg_locks WHERE locktype IN ('transactionid', 'tuple') AND NOT granted")

    def look() -> Operation[bool]:
        return bool((yield waits))

    while not await store.engine.read(look):  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(0.005)


async def test_writers_of_different_conversations_do_not_wait_for_each_other(stores: list[SqlStore]) -> None:
    """A step, a new conversation, an answer, a claim of a directory and a deletion proceed during an open commit. A
    collection waits for its end, and delays no other write.
    """
    one, other, _ = stores
    first, second, third = Dialogue(one), Dialogue(other), Dialogue(other)
    root, base = await first.begin(), await second.begin()
    run = sample_run(first.id)
    new = Commit(
        runs=[run], assets=[sample_asset(b'mine')], calls=[sample_call(run.id, 'r', 'c')],
        versions=[first.version(parent_id=root.id, run_id=run.id)],
        heads=[HeadMove(conversation_id=first.id, expected_id=root.id, version_id=root.id)],
    )  # fmt: skip
    async with held_open(one, committing(one, new)) as task:
        step = await second.add(
            base, b'1', commit={'assets': [sample_asset(b'other')], 'runs': [sample_run(second.id)]}
        )
        approval = sample_approval(step)
        await other.commit(Commit(approvals=[approval]))
        await other.decide([as_decision(approval.id)])
        assert await other.claim_workspace('{}', 'r', None)
        await third.begin()
        await other.delete(step.id)
        collection = asyncio.create_task(other.gc())
        await asyncio.sleep(0.05)
        await Dialogue(stores[2]).begin()
        assert not task.done()
        assert not collection.done()
    await asyncio.gather(task, collection)


async def test_writers_of_one_store_run_at_the_same_time(stores: list[SqlStore]) -> None:
    """An open commit does not delay others of its process, nor do writes leave it without connections for reads."""
    store = stores[0]
    dialogues = [Dialogue(store) for _ in range(20)]
    root = await dialogues[0].begin()
    async with held_open(store, committing(store, Commit(versions=[dialogues[0].version(parent_id=root.id)]))) as task:
        await asyncio.gather(*(dialogue.begin() for dialogue in dialogues[1:]))
        assert await store.count() == 20
        assert not task.done()


async def test_queued_turns_of_a_conversation_become_visible_in_their_order(stores: list[SqlStore]) -> None:
    """Otherwise a worker could begin the second turn, and then the first one beside it. Other conversations do not wait."""
    one, other, third = stores
    dialogue, elsewhere = Dialogue(one), Dialogue(one)
    await dialogue.begin()
    await elsewhere.begin()
    first, second, free = (queued_turn(id) for id in (dialogue.id, dialogue.id, elsewhere.id))
    async with held_open(one, _queue.add(first, None, None)):
        waiting = asyncio.create_task(other.queue.add(second))
        await has_started_to_wait(third)
        await third.queue.add(free)
        assert [run.run_id for run in await third.queue.ready(['analyst'])] == [free.run_id]
    await waiting
    assert [run.run_id for run in await third.queue.ready(['analyst'])] == [first.run_id, free.run_id]


async def test_follower_waits_for_earlier_writes_and_not_for_later_ones(stores: list[SqlStore]) -> None:
    """A row with a lower number may commit later. `wait_for_writes` returns once no such row can appear, and neither
    delays writes nor waits for those that begin later.
    """
    one, other, third = stores
    dialogue = Dialogue(one)
    root = await dialogue.begin()
    early, late = dialogue.version(parent_id=root.id), dialogue.version(parent_id=root.id)
    async with held_open(one, committing(one, Commit(versions=[early]))):
        number = (await Dialogue(other).begin()).number
        seen = [version.number for version in await third.versions()]
        assert max(seen) == number, 'the higher number is visible first'
        assert len(seen) == number - 1
        waiting = asyncio.create_task(third.engine.wait_for_writes())
        for _ in range(20):
            await asyncio.sleep(0.005)
            await Dialogue(other).begin()
        assert not waiting.done()
    await waiting
    assert {version.number for version in await third.versions()} >= set(range(1, number + 1))

    await other.engine.wait_for_writes()
    async with held_open(one, committing(one, Commit(versions=[late]))):
        waiting = asyncio.create_task(third.engine.wait_for_writes())
        await asyncio.sleep(0.05)
        assert not waiting.done()
    await waiting


async def test_follower_does_not_wait_for_writes_that_begin_during_its_wait(stores: list[SqlStore]) -> None:
    one, other, third = stores
    first, second = Dialogue(one), Dialogue(other)
    root, base = await first.begin(), await second.begin()
    async with AsyncExitStack() as later:
        async with held_open(one, committing(one, Commit(versions=[first.version(parent_id=root.id)]))):
            waiting = asyncio.create_task(third.engine.wait_for_writes())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            new = Commit(versions=[second.version(parent_id=base.id)])
            await later.enter_async_context(beside(other, committing(other, new)))
        await asyncio.wait_for(waiting, 60)


@asynccontextmanager
async def beside(store: SqlStore, operation: Operation[object]) -> AsyncGenerator[None]:
    """Like `held_open`, beside another write that is held open."""
    gate, key = await connect(store.url), GATE + 1
    await gate.execute(f'SELECT pg_advisory_lock({key})')
    started = asyncio.Event()

    def hold() -> Operation[None]:
        yield from operation
        started.set()
        yield Statement(f'SELECT CAST(pg_advisory_xact_lock_shared({key}) AS TEXT)')

    task = asyncio.create_task(store.engine.write(hold))
    await started.wait()
    try:
        yield
    finally:
        await gate.close()
        await task


@pytest.mark.slow
async def test_replica_misses_no_row_of_an_earlier_write(stores: list[SqlStore]) -> None:
    """A query waits for the write in progress, has its rows, and needs no comparison of all rows to find them."""
    one, other, third = stores
    dialogue = Dialogue(one)
    root = await dialogue.begin()
    assert (await third.sql('SELECT count(*) FROM versions')).rows == ((1,),)
    async with held_open(one, committing(one, Commit(versions=[dialogue.version(parent_id=root.id)]))):
        await Dialogue(other).begin()
        query = asyncio.create_task(third.sql('SELECT number FROM versions ORDER BY number'))
        await asyncio.sleep(0.05)
        assert not query.done()
    assert (await query).rows == ((1,), (2,), (3,))


@pytest.mark.slow
async def test_same_new_contents_are_stored_once_by_concurrent_commits(stores: list[SqlStore]) -> None:
    """Commits that insert the same assets, nodes and configuration, in any order, all succeed."""
    data = [sample_asset(b'shared %d' % number) for number in range(12)]
    mention = sample_asset(b'{"file":"%s"}' % data[0].digest.encode(), 'application/json')
    tree = Tree.of({f'/d{n}/f': FileVersion(digest=each.digest, size=8, mode=0o644) for n, each in enumerate(data)})

    async def commit_all(store: SqlStore, seed: int) -> None:
        assets = [*data, mention]
        random.Random(seed).shuffle(assets)
        dialogue = Dialogue(store)
        version = dialogue.version(deps=mention.digest, tree=tree.digest, metadata='{"a":1,"b":2}')
        root = await dialogue.begin(metadata=f'{{"seed":{seed % 4}}}')
        await store.commit(
            Commit(assets=assets, nodes=dict(tree.nodes()), versions=[version._replace(parent_id=root.id)])
        )

    await asyncio.gather(*(commit_all(stores[n % 3], n) for n in range(24)))
    store = stores[0]
    assert await store.check() == []
    assert await store.count(VersionFilter(metadata={'a': 1})) == 24
    for table, count in (('asset', 13), ('config', 5), ('config_field', 6)):
        assert await rows_of(store, table) == count


async def rows_of(store: SqlStore, table: str) -> int:
    def count() -> Operation[Any]:
        return (yield Statement(f'SELECT COUNT(*) FROM {table}'))[0][0]

    return await store.engine.read(count)


async def test_commit_of_content_that_another_is_inserting_waits_and_uses_its_row(stores: list[SqlStore]) -> None:
    one, other, _ = stores
    asset = sample_asset(b'{"a":1}')
    async with held_open(one, committing(one, Commit(assets=[asset]))) as task:
        again = asyncio.create_task(other.commit(Commit(assets=[asset])))
        await has_started_to_wait(other)
    await asyncio.gather(task, again)
    assert await rows_of(one, 'asset') == 1


async def test_second_append_at_a_position_waits_and_forks(stores: list[SqlStore]) -> None:
    one, other, _ = stores
    dialogue = Dialogue(one)
    root = await dialogue.begin()
    added = await asyncio.gather(
        *(Dialogue(stores[n % 3], dialogue.id, dialogue.branch_id).add(root, b'%d' % n) for n in range(12))
    )
    assert len({version.branch_id for version in added}) == 12
    assert [await dialogue.history(version) for version in added] == [[b'%d' % n] for n in range(12)]
    assert len({branch.name for branch in await other.branches(dialogue.id)}) == 12
    assert await one.check() == []


async def test_head_moves_for_one_of_many_concurrent_commits(stores: list[SqlStore]) -> None:
    dialogue = Dialogue(stores[0])
    root = await dialogue.begin()

    async def move(number: int) -> str:
        version = dialogue.version(parent_id=root.id)
        head = HeadMove(conversation_id=dialogue.id, expected_id=root.id, version_id=version.id)
        await stores[number % 3].commit(Commit(versions=[version], heads=[head]))
        return version.id

    results = await asyncio.gather(*(move(number) for number in range(12)), return_exceptions=True)
    [winner] = [result for result in results if isinstance(result, str)]
    assert sum(isinstance(result, VersionConflictError) for result in results) == 11
    conversation = await stores[0].conversation(dialogue.id)
    assert conversation is not None
    assert conversation.head_id == winner
    assert await stores[0].count() == 13


async def test_approval_is_answered_once_by_concurrent_decisions(stores: list[SqlStore]) -> None:
    """Decisions on several approvals in different orders neither deadlock nor split: one takes all."""
    dialogue = Dialogue(stores[0])
    root = await dialogue.begin()
    approvals = [sample_approval(root) for _ in range(6)]
    await stores[0].commit(Commit(approvals=approvals))

    async def decide(number: int) -> None:
        decisions: list[Decision] = [as_decision(approval.id) for approval in approvals]
        random.Random(number).shuffle(decisions)
        await stores[number % 3].decide([replace(decision, by=str(number)) for decision in decisions])

    results = await asyncio.gather(*(decide(number) for number in range(12)), return_exceptions=True)
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, ApprovalAnsweredError) for result in results) == 11
    answered = await stores[0].approvals(status=None)
    assert len({approval.decided_by for approval in answered}) == 1


async def test_answers_are_claimed_by_one_of_many_runs(stores: list[SqlStore]) -> None:
    dialogue = Dialogue(stores[0])
    root = await dialogue.begin()
    await stores[0].commit(Commit(approvals=[sample_approval(root) for _ in range(3)]))
    claims = (stores[n % 3].claim_approvals(root.id, new_id()) for n in range(9))
    results = await asyncio.gather(*claims, return_exceptions=True)
    assert sum(isinstance(result, list) for result in results) == 1
    assert sum(isinstance(result, ApprovalAnsweredError) for result in results) == 8


async def test_directory_is_claimed_by_one_of_many_runs(stores: list[SqlStore]) -> None:
    """Both a directory that the store does not know, and one that is free."""
    dialogue = Dialogue(stores[0])
    await dialogue.begin()
    runs = [sample_run(dialogue.id) for _ in range(9)]
    await stores[0].commit(Commit(runs=runs, workspaces=[WorkspaceRecord('{"id":"free"}', None, None)]))
    for place in ('{"id":"new"}', '{"id":"free"}'):
        claims = (stores[n % 3].claim_workspace(place, run.id, None) for n, run in enumerate(runs))
        assert sorted(await asyncio.gather(*claims)) == [False] * 8 + [True]


async def test_fence_and_takeover_exclude_each_other(stores: list[SqlStore]) -> None:
    """A commit waits for a takeover in progress and is refused; a takeover waits for a commit in progress."""
    one, other, _ = stores
    dialogue = Dialogue(one)
    root = await dialogue.begin()
    run = sample_run(dialogue.id)
    await one.commit(Commit(runs=[run]))
    step = Commit(fence=run.id, versions=[dialogue.version(parent_id=root.id, run_id=run.id)])
    takeover = partial(claim_run, run.id, one.owner, other.owner)
    async with held_open(one, committing(one, step)):
        taken = asyncio.create_task(other.engine.write(takeover))
        await has_started_to_wait(other)
    assert await taken
    async with held_open(other, claim_run(run.id, other.owner, one.owner)):
        late = asyncio.create_task(
            other.commit(Commit(fence=run.id, versions=[dialogue.version(parent_id=root.id, run_id=run.id)]))
        )
        await has_started_to_wait(other)
    with pytest.raises(RunTakenOverError):
        await late
    assert await one.count() == 2


async def test_call_that_two_commits_store_keeps_its_first_fields(stores: list[SqlStore]) -> None:
    dialogue = Dialogue(stores[0])
    await dialogue.begin()
    run = sample_run(dialogue.id)
    await stores[0].commit(Commit(runs=[run]))
    calls = [sample_call(run.id, 'r', 'c', arguments=f'{{"n":{n}}}') for n in range(9)]
    await asyncio.gather(*(stores[n % 3].commit(Commit(calls=[call])) for n, call in enumerate(calls)))
    assert len(await stores[0].calls([run.id])) == 1
    assert await stores[0].check() == []


async def test_version_that_a_commit_refers_to_is_not_deleted_before_the_commit_ends(stores: list[SqlStore]) -> None:
    """The deletion sees the new child and cuts its edge."""
    one, other, _ = stores
    dialogue, elsewhere = Dialogue(one), Dialogue(one)
    root = await dialogue.begin()
    await elsewhere.begin()
    child = elsewhere.version(parent_id=root.id)
    async with held_open(one, committing(one, Commit(versions=[child]))):
        deletion = asyncio.create_task(other.delete(root.id))
        await has_started_to_wait(other)
    await deletion
    assert (await one.lineage(child.id)).truncated_at == root.id
    assert await one.check() == []


class Note(BaseModel):
    id: str
    text: str = ''
    size: int = 0


async def test_repositories_write_at_the_same_time(stores: list[SqlStore]) -> None:
    """Writes of different keys do not wait for each other, and those of the same keys in other orders succeed."""
    first, second = [await SqlRepository.open(store, Note) for store in stores[:2]]
    table = 'rows_note'

    def insert() -> Operation[None]:
        yield Statement(f"INSERT INTO {table} (key, body) VALUES ('held', '{{}}')")

    async with held_open(stores[2], insert()) as task:
        await first.upsert(Note(id='a'))
        await second.apply([Upsert(Note(id='b')), Upsert(Note(id='c'))])
        assert not task.done()
    for _ in range(5):
        await asyncio.gather(
            first.apply([Upsert(Note(id=key)) for key in 'abcdef']),
            second.apply([Upsert(Note(id=key)) for key in 'fedcba']),
        )
    assert await first.count() == 7


async def test_column_added_during_a_write_is_filled_for_its_rows(stores: list[SqlStore]) -> None:
    """Adding a column waits for writes in progress, which may have read the columns before."""
    first = await SqlRepository.open(stores[0], Note)
    table = 'rows_note'

    def insert() -> Operation[None]:
        yield Statement(f"""INSERT INTO {table} (key, body) VALUES ('a', '{{"id":"a","text":"x","size":3}}')""")

    async with held_open(stores[2], insert()):
        opening = asyncio.create_task(SqlRepository.open(stores[1], Note, fields=('size',)))
        await asyncio.sleep(0.05)
        assert not opening.done()
        later = asyncio.create_task(first.upsert(Note(id='b', size=3)))
    second = await opening
    await later
    assert await second.count({'size': 3}) == 2


async def test_counts_of_ended_connections_are_merged(postgres_url: str) -> None:
    """Each connection counts the rows that it inserts in rows of its own; a collection merges those of ended ones."""

    def writers() -> Operation[Any]:
        rows = yield Statement("SELECT COUNT(*) FROM tally WHERE name = 'version' AND length(parent) = 0")
        return rows[0][0]

    for number in range(1, 4):
        async with open_store(postgres_url) as store:
            await Dialogue(store).begin()
            assert await store.engine.read(writers) == number
    async with open_store(postgres_url) as store:
        await store.gc()
        assert await store.engine.read(writers) == 1
        assert await store.check() == []
        assert await store.count() == 3


@pytest.mark.slow
async def test_collection_and_commits_at_the_same_time_lose_nothing(stores: list[SqlStore]) -> None:
    """Versions with shared content are committed, deleted and collected at once; those that remain are complete."""
    await hammer(stores, rounds=6, tasks=4)


@pytest.mark.slow
async def test_many_concurrent_operations_end_without_a_deadlock_or_damage(stores: list[SqlStore]) -> None:
    """All kinds of writes, on few conversations, approvals, directories and keys, with collections in between."""
    await hammer(stores, rounds=15, tasks=12)


async def hammer(stores: list[SqlStore], *, rounds: int, tasks: int) -> None:
    shared = [sample_asset(b'file %d' % number) for number in range(5)]
    dialogues = [Dialogue(stores[0]) for _ in range(3)]
    roots = [await dialogue.begin() for dialogue in dialogues]
    notes = [await SqlRepository.open(store, Note) for store in stores]
    versions: list[list[VersionRecord]] = [[root] for root in roots]

    async def step(store: SqlStore, chance: random.Random) -> None:
        place = chance.randrange(3)
        dialogue = Dialogue(store, dialogues[place].id, dialogues[place].branch_id)
        files = chance.sample(shared, 3)
        deps = sample_asset(b'{"f":["%s"]}' % b'","'.join(file.digest.encode() for file in files), 'application/json')
        tree = Tree.of({f'/{n}': FileVersion(digest=f.digest, size=6, mode=0o644) for n, f in enumerate(files)})
        run = sample_run(dialogue.id)
        content: dict[str, object] = {'assets': [*files, deps], 'nodes': dict(tree.nodes()), 'runs': [run]}
        parent = chance.choice(versions[place])
        version = await dialogue.add(
            parent,
            b'{"n":%d}' % chance.randrange(10**9),
            commit=content,
            deps=deps.digest,
            tree=tree.digest,
            run_id=run.id,
        )
        versions[place].append(version)
        approvals = [sample_approval(version) for _ in range(2)]
        await store.commit(Commit(fence=run.id, approvals=approvals, calls=[sample_call(run.id, 'r', 'c')]))
        decisions: list[Decision] = [as_decision(approval.id) for approval in approvals]
        await store.decide(chance.sample(decisions, 2))
        await store.claim_workspace(f'{{"id":"{place}"}}', run.id, None)
        await notes[stores.index(store)].apply([Upsert(Note(id=key)) for key in chance.sample('abcdef', 4)])
        if chance.random() < 0.4:
            await store.delete_line(chance.choice(versions[place]).id)
        if chance.random() < 0.4:
            await store.delete(chance.choice(versions[place]).id)
        if chance.random() < 0.3:
            await store.gc(0)

    async def many(number: int) -> None:
        chance = random.Random(number)
        for _ in range(rounds):
            try:
                await step(stores[number % 3], chance)
            except (StoreError, ValueError) as error:  # the parent, or its branch, was deleted by another task
                failures.append(error)

    failures: list[Exception] = []
    await asyncio.gather(*(many(number) for number in range(tasks)))
    assert not [error for error in failures if isinstance(error, StoreUnavailableError)], (
        'a deadlock that was not retried'
    )
    assert await stores[0].check() == []
    for version in await stores[0].versions(limit=1000):
        await stores[0].lineage(version.id)
        assert len(await stores[0].messages(version.branch_id, version.message_count)) == version.message_count
