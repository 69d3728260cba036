"""`store.sql`: contents of the tables, and incremental updates of the replica."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pydantic_deep.store import (
    Append,
    ApprovalRecord,
    BranchRecord,
    CallRecord,
    CallStatus,
    Commit,
    ConversationRecord,
    Decision,
    DelegationRecord,
    HeadMove,
    NewAsset,
    NewMessage,
    RequestRecord,
    RunEnd,
    RunRecord,
    SqlStore,
    StoreClosedError,
    VersionKind,
    VersionRecord,
    new_id,
    open_store,
)
from pydantic_deep.store.analytics import Analytics, Table
from pydantic_deep.store.engine import Engine, Operation
from pydantic_deep_backends import FileVersion, Tree, digest_of

pytestmark = pytest.mark.anyio

SECOND = 1_000_000


@pytest.fixture(params=['memory', 'sqlite', 'postgresql'])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlStore]:
    urls = {'memory': 'memory:', 'sqlite': f'sqlite:///{tmp_path}/agents.db'}
    url = urls.get(request.param) or request.getfixturevalue('postgres_url')
    async with open_store(url) as opened:
        yield opened


class Dialogue:
    """One conversation with one run at a time, written like the recorder does."""

    def __init__(self, store: SqlStore, agent_name: str = 'analyst', started_at: int = SECOND) -> None:
        self.store = store
        self.agent_name = agent_name
        self.conversation_id = new_id()
        self.branch_id = new_id()
        self.run_id = new_id()
        self.head: str | None = None
        self.length = 0
        self.started_at = started_at

    async def begin(self) -> None:
        conversation = ConversationRecord(self.conversation_id, self.agent_name, None, self.started_at)
        branch = BranchRecord(self.branch_id, self.conversation_id, 'main', None, 0, 0, None, None, self.started_at)
        await self.store.commit(Commit(conversations=[conversation], branches=[branch], runs=[self.run()]))

    def run(self) -> RunRecord:
        return RunRecord(
            id=self.run_id, conversation_id=self.conversation_id, base_id=self.head, agent_name=self.agent_name,
            attempt_of=None, parent_run_id=None, state='running', owner=None, prompt=None, options='{}', usage='{}',
            cost=None, error=None, trace_id=None, started_at=self.started_at, ended_at=None,
        )  # fmt: skip

    def version(self, kind: VersionKind = 'step', count: int = 0, *, deps: str | None = None, tree: str | None = None):
        return VersionRecord(
            id=new_id(), number=0, parent_id=self.head, cloned_from=None, merged_from=None, kind=kind,
            state='complete', conversation_id=self.conversation_id, branch_id=self.branch_id, branch='main',
            message_count=self.length + count, run_id=self.run_id, agent_name=self.agent_name, name=None,
            metadata='{"team":"red"}', model='m', model_settings='{}', usage='{}', output=None, pending=None,
            deps=deps, tree=tree, backend=None, created_at=self.started_at,
        )  # fmt: skip

    async def step(
        self,
        *bodies: object,
        kind: VersionKind = 'step',
        requests: Sequence[RequestRecord] = (),
        calls: Sequence[CallRecord] = (),
        settled: Sequence[tuple[str, str, str]] = (),
        deps: str | None = None,
        tree: Tree | None = None,
    ) -> list[str]:
        """Append messages with a version after them, which becomes the head, and return the messages' ids."""
        messages = [NewMessage(id=new_id(), body=json.dumps(body).encode()) for body in bodies]
        digest = None if deps is None else digest_of(deps.encode())
        version = self.version(kind, len(messages), deps=digest, tree=None if tree is None else tree.digest)
        append = Append(branch_id=self.branch_id, at=self.length, messages=messages, fork_id=new_id())
        await self.store.commit(
            Commit(
                assets=[] if deps is None else [NewAsset(digest=str(digest), data=deps.encode())],
                nodes=None if tree is None else dict(tree.nodes()),
                append=append if messages else None,
                settled_calls=settled,
                versions=[version],
                requests=requests,
                calls=calls,
                heads=[HeadMove(conversation_id=self.conversation_id, expected_id=self.head, version_id=version.id)],
            )
        )
        self.head = version.id
        self.length += len(messages)
        return [message.id for message in messages]

    async def end(self, *, cost: str | None = '0.25', error: str | None = None) -> None:
        usage = json.dumps({'requests': 1, 'tool_calls': 2, 'input_tokens': 30, 'output_tokens': 4})
        state = 'complete' if error is None else 'failed'
        await self.store.commit(
            Commit(ends=[RunEnd(run_id=self.run_id, state=state, usage=usage, cost=cost, error=error)])
        )

    def request(self, number: int, response_id: str, *, cost: str | None = '0.1') -> RequestRecord:
        return RequestRecord(
            run_id=self.run_id, number=number, response_id=response_id, model='m', model_settings='{"temperature":0}',
            parameters=None, digest='d', message_digests=None, input_tokens=10, output_tokens=2, cache_read_tokens=5,
            cache_write_tokens=1, cost=cost, duration_us=1500, started_at=self.started_at,
        )  # fmt: skip

    def call(self, response_id: str, status: CallStatus, *, tool: str = 'ls', result: str | None = None) -> CallRecord:
        return CallRecord(
            run_id=self.run_id, response_id=response_id, tool_call_id='call', tool_name=tool,
            arguments='{"path": "/"}', effect='read', status=status, result=result, tree=None,
            error='OSError' if status == 'failed' else None, started_at=self.started_at,
            ended_at=None if status == 'started' else self.started_at + 2500,
        )  # fmt: skip


def user(text: str) -> object:
    return {'kind': 'request', 'parts': [{'part_kind': 'user-prompt', 'content': text}]}


def asks(tool: str) -> object:
    part = {'part_kind': 'tool-call', 'tool_name': tool, 'args': '{}', 'tool_call_id': 'call'}
    return {'kind': 'response', 'parts': [part], 'model_name': 'm', 'usage': {'input_tokens': 10, 'output_tokens': 2}}


def answers(content: object) -> object:
    return {'kind': 'request', 'parts': [{'part_kind': 'tool-return', 'tool_call_id': 'call', 'content': content}]}


async def value(store: SqlStore, query: str) -> object:
    [(found,)] = (await store.sql(query)).rows
    return found


@pytest.fixture
async def dialogue(store: SqlStore) -> Dialogue:
    begun = Dialogue(store)
    await begun.begin()
    return begun


async def test_run_is_listed_while_it_runs_and_after_its_end(store: SqlStore, dialogue: Dialogue) -> None:
    assert (await store.sql('SELECT agent_name, state, cost FROM runs')).rows == (('analyst', 'running', None),)
    await dialogue.end()
    rows = await store.sql('SELECT state, cost, requests, tool_calls, input_tokens, output_tokens FROM runs')
    assert rows.rows == (('complete', 0.25, 1, 2, 30, 4),)


async def test_error_of_a_run_has_two_columns(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.end(error='{"type":"ValueError","message":"no"}')
    assert (await store.sql('SELECT error_type, error_message FROM runs')).rows == (('ValueError', 'no'),)


async def test_messages_have_role_text_and_position(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('List it.'))
    await dialogue.step(asks('ls'), answers(['a', 'b']))
    rows = await store.sql('SELECT seq, role, text, tool_call_count, output_tokens FROM messages ORDER BY seq')
    assert rows.rows == ((0, 'user', 'List it.', 0, None), (1, 'assistant', '', 1, 2), (2, 'tool', 'a\n\nb', 0, None))


async def test_message_on_two_branches_is_listed_once(store: SqlStore, dialogue: Dialogue) -> None:
    [first] = await dialogue.step(user('One.'))
    append = Append(
        branch_id=dialogue.branch_id, at=0, messages=[NewMessage(id=first, body=None)], fork_id=new_id(), is_fork=True
    )
    await store.commit(Commit(append=append))
    assert await value(store, 'SELECT count(*) FROM messages') == 1
    assert (await store.sql('SELECT message_count FROM branches ORDER BY number')).rows == ((1,), (1,))


async def test_result_of_a_call_is_taken_from_its_message(store: SqlStore, dialogue: Dialogue) -> None:
    for content in ('first', {'second': 2}):  # two calls of one id
        [response] = await dialogue.step(asks('ls'))
        done = dialogue.call(response, 'done', result=json.dumps(content))
        await dialogue.step(calls=[done])
        assert await value(store, f"SELECT result FROM tool_calls WHERE response_id = '{response}'") == done.result
        await dialogue.step(answers(content), settled=[(dialogue.run_id, response, 'call')])
    rows = await store.sql('SELECT tool, status, result, duration_ms FROM tool_calls ORDER BY number')
    assert rows.rows == (('ls', 'done', '"first"', 2.5), ('ls', 'done', '{"second": 2}', 2.5))


async def test_status_of_a_started_call_is_updated(store: SqlStore, dialogue: Dialogue) -> None:
    [response] = await dialogue.step(asks('ls'), calls=[])
    await dialogue.step(calls=[dialogue.call(response, 'started')])
    assert await value(store, 'SELECT status FROM tool_calls') == 'started'
    await dialogue.step(calls=[dialogue.call(response, 'failed')])
    assert (await store.sql('SELECT status, error FROM tool_calls')).rows == (('failed', 'OSError'),)


async def test_requests_are_listed_while_their_run_continues(store: SqlStore, dialogue: Dialogue) -> None:
    for number in (1, 2):
        [response] = await dialogue.step(asks('ls'))
        await dialogue.step(requests=[dialogue.request(number, response)])
        assert await value(store, 'SELECT count(*) FROM requests') == number
    rows = await store.sql(
        "SELECT sum(cost), max(duration_ms), any_value(model_settings->>'$.temperature') FROM requests"
    )
    assert rows.rows == ((0.2, 1.5, '0'),)


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


async def test_approval_is_updated_until_it_is_resumed(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('Write.'), kind='pause')
    await store.commit(Commit(approvals=[approval(dialogue, 'a')]))
    assert await value(store, 'SELECT status FROM approvals') == 'pending'
    decision = Decision(approval_id='a', status='approved', decision='{}', arguments_digest='d', by='ada')
    [decided] = await store.decide([decision])
    rows = await store.sql('SELECT status, decided_by, wait_ms, resumed_by FROM approvals')
    assert decided.decided_at is not None
    assert rows.rows == (('approved', 'ada', (decided.decided_at - SECOND) / 1000, None),)
    await store.claim_approvals(str(dialogue.head), dialogue.run_id)
    assert await value(store, 'SELECT resumed_by FROM approvals') == dialogue.run_id


async def test_approval_expires_without_a_write(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('Write.'), kind='pause')
    await store.commit(Commit(approvals=[approval(dialogue, 'a')._replace(expires_at=2 * SECOND)]))
    assert await value(store, 'SELECT status FROM approvals') == 'expired'


def approval(dialogue: Dialogue, id: str) -> ApprovalRecord:
    return ApprovalRecord(
        id=id, version_id=str(dialogue.head), pending_id='call', conversation_id=dialogue.conversation_id,
        agent_name='analyst', path='["editor"]', tool_name='write_file', arguments='{"path":"/a"}',
        arguments_digest='d', preview=None, status='pending', decision=None, decided_by=None, reason=None,
        decided_at=None, resumed_by=None, superseded_by=None, expires_at=None, created_at=SECOND,
    )  # fmt: skip


async def test_delegations_have_their_intent(store: SqlStore, dialogue: Dialogue) -> None:
    [response] = await dialogue.step(asks('task'))
    child = Dialogue(store, 'counter')
    await child.begin()
    link = DelegationRecord(
        dialogue.run_id, response, 'call', child.conversation_id, 'counter', 'Count.', '{"n": 1}', SECOND
    )
    await store.commit(Commit(delegations=[link]))
    rows = await store.sql(
        "SELECT d.subagent, d.intent, d.arguments->>'$.n', r.agent_name FROM delegations d JOIN runs r"
        ' ON r.conversation_id = d.child_conversation_id'
    )
    assert rows.rows == (('counter', 'Count.', '1', 'counter'),)


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


def file(data: bytes) -> FileVersion:
    return FileVersion(digest=digest_of(data), size=len(data))


async def test_todos_are_listed_per_version(store: SqlStore, dialogue: Dialogue) -> None:
    plan = json.dumps(
        {'todos': [{'content': 'Read', 'status': 'completed'}, {'content': 'Write', 'status': 'pending'}]}
    )
    await dialogue.step(user('1'), deps=plan)
    await dialogue.step(user('2'), deps=plan)
    await dialogue.step(user('3'), deps='{"todos": []}')
    rows = await store.sql('SELECT position, content, status, count(*) FROM todos GROUP BY ALL ORDER BY position')
    assert rows.rows == ((0, 'Read', 'completed', 2), (1, 'Write', 'pending', 2))


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


class CountingEngine:
    """Counts the statements of another engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.statements: list[str] = []
        self.read_calls = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    async def read(self, operation: Callable[[], Operation[object]]) -> object:
        self.read_calls += 1
        return await self._engine.read(lambda: self._counted(operation()))

    def _counted(self, operation: Operation[object]) -> Operation[object]:
        statement = next(operation)
        while True:
            self.statements.append(statement.sql)
            rows = yield statement
            try:
                statement = operation.send(rows)
            except StopIteration as stop:
                return stop.value


class Counted:
    """A store that counts its statements."""

    def __init__(self, store: SqlStore) -> None:
        self.counting = CountingEngine(store.engine)
        self.trees_read = 0
        self._store = store

    @property
    def engine(self) -> Engine:
        engine: object = self.counting
        assert isinstance(engine, CountingEngine)
        return engine  # pyright: ignore[reportReturnType] - the rest it has by `__getattr__`

    async def nodes(self, digest: str) -> dict[str, bytes]:
        self.trees_read += 1
        return await self._store.nodes(digest)


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


@pytest.mark.slow
async def test_rows_that_become_visible_late_are_found(store: SqlStore, dialogue: Dialogue) -> None:
    """On PostgreSQL a row may become visible later than one with a higher number."""
    await dialogue.step(user('1'))
    await store.sql('SELECT 1')
    late = Dialogue(store, 'late')
    late.run_id = new_id()
    await late.begin()
    analytics = Analytics(store)
    await analytics.sql('SELECT 1')
    opened = analytics._opened  # pyright: ignore[reportPrivateUsage] - there is no race to be had on SQLite
    assert opened is not None
    opened.replica._connection.execute("DELETE FROM runs WHERE agent_name = 'analyst'")  # pyright: ignore[reportPrivateUsage]
    assert (await analytics.sql('SELECT agent_name FROM runs ORDER BY number')).rows == (('analyst',), ('late',))
    await analytics.aclose()


async def test_messages_without_a_branch_are_looked_up_once(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('1'))

    def strand() -> Operation[None]:
        from pydantic_deep.store.engine import Statement

        yield Statement('INSERT INTO message (id, body) VALUES (?1, ?2)', (b'x', b'\0{}'))

    await store.engine.write(strand)
    counted = Counted(store)
    async with Analytics(counted) as analytics:
        assert (await analytics.sql('SELECT count(*) FROM messages')).rows == ((1,),)
        await dialogue.step(user('2'))
        counted.counting.statements.clear()
        assert (await analytics.sql('SELECT count(*) FROM messages')).rows == ((2,),)
    assert not [sql for sql in counted.counting.statements if 'FROM message)' in sql and 'LIMIT' in sql]


async def test_concurrent_queries_return_the_same(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('1'))
    tables = await asyncio.gather(*(store.sql('SELECT count(*) FROM messages') for _ in range(8)))
    assert [table.rows for table in tables] == [((1,),)] * 8


async def test_closed_store_raises(store: SqlStore) -> None:
    await store.sql('SELECT 1')
    await store.aclose()
    with pytest.raises(StoreClosedError, match='were closed'):
        await store.sql('SELECT 1')


async def test_macros_answer_common_questions(store: SqlStore) -> None:
    dialogue = Dialogue(store)
    await dialogue.begin()
    [response] = await dialogue.step(asks('ls'), tree=Tree.of({'/a.txt': file(b'a')}))
    await dialogue.step(requests=[dialogue.request(1, response)], calls=[dialogue.call(response, 'failed')])
    await dialogue.step(user('done'), kind='turn', tree=Tree.of({'/b.txt': file(b'bb')}))
    await store.commit(Commit(approvals=[approval(dialogue, 'a')]))
    await dialogue.end(error='{"type":"ValueError","message":"no"}')

    async def rows(query: str) -> tuple[tuple[object, ...], ...]:
        return (await store.sql(query)).rows

    assert await rows('SELECT agent_name, day::VARCHAR, runs, cost FROM cost_per_agent_and_day()') == (
        ('analyst', '1970-01-01', 1, 0.25),
    )
    assert await rows('FROM cost_per_model()') == (('m', 1, 0.1, 10, 5, 2),)
    assert await rows('FROM slowest_tools()') == (('ls', 1, 2.5, 2.5, 2.5),)
    assert await rows('FROM failure_rates()') == (('ls', 1, 1, 1.0, 'OSError'),)
    assert await rows('SELECT requests, input_tokens, output_tokens, cost FROM tokens_per_turn()') == (
        (1, 30, 4, 0.25),
    )
    assert await rows('FROM approval_waits()') == (('write_file', 'pending', 1, None, None),)
    assert await rows('SELECT error_type FROM failed_runs(1)') == (('ValueError',),)
    assert await rows('FROM failed_runs(0)') == ()
    assert await rows('FROM files_changed_most()') == (('/b.txt', 1, 2, 1),)


async def test_parameters_are_bound(store: SqlStore, dialogue: Dialogue) -> None:
    assert (await store.sql('SELECT ? + 1', [2])).rows == ((3,),)
    assert (await store.sql('SELECT $name', {'name': "'; DROP TABLE runs"})).rows == (("'; DROP TABLE runs",),)


async def test_timestamps_are_naive_and_json_is_text(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('1'))
    table = await store.sql("SELECT created_at::VARCHAR AS at, metadata, metadata->>'$.team' AS team FROM versions")
    assert table.to_dicts() == [{'at': '1970-01-01 00:00:01', 'metadata': '{"team":"red"}', 'team': 'red'}]


def test_table_repr_shows_the_first_rows_and_shortens_cells() -> None:
    rows = tuple((number, 0.1234567, None if number else 'a\nb' + 'c' * 90) for number in range(22))
    text = repr(Table(columns=('n', 'rate', 'text'), rows=rows))
    lines = text.splitlines()
    assert lines[0] == ' n      rate  text'
    assert lines[2] == f' 0  0.123457  a b{"c" * 56}…'
    assert lines[3] == ' 1  0.123457'
    assert lines[-1] == '(2 more rows)'
    assert len(lines) == 23


def test_table_iterates_over_its_rows() -> None:
    table = Table(columns=('a', 'b'), rows=((1, None), (2, None)))
    assert [a for a, _ in table] == [1, 2]
    assert len(table) == 2
    assert repr(Table(columns=('a',), rows=())) == 'a\n-'


async def test_timestamp_with_a_time_zone_is_returned(store: SqlStore) -> None:
    ((moment,),) = (await store.sql("SELECT '2026-11-22 12:00:00+01'::TIMESTAMPTZ")).rows

    assert moment == datetime(2026, 11, 22, 11, tzinfo=UTC)
