"""The queue of runs: order, claims, limits and logs are the same in every database and for all processes."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from pydantic_deep import open_store
from pydantic_deep.errors import ValidationError
from pydantic_deep.store import (
    Commit,
    HeadMove,
    LoggedEntries,
    QueuedRunRecord,
    QueueLimitError,
    RunEnd,
    RunQueue,
    RunTakenOverError,
    SqlStore,
    VersionBusyError,
    VersionNotFoundError,
    new_id,
    now,
)
from pydantic_deep.store._samples import Dialogue, sample_run
from pydantic_deep.store.engine import Value
from pydantic_deep.store.postgres._driver import connect
from tests.store.conftest import Ask

pytestmark = pytest.mark.anyio

AGENTS = ['analyst']


class Processes:
    """Stores that are open on one database, each like a process of its own."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack

    async def open(self) -> SqlStore:
        return await self._stack.enter_async_context(open_store(self._url))


@pytest.fixture(params=['memory', 'sqlite', 'postgres'])
async def processes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Processes]:
    url = {'memory': f'memory:{tmp_path.name}', 'sqlite': f'sqlite:///{tmp_path}/store.db'}.get(request.param)
    async with AsyncExitStack() as stack:
        yield Processes(url or request.getfixturevalue('postgres_url'), stack)


@pytest.fixture
async def store(processes: Processes) -> SqlStore:
    return await processes.open()


@pytest.fixture
async def other(processes: Processes) -> SqlStore:
    """The store of another process."""
    return await processes.open()


def queued(conversation_id: str, **fields: object) -> QueuedRunRecord:
    run = QueuedRunRecord(
        run_id=new_id(),
        conversation_id=conversation_id,
        base_id=None,
        agent_name='analyst',
        account='ann',
        key_id='k',
        priority=0,
        prompt=b'"Hello"',
        options='{}',
        submitted_at=now(),
    )
    return run._replace(**fields)


async def add(queue: RunQueue, *conversations: str, **fields: object) -> list[QueuedRunRecord]:
    runs = [queued(conversation, **fields) for conversation in conversations]
    for run in runs:
        await queue.add(run)
    return runs


async def claimed(queue: RunQueue, run: QueuedRunRecord) -> QueuedRunRecord:
    claim = await queue.claim(run.run_id)
    assert claim is not None
    return claim


def ids(runs: Sequence[QueuedRunRecord]) -> list[str]:
    return [run.run_id for run in runs]


async def test_run_is_returned_as_it_was_added(store: SqlStore, other: SqlStore) -> None:
    run = queued(new_id(), base_id=new_id(), prompt=None, options='{"model": "ä"}')
    await store.queue.add(run)
    assert await other.queue.get(run.run_id) == run
    assert await other.queue.get(new_id()) is None
    assert (await other.queue.measures())['oldest_queued_at'] == run.submitted_at


async def test_run_is_added_once(store: SqlStore) -> None:
    (run,) = await add(store.queue, new_id())
    with pytest.raises(ValueError, match='is queued already'):
        await store.queue.add(run)


async def test_turns_of_a_conversation_are_ready_one_after_another(store: SqlStore) -> None:
    """They are ready in the order of their submission, whatever their priority; those of others do not wait."""
    a, b = new_id(), new_id()
    first, second = await add(store.queue, a, a)
    (urgent,) = await add(store.queue, a, priority=9)
    (elsewhere,) = await add(store.queue, b)
    assert ids(await store.queue.ready(AGENTS)) == ids([first, elsewhere])
    assert await store.queue.claim(second.run_id) is None
    await claimed(store.queue, first)
    assert ids(await store.queue.ready(AGENTS)) == ids([elsewhere])
    await store.queue.end(first.run_id)
    assert ids(await store.queue.ready(AGENTS)) == ids([second, elsewhere])
    await claimed(store.queue, second)
    await store.queue.end(second.run_id)
    assert ids(await store.queue.ready(AGENTS)) == ids([urgent, elsewhere])


async def test_turn_from_a_version_does_not_wait_and_is_waited_for(store: SqlStore) -> None:
    a = new_id()
    (first,) = await add(store.queue, a)
    (resumption,) = await add(store.queue, a, base_id=new_id())
    (last,) = await add(store.queue, a)
    assert ids(await store.queue.ready(AGENTS)) == ids([first, resumption])
    await claimed(store.queue, first)
    await store.queue.end(first.run_id)
    assert ids(await store.queue.ready(AGENTS)) == ids([resumption])
    await claimed(store.queue, resumption)
    await store.queue.end(resumption.run_id)
    assert ids(await store.queue.ready(AGENTS)) == ids([last])


async def test_turns_wait_until_the_head_has_no_pending_approvals(store: SqlStore) -> None:
    dialogue = Dialogue(store)
    root = await dialogue.begin()
    paused = await dialogue.add(root, state='awaiting_approval')
    await move_head(store, dialogue.id, root.id, paused.id)
    (waiting,) = await add(store.queue, dialogue.id)
    assert await store.queue.ready(AGENTS) == []
    assert await store.queue.claim(waiting.run_id) is None
    (resumption,) = await add(store.queue, dialogue.id, base_id=paused.id)
    assert ids(await store.queue.ready(AGENTS)) == ids([resumption])
    resumed = await dialogue.add(paused)
    await move_head(store, dialogue.id, paused.id, resumed.id)
    assert ids(await store.queue.ready(AGENTS)) == ids([waiting, resumption])


async def move_head(store: SqlStore, conversation_id: str, expected_id: str, version_id: str) -> None:
    move = HeadMove(conversation_id=conversation_id, expected_id=expected_id, version_id=version_id)
    await store.commit(Commit(heads=[move]))


async def test_ready_runs_are_ordered_by_priority_and_age_and_limited(store: SqlStore) -> None:
    await add(store.queue, new_id(), agent_name='writer')
    old, new = await add(store.queue, new_id(), new_id())
    (urgent,) = await add(store.queue, new_id(), priority=1)
    assert ids(await store.queue.ready(AGENTS)) == ids([urgent, old, new])
    assert ids(await store.queue.ready(AGENTS, limit=2)) == ids([urgent, old])
    assert len(await store.queue.ready(['writer', *AGENTS])) == 4
    assert await store.queue.ready([]) == []
    with pytest.raises(ValidationError):
        await store.queue.ready(AGENTS, limit=-1)


async def test_one_of_many_claims_succeeds(store: SqlStore, other: SqlStore) -> None:
    (run,) = await add(store.queue, new_id())
    claims: list[QueuedRunRecord | None] = []

    async def claim(queue: RunQueue) -> None:
        claims.append(await queue.claim(run.run_id))

    async with anyio.create_task_group() as group:
        for store_of_claim in [store, other] * 5:
            group.start_soon(claim, store_of_claim.queue)
    (claim_of_one,) = [each for each in claims if each is not None]
    assert (claim_of_one.state, claim_of_one.epoch) == ('running', 1)
    assert claim_of_one.node == store.queue.node
    assert claim_of_one.started_at == claim_of_one.heartbeat_at is not None
    assert (len(claims), claim_of_one) == (10, await store.queue.get(run.run_id))


async def test_claim_of_a_living_worker_holds_and_that_of_a_dead_one_does_not(store: SqlStore, other: SqlStore) -> None:
    (run,) = await add(store.queue, new_id())
    first = await claimed(other.queue, run)
    assert await store.queue.claim(run.run_id) is None
    assert await store.queue.dead_workers() == []
    await other.aclose()
    assert await store.queue.ready(AGENTS) == []
    assert await store.queue.dead_workers() == [first.worker]
    assert ids(await store.queue.ready(AGENTS, workers=[str(first.worker)])) == [run.run_id]
    second = await claimed(store.queue, run)
    assert (second.worker, second.epoch, second.started_at) == (store.owner, 2, first.started_at)


async def test_run_that_is_released_can_be_claimed_by_others(store: SqlStore, other: SqlStore) -> None:
    (run,) = await add(store.queue, new_id())
    await claimed(store.queue, run)
    await other.queue.release(run.run_id)
    assert await other.queue.claim(run.run_id) is None
    await store.queue.release(run.run_id, problem='The disk is full.')
    released = await other.queue.get(run.run_id)
    assert released is not None
    assert (released.state, released.worker, released.problem) == ('queued', None, 'The disk is full.')
    again = await claimed(other.queue, run)
    assert (again.epoch, again.problem) == (2, None)


async def test_only_the_worker_of_a_claim_ends_it(store: SqlStore, other: SqlStore) -> None:
    (run,) = await add(store.queue, new_id())
    await claimed(store.queue, run)
    assert not await other.queue.end(run.run_id)
    assert await store.queue.end(run.run_id, problem='It is over.')
    assert not await store.queue.end(run.run_id)
    ended = await other.queue.get(run.run_id)
    assert ended is not None
    assert (ended.state, ended.worker, ended.problem) == ('ended', None, 'It is over.')
    assert ended.ended_at is not None
    assert await other.queue.claim(run.run_id) is None
    assert await other.queue.claim(new_id()) is None


async def test_only_a_queued_run_gets_a_reason_for_waiting(store: SqlStore) -> None:
    (run,) = await add(store.queue, new_id())
    await store.queue.explain(run.run_id, 'No worker has it.')
    explained = await store.queue.get(run.run_id)
    assert explained is not None
    assert explained.problem == 'No worker has it.'
    await claimed(store.queue, run)
    await store.queue.explain(run.run_id, 'No worker has it.')
    claim = await store.queue.get(run.run_id)
    assert claim is not None
    assert claim.problem is None


async def test_limits_count_runs_of_all_processes_that_have_not_ended(store: SqlStore, other: SqlStore) -> None:
    (first,) = await add(store.queue, new_id())
    await add(other.queue, new_id(), key_id=None)
    with pytest.raises(QueueLimitError, match='2 runs of this store are already active') as refused:
        await store.queue.add(queued(new_id()), max_active=2)
    assert (refused.value.count, refused.value.is_of_key) == (2, False)
    with pytest.raises(QueueLimitError, match='1 runs of this key') as refused:
        await other.queue.add(queued(new_id()), max_active=3, max_of_key=1)
    assert refused.value.is_of_key
    await other.queue.add(queued(new_id(), key_id=None), max_active=3, max_of_key=1)
    await claimed(store.queue, first)
    await store.queue.end(first.run_id)
    await other.queue.add(queued(new_id()), max_active=3, max_of_key=1)


async def test_limit_holds_against_concurrent_submissions(store: SqlStore, other: SqlStore) -> None:
    refused: list[QueueLimitError] = []

    async def submit(queue: RunQueue) -> None:
        try:
            await queue.add(queued(new_id()), max_active=3)
        except QueueLimitError as error:
            refused.append(error)

    async with anyio.create_task_group() as group:
        for store_of_submission in [store, other] * 5:
            group.start_soon(submit, store_of_submission.queue)
    assert (len(refused), len(await store.queue.list())) == (7, 3)


async def test_exclusive_run_from_a_version_is_refused_while_another_is_active(
    store: SqlStore, other: SqlStore
) -> None:
    """Of runs that are added at the same time, the first one is accepted. Runs from other versions do not matter."""
    dialogue = Dialogue(store)
    root = await dialogue.begin()
    conversation, base_id, later_id = dialogue.id, root.id, (await dialogue.add(root)).id
    runs = [queued(conversation, base_id=base_id) for _ in range(6)]
    refused: list[VersionBusyError] = []

    async def submit(queue: RunQueue, run: QueuedRunRecord) -> None:
        try:
            await queue.add(run, exclusive=True)
        except VersionBusyError as error:
            refused.append(error)

    async with anyio.create_task_group() as group:
        for at, run in enumerate(runs):
            group.start_soon(submit, (store, other)[at % 2].queue, run)
    (first,) = await store.queue.list()
    assert [error.run_id for error in refused] == [first.run_id] * 5

    await store.queue.add(queued(conversation, base_id=later_id), exclusive=True)
    await store.queue.add(queued(conversation), exclusive=True)
    await store.queue.add(queued(conversation, base_id=base_id))
    with pytest.raises(ValueError, match='is queued already'):
        await store.queue.add(first._replace(base_id=(await dialogue.add(root)).id), exclusive=True)
    with pytest.raises(VersionNotFoundError):
        await store.queue.add(queued(conversation, base_id=new_id()), exclusive=True)
    running = sample_run(conversation, base_id=(await dialogue.add(root)).id)
    await store.commit(Commit(runs=[running]))
    with pytest.raises(VersionBusyError, match=running.id):
        await RunQueue(store.engine).add(queued(conversation, base_id=running.base_id), exclusive=True)


async def test_conversation_with_an_active_run_is_deleted_entirely_or_not(store: SqlStore, other: SqlStore) -> None:
    """A run that starts from an early version preserves the later ones, too."""
    dialogue, another = Dialogue(store), Dialogue(store)
    root = await dialogue.begin()
    await dialogue.add(await dialogue.add(root))
    await another.begin()
    ids = [another.id, dialogue.id]
    run = queued(dialogue.id, base_id=root.id)
    await other.queue.add(run, exclusive=True)
    with pytest.raises(VersionBusyError, match=run.run_id):
        await store.delete_conversations(ids)
    assert await store.count() == 4

    await other.queue.request_cancel(run.run_id)
    running = sample_run(dialogue.id, base_id=root.id)
    await other.commit(Commit(runs=[running]))
    with pytest.raises(VersionBusyError, match=running.id):
        await store.delete_conversations(ids)
    assert await store.count() == 4

    await other.commit(Commit(ends=[RunEnd(run_id=running.id, state='failed')]))
    await store.delete_conversations(ids)
    assert await store.count() == 0
    assert await other.check() == []


async def test_run_whose_last_attempt_has_ended_is_not_active(store: SqlStore) -> None:
    """The store has the end of a run before the queue has it. Another attempt may follow an interrupted one."""
    dialogue = Dialogue(store)
    base_id = (await dialogue.begin()).id
    (run,) = await add(store.queue, dialogue.id, base_id=base_id)
    later = queued(dialogue.id, base_id=base_id)
    crashed = sample_run(dialogue.id, id=run.run_id)
    second = sample_run(dialogue.id, attempt_of=crashed.id)
    for commit in (
        Commit(runs=[crashed]),
        Commit(ends=[RunEnd(run_id=crashed.id, state='interrupted')], runs=[second]),
    ):
        await store.commit(commit)
        with pytest.raises(VersionBusyError):
            await store.queue.add(later, exclusive=True)

    await store.commit(Commit(ends=[RunEnd(run_id=second.id, state='complete')]))
    await store.queue.add(later, exclusive=True)


async def test_cancelled_run_that_never_began_ends_at_once(store: SqlStore, other: SqlStore) -> None:
    (run,) = await add(store.queue, new_id())
    cancelled = await other.queue.request_cancel(run.run_id)
    assert cancelled is not None
    assert (cancelled.state, cancelled.problem) == ('ended', 'It was cancelled before it began.')
    assert await store.queue.claim(run.run_id) is None
    assert await store.queue.request_cancel(new_id()) is None


async def test_worker_reads_the_requests_to_cancel_its_runs(store: SqlStore, other: SqlStore) -> None:
    mine, theirs = await add(store.queue, new_id(), new_id())
    await claimed(store.queue, mine)
    await claimed(other.queue, theirs)
    running = await other.queue.request_cancel(mine.run_id)
    assert running is not None
    assert (running.state, running.cancelled_at is None) == ('running', False)
    again = await other.queue.request_cancel(mine.run_id)
    assert again == running
    assert (await store.queue.cancelled(), await other.queue.cancelled()) == ([mine.run_id], [])


async def test_process_reads_the_requests_to_cancel_its_runs_that_were_not_queued(
    store: SqlStore, other: SqlStore
) -> None:
    """The run that continues a crashed one has the ids of both, since its process may know it by either."""
    dialogue = Dialogue(store)
    await dialogue.begin()
    crashed, ended = sample_run(dialogue.id), sample_run(dialogue.id)
    mine = sample_run(dialogue.id, attempt_of=crashed.id, owner=store.owner)
    theirs = sample_run(dialogue.id, owner=other.owner)
    runs = [run._replace(owner=run.owner or store.owner) for run in (crashed, ended, mine, theirs)]
    for run in runs:
        await (other if run is runs[-1] else store).commit(Commit(runs=[run]))
    for done in (crashed, ended):
        await store.commit(Commit(ends=[RunEnd(run_id=done.id, state='interrupted')]))

    for run in (ended, mine, mine):
        assert await other.queue.request_cancel(run.id) is None

    assert sorted(await store.queue.cancelled()) == sorted([mine.id, crashed.id])
    assert await other.queue.cancelled() == []
    assert await other.queue.cancelled_among([run.id for run in runs]) == {mine.id}
    assert await store.check() == []


async def test_cancelled_run_waits_for_no_other(store: SqlStore) -> None:
    """A run that a worker gave back is ended by the next worker, also while a turn before it waits."""
    a = new_id()
    (second,) = await add(store.queue, a, base_id=new_id())
    await claimed(store.queue, second)
    await store.queue.release(second.run_id)
    first, given_back = await add(store.queue, a, a)
    assert ids(await store.queue.ready(AGENTS)) == [second.run_id]
    await store.queue.request_cancel(given_back.run_id)
    assert ids(await store.queue.list()) == ids([first, second])
    await store.queue.request_cancel(second.run_id)
    assert (await claimed(store.queue, second)).cancelled_at is not None


async def test_runs_are_listed_newest_first(store: SqlStore, other: SqlStore) -> None:
    a, b = new_id(), new_id()
    one, two = await add(store.queue, a, b)
    (three,) = await add(other.queue, a, account='bob')
    await claimed(other.queue, one)
    assert ids(await other.queue.list()) == ids([three, two, one])
    assert ids(await other.queue.list(limit=1)) == [three.run_id]
    assert ids(await store.queue.list(account='ann')) == ids([two, one])
    assert ids(await store.queue.list(conversation_id=a)) == ids([three, one])
    assert ids(await store.queue.list(worker=other.owner)) == [one.run_id]
    await other.queue.end(one.run_id)
    assert ids(await store.queue.list()) == ids([three, two])
    assert ids(await store.queue.list(ended=True)) == ids([three, two, one])
    assert len(await store.queue.get_all([one.run_id, two.run_id, new_id()])) == 2


async def test_measures_count_queued_and_running_runs(store: SqlStore) -> None:
    assert await store.queue.measures() == {'queued': 0, 'running': 0, 'oldest_queued_at': 0}
    first, second, third = await add(store.queue, new_id(), new_id(), new_id())
    await claimed(store.queue, first)
    assert await store.queue.measures() == {'queued': 2, 'running': 1, 'oldest_queued_at': second.submitted_at}
    await store.queue.request_cancel(second.run_id)
    assert (await store.queue.measures())['oldest_queued_at'] == third.submitted_at


async def test_only_the_runs_of_a_worker_report(store: SqlStore, other: SqlStore) -> None:
    mine, theirs = await add(store.queue, new_id(), new_id())
    before = [await claimed(store.queue, mine), await claimed(other.queue, theirs)]
    await store.queue.beat()
    after = [run for each in before if (run := await store.queue.get(each.run_id)) is not None]
    assert str(after[0].heartbeat_at) > str(before[0].heartbeat_at)
    assert after[1] == before[1]


async def test_events_are_appended_without_a_flush(ask_durable_postgres: Ask) -> None:
    """Events are for clients that read along, so a run does not wait until they are on disk."""
    url = ask_durable_postgres('database')
    server = await connect(url)
    await server.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")  # or the server flushes meanwhile
    await server.execute('SELECT pg_reload_conf()')

    async def flushed() -> Value:
        ((place,),) = await server.fetch('SELECT pg_current_wal_flush_lsn()')
        return place

    async with open_store(url) as store:
        (run,) = await add(store.queue, new_id())
        claim = await claimed(store.queue, run)
        before = await flushed()
        assert await store.queue.append(claim, 0, [b'one'])
        assert await flushed() == before
        await store.queue.beat()
        assert await flushed() != before
    await server.close(timeout=5)


async def test_log_has_its_entries_in_order(store: SqlStore, other: SqlStore) -> None:
    (run,) = await add(store.queue, new_id())
    claim = await claimed(store.queue, run)
    assert await store.queue.append(claim, 0, [b'one', b''])
    assert await store.queue.append(claim, 2, [b'three'])
    assert await other.queue.entries(run.run_id, 1) == [
        LoggedEntries(first=1, entries=[b'one', b'']),
        LoggedEntries(first=3, entries=[b'three']),
    ]
    assert await other.queue.entries(run.run_id, 1, after=1) == await other.queue.entries(run.run_id, 1)
    assert [part.first for part in await other.queue.entries(run.run_id, 1, after=2)] == [3]
    assert await other.queue.entries(run.run_id, 1, after=3) == []
    known = await other.queue.get(run.run_id)
    assert known is not None
    assert known.position == 3


async def test_long_log_is_read_in_pages(store: SqlStore) -> None:
    (run,) = await add(store.queue, new_id())
    claim = await claimed(store.queue, run)
    for number in range(201):
        await store.queue.append(claim, number, [b'%d' % number])
    first = await store.queue.entries(run.run_id, 1)
    rest = await store.queue.entries(run.run_id, 1, after=200)
    assert [entry for part in first for entry in part.entries] == [b'%d' % number for number in range(200)]
    assert [entry for part in rest for entry in part.entries] == [b'200']


async def test_log_accepts_entries_once_and_from_the_newest_claim_only(store: SqlStore, other: SqlStore) -> None:
    (run,) = await add(store.queue, new_id())
    old = await claimed(store.queue, run)
    assert await store.queue.append(old, 0, [b'old'])
    assert not await store.queue.append(old, 0, [b'again'])
    await store.queue.release(run.run_id)
    new = await claimed(other.queue, run)
    assert not await store.queue.append(old, 1, [b'late'])
    assert await other.queue.append(new, 0, [b'new'])
    assert await store.queue.entries(run.run_id, 2) == [LoggedEntries(first=1, entries=[b'new'])]
    assert await store.queue.entries(run.run_id, 1) == [LoggedEntries(first=1, entries=[b'old'])]


async def test_only_runs_that_ended_long_ago_are_pruned_with_their_logs(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = itertools.count(now() - 10_000_000, 1_000_000)

    async def time(queue: RunQueue) -> int:
        return next(moments)

    monkeypatch.setattr(RunQueue, 'time', time)
    old, new, running = await add(store.queue, new_id(), new_id(), new_id())
    for run in (old, new, running):
        await store.queue.append(await claimed(store.queue, run), 0, [b'entry'])
    for run in (old, new):
        await store.queue.end(run.run_id)
    assert await store.queue.prune(1.5) == 1
    assert ids(await store.queue.list(ended=True)) == ids([running, new])
    assert await store.queue.entries(old.run_id, 1) == []
    assert len(await store.queue.entries(new.run_id, 1)) == 1
    with pytest.raises(ValidationError):
        await store.queue.prune(-1)


async def test_runs_are_pruned_by_the_clock_of_postgresql(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clocks of machines may differ: of the one that ends a run, and of the one that prunes it."""

    def set_clock(offset_seconds: int) -> None:
        monkeypatch.setattr('pydantic_deep.store._run_queue.now', lambda: now() + offset_seconds * 1_000_000)

    async with open_store(postgres_url) as store:
        for end, prune in ((-3600, 0), (0, 3600)):
            (run,) = await add(store.queue, new_id())
            await claimed(store.queue, run)
            set_clock(end)
            await store.queue.end(run.run_id)
            set_clock(prune)
            assert await store.queue.prune(60) == 0
            assert await store.queue.prune(0) == 1


async def test_released_run_is_taken_over_and_its_commits_are_refused(store: SqlStore, other: SqlStore) -> None:
    """`release_run` gives up a run of a process that is alive; it has no effect on runs of others."""
    run = sample_run(new_id())
    dialogue = Dialogue(store, id=run.conversation_id)
    await dialogue.begin()
    await store.commit(Commit(runs=[run]))
    assert not await other.claim_run(run.id)
    assert not await other.release_run(run.id)
    assert await store.release_run(run.id)
    assert [orphan.id for orphan in await store.orphans()] == [run.id]
    assert await other.claim_run(run.id)
    assert not await store.release_run(run.id)
    with pytest.raises(RunTakenOverError):
        await store.commit(Commit(fence=run.id))
