"""Operations during which another write commits: it is interposed between two statements, on SQLite in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from pydantic_deep.store import (
    Append,
    BranchRecord,
    Commit,
    ConversationRecord,
    GarbageReport,
    HeadMove,
    NewMessage,
    SqlStore,
    VersionNotFoundError,
    VersionRecord,
    new_id,
)
from pydantic_deep.store._samples import MOMENT, Dialogue, sample_asset, sample_run
from pydantic_deep.store.engine import Operation, Statement
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.store.operations import _garbage_collection
from pydantic_deep.store.operations._commits import commit
from pydantic_deep.store.operations._deletions import delete, delete_line
from pydantic_deep.store.sql._commit_rows import prepare
from pydantic_deep_backends.snapshots import FileVersion, Tree
from tests.store.operations.conftest import interposed, recorded, statements

pytestmark = pytest.mark.anyio

T = TypeVar('T')


class WatchedEngine(MemoryEngine):
    """Calls a function before each write, which may write itself or fail."""

    before_write: Callable[[int], Awaitable[None]] | None = None
    writes = 0

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        watch, self.before_write = self.before_write, None
        if watch is not None:
            self.writes += 1
            try:
                await watch(self.writes)
            finally:
                self.before_write = watch
        return await super().write(operation)


@pytest.fixture(autouse=True)
def several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small collections consist of several transactions, as large ones do."""
    monkeypatch.setattr(_garbage_collection, '_WHOLE', -1)


@pytest.fixture
async def engine() -> WatchedEngine:
    return WatchedEngine.open()


@pytest.fixture
async def store(engine: WatchedEngine) -> SqlStore:
    return SqlStore(engine)


async def garbage(store: SqlStore) -> tuple[Dialogue, VersionRecord]:
    """Store two dialogues with trees and assets, and delete the end of one and all of the other."""
    for is_whole in (True, False):
        dialogue = Dialogue(store)
        version = first = await dialogue.begin(metadata='{"is_whole":true}' if is_whole else '{}')
        for number in range(6):
            file = sample_asset(b'%d %d' % (number, is_whole))
            deps = sample_asset(b'{"file":"%s"}' % file.digest.encode(), 'application/json')
            tree = Tree.of({f'/d/{number}': FileVersion(digest=file.digest, size=3, mode=0o644)})
            content: dict[str, object] = {'assets': [file, deps], 'nodes': dict(tree.nodes())}
            body = b'{"n":%d,"is_whole":%d,"f":"%s"}' % (number, is_whole, file.digest.encode())
            version = await dialogue.add(version, body, commit=content, deps=deps.digest, tree=tree.digest)
            first = version if number == 1 else first
        await dialogue.add(first, b'fork')
        for each in await store.versions():
            if each.conversation_id == dialogue.id and (is_whole or each.number > first.number):
                await store.delete(each.id)
    return dialogue, first


@pytest.mark.slow
@pytest.mark.parametrize('batch', [1, 3, 500])
async def test_collection_that_fails_leaves_a_complete_store_and_the_next_one_continues(
    engine: WatchedEngine, store: SqlStore, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection is a sequence of short transactions. After each of them the store is complete."""
    monkeypatch.setattr(_garbage_collection, '_BATCH', batch)
    dialogue, first = await garbage(store)
    stop = 0

    async def fail(number: int) -> None:
        if number == stop:
            raise RuntimeError('power cut')

    engine.before_write = fail
    while True:
        engine.writes, stop = 0, stop + 1
        try:
            report = await store.gc(0)
        except RuntimeError:
            assert await store.check() == []
            continue
        break
    assert stop > (6 if batch == 500 else 11)
    assert report.condemned == 0
    assert len(await dialogue.history(first)) == 2
    assert await store.count() == 3


async def test_report_counts_what_was_removed_in_all_transactions(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await garbage(store)
    monkeypatch.setattr(_garbage_collection, '_BATCH', 2)
    report = await store.gc(0)
    assert dict(report.removed) == {
        'conversation': 1, 'branch': 3, 'message': 12, 'node': 20, 'asset': 20, 'run': 0,
    }  # fmt: skip
    assert report.freed_bytes > 100


Interpose = Callable[[SqlStore, Dialogue, VersionRecord], Awaitable[object]]


def append_at(position: int, branch_id: str) -> Append:
    return Append(
        branch_id=branch_id, at=position, messages=[NewMessage(id=new_id(), body=b'again')], fork_id=new_id()
    )  # fmt: skip


async def name_tail(store: SqlStore, dialogue: Dialogue, first: VersionRecord) -> None:
    """Continue the branch after its unreachable messages, which are then part of a version."""
    version = dialogue.version(parent_id=first.id, message_count=7)
    await store.commit(Commit(append=append_at(6, first.branch_id), versions=[version]))


async def name_asset(store: SqlStore, dialogue: Dialogue, first: VersionRecord) -> None:
    """Refer to a file that is unreachable, and to an asset that mentions another one."""
    file = sample_asset(b'5 0')
    deps = sample_asset(b'{"file":"%s"}' % file.digest.encode(), 'application/json')
    await store.commit(Commit(versions=[dialogue.version(parent_id=first.id, deps=deps.digest)]))


async def name_tree(store: SqlStore, dialogue: Dialogue, first: VersionRecord) -> None:
    """Refer to a tree that is unreachable, without its nodes and files."""
    tree = Tree.of({'/d/5': FileVersion(digest=sample_asset(b'5 0').digest, size=3, mode=0o644)})
    await store.commit(Commit(versions=[dialogue.version(parent_id=first.id, tree=tree.digest)]))


async def name_config(store: SqlStore, dialogue: Dialogue, first: VersionRecord) -> None:
    """Use a configuration that no version has any more."""
    await store.commit(Commit(versions=[dialogue.version(parent_id=first.id, metadata='{"is_whole":true}')]))


async def name_conversation(store: SqlStore, dialogue: Dialogue, first: VersionRecord) -> None:
    """Continue a conversation without versions."""
    [conversation] = [each.id for each in await store.conversations() if each.id != dialogue.id] or [new_id()]
    main = (await store.branches(conversation))[0]
    version = dialogue.version(branch_id=main.id, message_count=main.tip_seq + 1)
    await store.commit(Commit(append=append_at(main.tip_seq, main.id), versions=[version]))


async def name_branch(store: SqlStore, dialogue: Dialogue, first: VersionRecord) -> None:
    """Use a branch without versions."""
    fork = (await store.branches(dialogue.id))[1]
    await store.commit(Commit(versions=[dialogue.version(branch_id=fork.id, message_count=fork.fork_seq)]))


async def name_run(store: SqlStore, dialogue: Dialogue, first: VersionRecord) -> None:
    """Begin a run without a base in a conversation without versions."""
    [conversation] = [each for each in await store.conversations() if each.id != dialogue.id] or [
        ConversationRecord(id=new_id(), agent_name='analyst', head_id=None, created_at=MOMENT)
    ]
    run = sample_run(conversation.id)
    await store.commit(Commit(conversations=[conversation], runs=[run]))
    await store.commit(Commit(versions=[dialogue.version(parent_id=first.id)], fence=run.id))  # counted below


NAMES = (name_tail, name_asset, name_tree, name_config, name_conversation, name_branch, name_run)


@pytest.mark.slow
@pytest.mark.parametrize('name', NAMES)
async def test_row_that_is_stored_again_during_a_collection_is_not_removed(name: Interpose) -> None:
    """Before every write of a collection, a commit refers to something that it is about to remove. Either the commit is
    refused, because it was removed, or everything that it refers to remains.
    """
    outcomes: list[bool] = []
    moment = 1
    while (is_accepted := await _name_during_collection(name, moment)) is not None:
        outcomes.append(is_accepted)
        moment += 1
    assert moment > 5
    assert any(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize('name', [name_asset, name_tree], ids=lambda name: name.__name__)
async def test_small_collection_ends_at_a_row_that_is_stored_again(
    name: Interpose, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for a collection that removes everything in one transaction."""
    monkeypatch.setattr(_garbage_collection, '_WHOLE', 1000)
    outcomes: list[bool] = []
    while (is_accepted := await _name_during_collection(name, len(outcomes) + 1)) is not None:
        outcomes.append(is_accepted)
    assert any(outcomes)


async def _name_during_collection(name: Interpose, moment: int) -> bool | None:
    """Commit before a write of the collection that removes; return whether it was accepted, `None` after the last."""
    is_accepted: bool | None = None
    engine = WatchedEngine.open()
    async with SqlStore(engine) as store:
        dialogue, first = await garbage(store)
        await store.gc(3600)

        async def interpose(number: int) -> None:
            nonlocal is_accepted
            if number == moment:
                try:
                    await name(store, dialogue, first)
                except (LookupError, ValueError):
                    is_accepted = False
                else:
                    is_accepted = True

        engine.before_write = interpose
        await store.gc(0.000001)
        engine.before_write = None
        for _ in range(2):
            assert await store.check() == []
            await store.gc(0)
        assert await store.count() == (4 if is_accepted else 3)
        if is_accepted:
            running = await store.runs(states=['running'])
            assert len(running) == (name is name_run)
    return is_accepted


async def test_branch_that_was_appended_to_after_it_was_condemned_is_removed_with_its_messages(store: SqlStore) -> None:
    dialogue = Dialogue(store)
    root = await dialogue.begin()
    fork = BranchRecord(new_id(), dialogue.id, 'fork', root.branch_id, 0, 0, None, None, MOMENT)
    await store.commit(Commit(branches=[fork]))
    await store.gc(3600)  # condemns the branch, and no messages at its end
    await store.commit(Commit(append=append_at(0, fork.id)))
    await store.gc(0.000001)

    assert await store.check() == []
    await store.gc(0)
    assert await store.check() == []
    assert [branch.name for branch in await store.branches(dialogue.id)] == ['main']


async def test_row_that_another_collection_condemns_while_this_one_waits_remains(store: SqlStore) -> None:
    """A commit may have found the row before it was condemned, and refer to it after the snapshot."""
    dialogue, _ = await garbage(store)
    waits = 0

    async def condemn() -> bool:
        nonlocal waits
        waits += 1
        if waits == 1:
            other = SqlStore(store.engine, clock=lambda: 1)  # it began earlier
            store.engine.wait_for_writes = wait
            await other.gc(3600)
        return await wait()

    wait = store.engine.wait_for_writes
    store.engine.wait_for_writes = condemn
    report = await store.gc(0.000001)

    assert waits == 1
    assert not any(report.removed.values())
    assert (await store.gc(0)).removed['message'] == 12
    assert await store.check() == []
    assert dialogue.id in {each.id for each in await store.conversations()}


async def test_failed_collection_leaves_no_mark_that_is_younger_than_those_of_referred_rows(
    engine: WatchedEngine, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are condemned before those to which they refer, also within one kind."""
    monkeypatch.setattr(_garbage_collection, '_BATCH', 1)
    await garbage(store)
    order: list[tuple[int, int]] = []

    async def note(number: int) -> None:
        rows = await engine.read(lambda: statements_read('SELECT kind, number FROM condemned'))
        order.extend(row for row in rows if row not in order)

    engine.before_write = note
    await store.gc(3600)
    await note(0)

    references = await engine.read(lambda: statements_read('SELECT source, asset FROM reference WHERE kind = 0'))
    assets = [number for kind, number in order if kind == 0]
    assert len(assets) > 10
    assert all(
        assets.index(source) < assets.index(asset) for source, asset in references if {source, asset} <= set(assets)
    )
    nodes = [number for kind, number in order if kind == 1]
    assert nodes == sorted(nodes, reverse=True)


def statements_read(sql: str) -> Operation[list[Any]]:
    return (yield Statement(sql))


async def test_concurrent_collections_remove_everything_once(engine: WatchedEngine, store: SqlStore) -> None:
    """Another collection runs before each write of the first."""
    await garbage(store)
    reports: list[GarbageReport] = []

    async def collect(number: int) -> None:
        if number % 3 == 0:
            reports.append(await store.gc(0))

    engine.before_write = collect
    reports.append(await store.gc(0))
    engine.before_write = None
    reports.append(await store.gc(0))
    assert sum(report.removed['message'] for report in reports) == 12
    assert reports[-1].condemned == 0
    assert await store.check() == []


def committing(store: SqlStore, new: Commit) -> Operation[object]:
    return commit(prepare(new, MOMENT), store.owner, MOMENT)


@pytest.mark.parametrize('table', ['asset', 'config', 'node'])
async def test_content_that_another_commit_inserts_first_is_used(store: SqlStore, table: str) -> None:
    dialogue = Dialogue(store)
    root = await dialogue.begin()
    asset, tree = sample_asset(b'content'), Tree()
    version = dialogue.version(parent_id=root.id, metadata='{"a":1}', deps=asset.digest, tree=tree.digest)
    new = Commit(assets=[asset], nodes=dict(tree.nodes()), versions=[version])
    other = Commit(
        assets=[asset], nodes=dict(tree.nodes()),
        versions=[version._replace(id=new_id(), parent_id=None)],
    )  # fmt: skip
    await store.engine.write(
        lambda: interposed(committing(store, new), f'INSERT INTO {table} ', committing(store, other))
    )
    assert await store.check() == []
    assert await store.count() == 3


@pytest.mark.parametrize(
    ('table', 'before'), [('asset', 'DELETE FROM condemned'), ('branch', 'UPDATE condemned'), ('version', 'UPDATE condemned')]
)  # fmt: skip
async def test_row_whose_mark_has_changed_is_read_again(store: SqlStore, table: str, before: str) -> None:
    """A collection or another commit has deleted the mark of the row that a commit is about to use."""
    dialogue = Dialogue(store)
    root = await dialogue.begin()
    asset = sample_asset(b'content')
    await store.commit(Commit(assets=[asset]))
    kind, marked = {'asset': (0, 'asset'), 'branch': (3, 'branch'), 'version': (4, 'conversation')}[table]
    mark = f'INSERT INTO condemned (kind, number, since) SELECT {kind}, number, 1 FROM {marked}'
    await store.engine.write(lambda: statements(mark))
    new = Commit(
        assets=[asset], append=append_at(0, root.branch_id),
        versions=[dialogue.version(parent_id=root.id, deps=asset.digest, message_count=1)],
    )  # fmt: skip
    await store.engine.write(lambda: interposed(committing(store, new), before, statements('DELETE FROM condemned')))
    assert await store.check() == []
    assert await store.count() == 2


async def test_conversation_whose_mark_has_changed_is_read_again_before_it_gets_a_branch(store: SqlStore) -> None:
    dialogue = Dialogue(store)
    root = await dialogue.begin()
    mark = 'INSERT INTO condemned (kind, number, since) SELECT 4, number, 1 FROM conversation'
    await store.engine.write(lambda: statements(mark))
    fork = BranchRecord(new_id(), dialogue.id, 'fork', root.branch_id, 0, 0, None, None, MOMENT)
    change = interposed(
        committing(store, Commit(branches=[fork])), 'UPDATE condemned', statements('DELETE FROM condemned')
    )
    await store.engine.write(lambda: change)
    assert {branch.name for branch in await store.branches(dialogue.id)} == {'main', 'fork'}
    assert await store.check() == []


async def test_branch_that_is_removed_before_it_can_be_used_is_missing(store: SqlStore) -> None:
    dialogue = Dialogue(store)
    root = await dialogue.begin()
    fork = BranchRecord(new_id(), dialogue.id, 'fork', root.branch_id, 0, 0, None, None, MOMENT)
    await store.commit(Commit(branches=[fork]))
    mark = "INSERT INTO condemned (kind, number, since) SELECT 3, number, 1 FROM branch WHERE name = 'fork'"
    await store.engine.write(lambda: statements(mark))
    new = Commit(versions=[dialogue.version(branch_id=fork.id)])
    removal = statements('DELETE FROM condemned', "DELETE FROM branch WHERE name = 'fork'")
    with pytest.raises(ValueError, match='There is no branch'):
        await store.engine.write(lambda: interposed(committing(store, new), 'UPDATE condemned', removal))


async def test_version_that_another_deletes_first_is_not_found(store: SqlStore) -> None:
    dialogue = Dialogue(store)
    root = await dialogue.begin()
    with pytest.raises(VersionNotFoundError, match='was deleted'):
        await store.engine.write(lambda: interposed(delete(root.id), 'FOR UPDATE', delete(root.id)))


async def test_line_ends_at_a_parent_that_another_deletes_first(store: SqlStore) -> None:
    dialogue = Dialogue(store)
    root = await dialogue.begin()
    child = await dialogue.add(root, b'1')
    grandchild = await dialogue.add(child, b'2')
    lock = 'SELECT number FROM version WHERE number'
    line = interposed(delete_line(grandchild.id), lock, delete(child.id), skipped=1)
    assert await store.engine.write(lambda: line) == 1
    assert [version.id for version in await store.versions()] == [root.id]
    assert await store.check() == []


async def test_deletion_of_a_line_locks_all_versions_before_it_changes_anything(store: SqlStore) -> None:
    """A commit locks versions before the conversation. In another order the two would deadlock."""
    dialogue = Dialogue(store)
    versions = [await dialogue.begin()]
    for number in range(3):
        versions.append(await dialogue.add(versions[-1], b'%d' % number))
    await store.commit(
        Commit(heads=[HeadMove(conversation_id=dialogue.id, expected_id=versions[0].id, version_id=versions[-1].id)])
    )
    texts: list[str] = []

    assert await store.engine.write(lambda: recorded(delete_line(versions[-1].id), texts)) == 4
    is_change = [not text.startswith(('SELECT', 'WITH')) for text in texts]
    is_lock = [text.endswith('FOR UPDATE */') for text in texts]
    is_lock_of_versions = [is_lock[n] and 'FROM conversation' not in text for n, text in enumerate(texts)]
    assert is_lock_of_versions.count(True) == 8, 'four versions, and the steps of each'
    last_lock = len(texts) - 1 - is_lock_of_versions[::-1].index(True)
    of_conversation = next(n for n, text in enumerate(texts) if is_lock[n] and 'FROM conversation' in text)
    assert last_lock < of_conversation
    assert last_lock < is_change.index(True)
