"""The replica follows its store: only new rows are read, and deleted rows are removed."""

from __future__ import annotations

import asyncio

import pytest

from pydantic_deep.store import Append, Commit, HeadMove, NewMessage, SqlStore, new_id
from pydantic_deep.store.analytics import Analytics
from pydantic_deep.store.postgres import PostgresEngine
from pydantic_deep_backends import Tree
from tests.store.analytics.conftest import Counted, Dialogue, answers, asks, file, user, value

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_message_on_two_branches_is_listed_once(store: SqlStore, dialogue: Dialogue) -> None:
    [first] = await dialogue.step(user('One.'))
    append = Append(
        branch_id=dialogue.branch_id, at=0, messages=[NewMessage(id=first, body=None)], fork_id=new_id(), is_fork=True
    )
    await store.commit(Commit(append=append))
    assert await value(store, 'SELECT count(*) FROM messages') == 1
    assert (await store.sql('SELECT message_count FROM branches ORDER BY number')).rows == ((1,), (1,))


async def test_head_is_updated_without_a_new_version(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('One.'))
    first = dialogue.head
    await dialogue.step(user('Two.'))
    assert await value(store, 'SELECT head_id FROM conversations') == dialogue.head
    assert first is not None
    move = HeadMove(conversation_id=dialogue.conversation_id, expected_id=dialogue.head, version_id=first)
    await store.commit(Commit(heads=[move]))
    assert await value(store, 'SELECT head_id FROM conversations') == first


async def test_messages_without_a_version_are_listed(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('One.'))
    assert await value(store, 'SELECT count(*) FROM messages') == 1
    message = NewMessage(id=new_id(), body=b'{}')
    await store.commit(Commit(append=Append(branch_id=dialogue.branch_id, at=1, messages=[message], fork_id=new_id())))
    assert await value(store, 'SELECT count(*) FROM messages') == 2


async def test_file_changes_are_relative_to_the_previous_version(store: SqlStore, dialogue: Dialogue) -> None:
    first = Tree.of({'/a.txt': file(b'a'), '/b.txt': file(b'b')})
    second = first.set('/a.txt', file(b'aaa')).remove('/b.txt')
    await dialogue.step(user('1'), tree=first)
    await dialogue.step(user('2'), tree=second)
    await dialogue.step(user('3'), tree=second)
    await dialogue.step(user('4'))
    rows = await store.sql(
        'SELECT seen.number, path, f.kind, size_bytes FROM file_changes f JOIN (SELECT id, row_number() OVER'
        ' (ORDER BY number) AS number FROM versions) seen ON seen.id = version_id ORDER BY 1, 2'
    )
    assert rows.rows == (
        (1, '/a.txt', 'added', 1),
        (1, '/b.txt', 'added', 1),
        (2, '/a.txt', 'changed', 3),
        (2, '/b.txt', 'removed', None),
    )


async def test_trees_of_a_long_lineage_are_evicted(store: SqlStore, dialogue: Dialogue) -> None:
    for size in range(1, 21):
        await dialogue.step(tree=Tree.of({'/a.txt': file(b'a' * size)}))
    assert await value(store, 'SELECT sum(size_bytes) FROM file_changes') == sum(range(1, 21))


async def test_unchanged_subtrees_are_not_read_again(store: SqlStore, dialogue: Dialogue) -> None:
    tree = Tree.of({f'/{number % 20}/{number}.txt': file(b'a') for number in range(2000)})
    await dialogue.step(tree=tree)
    for number in range(5):
        tree = tree.set(f'/{number}/{number}.txt', file(b'bb'))
        await dialogue.step(tree=tree)
    other = Tree.of({f'/{number}/other.txt': file(b'c' * number) for number in range(50)})
    await dialogue.step(tree=other)
    counted = Counted(store)
    async with Analytics(counted) as analytics:
        changes = await analytics.sql('SELECT kind, count(*) FROM file_changes GROUP BY ALL ORDER BY kind')
    assert changes.rows == (('added', 2050), ('changed', 5), ('removed', 2000))
    assert counted.trees_read == 2


async def test_deleted_rows_are_removed(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('1'), tree=Tree.of({'/a.txt': file(b'a')}), deps='{"todos": [{"content": "Read"}]}')
    response, _ = await dialogue.step(asks('ls'), answers('x'))
    await dialogue.step(requests=[dialogue.request(1, response)], calls=[dialogue.call(response, 'done')])
    await dialogue.end()
    kept = Dialogue(store, 'kept')
    await kept.begin()
    await kept.step(user('kept'))
    assert await value(store, 'SELECT count(*) FROM versions') == 4
    assert dialogue.head is not None
    kept_head = kept.head
    await store.delete_line(dialogue.head)
    await store.gc(0)
    assert (await store.sql('SELECT id FROM versions')).rows == ((kept_head,),)
    assert (await store.sql('SELECT text FROM messages')).rows == (('kept',),)
    for table in ('file_changes', 'todos', 'internal.todo_lists', 'internal.tool_returns'):
        assert await value(store, f'SELECT count(*) FROM {table}') == 0
    assert (await store.sql('SELECT agent_name FROM runs')).rows == (('kept',),)
    assert [run.agent_name for run in await store.runs()] == ['kept']
    assert await value(store, 'SELECT count(*) FROM requests') == 0


@pytest.mark.parametrize('turns', [1, 40])
async def test_query_without_new_rows_takes_one_statement(store: SqlStore, turns: int) -> None:
    for _ in range(turns):
        dialogue = Dialogue(store)
        await dialogue.begin()
        await dialogue.step(user('1'))
        await dialogue.end()
    counted = Counted(store)
    async with Analytics(counted) as analytics:
        assert (await analytics.sql('SELECT count(*) FROM runs')).rows == ((turns,),)
        counted.counting.statements.clear()
        assert (await analytics.sql('SELECT count(*) FROM messages')).rows == ((turns,),)
    assert len(counted.counting.statements) == 1


async def test_new_step_reads_only_new_rows(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(*(user(str(number)) for number in range(300)))
    counted = Counted(store)
    async with Analytics(counted) as analytics:
        assert (await analytics.sql('SELECT count(*) FROM messages')).rows == ((300,),)
        first = len(counted.counting.statements)
        await dialogue.step(user('new'))
        counted.counting.statements.clear()
        assert (await analytics.sql('SELECT max(seq) FROM messages')).rows == ((300,),)
    assert len(counted.counting.statements) < first
    assert sum('FROM wanted' in sql for sql in counted.counting.statements) == 1


async def test_rows_are_surveyed_again_only_if_concurrent_writes_may_have_added_earlier_ones(
    store: SqlStore, dialogue: Dialogue
) -> None:
    counted = Counted(store)

    def surveys() -> int:
        return sum('AS run_signs' in sql for sql in counted.counting.statements)

    async with Analytics(counted) as analytics:
        await dialogue.step(user('1'))
        await analytics.sql('SELECT 1')
        assert surveys() == (2 if isinstance(store.engine, PostgresEngine) else 1)
        await dialogue.end()
        counted.counting.statements.clear()
        assert (await analytics.sql('SELECT state FROM runs')).rows == (('complete',),)
        assert surveys() == 1, 'a row has changed, and none is new'


async def test_store_is_followed_in_batches(
    store: SqlStore, dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('pydantic_deep.store.analytics._store_reads.MAX_MESSAGES', 4)
    monkeypatch.setattr('pydantic_deep.store.analytics._follower.MAX_NUMBERS', 3)
    monkeypatch.setattr('pydantic_deep.store.analytics._follower._AT_ONCE', 2)
    monkeypatch.setattr('pydantic_deep.store.analytics._follower._MARKS', 2)
    others = [Dialogue(store, f'agent-{number}') for number in range(7)]
    for other in others:
        await other.begin()
        await other.step(*(user(str(number)) for number in range(5)))
    for number in range(9):
        await dialogue.step(user(str(number)))
    counts = 'SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM versions), (SELECT count(*) FROM runs)'
    assert (await store.sql(counts)).rows == ((7 * 5 + 9, 7 + 9, 8),)
    assert dialogue.head is not None
    await store.delete(dialogue.head)
    assert (await store.sql(counts)).rows == ((7 * 5 + 9, 7 + 8, 8),)


async def test_concurrent_queries_return_the_same(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('1'))
    tables = await asyncio.gather(*(store.sql('SELECT count(*) FROM messages') for _ in range(8)))
    assert [table.rows for table in tables] == [((1,),)] * 8
