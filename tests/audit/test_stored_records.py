"""Audit records of stored runs: histories are not copied, runs can be audited again, and crashes are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, FunctionToolset, RunContext
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RequestUsage

from pydantic_deep import Approve, ToolFailures, create_deep_agent
from pydantic_deep.audit import (
    AUDIT_FIELDS,
    Audit,
    AuditRecord,
    RunNotFoundError,
    audit_of_run,
    finish_crashed,
    rehydrate,
)
from pydantic_deep.repository.memory import MemoryRepository
from pydantic_deep.store import Commit, Committed, SqlStore, StoreUnavailableError, open_engine
from pydantic_deep.streaming import session_scope
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import ScriptedModel, Step, call
from pydantic_deep.versions import Recorder, VersionedAgent

pytestmark = pytest.mark.anyio

Rows = MemoryRepository[AuditRecord]
Make = Callable[..., VersionedAgent[Any, Any]]

VOLATILE_FIELDS = {'id', 'metadata', 'started_at', 'ended_at', 'tool_calls'}
"""Fields that may differ between the original record and one made from the store."""


@pytest.fixture
def make(rows: Rows, store: SqlStore) -> Make:
    """Make an audited agent in the store, with a tool named `work`."""

    def agent(*steps: Step, **options: Any) -> VersionedAgent[Any, Any]:
        def work(text: str = '') -> str:
            return f'did {text}'

        plain = Agent[Any, Any](
            ScriptedModel(*steps), capabilities=[Audit(rows)], name='worker', tools=[work], **options
        )
        return VersionedAgent(plain, store)

    return agent


async def test_history_in_a_store_is_not_copied(make: Make, rows: Rows, store: SqlStore) -> None:
    """004-25 with a store: the record refers to the version, which has the full history."""
    version = await (await make(call('work', text='it'), 'end').create()).advance('Go')

    (record,) = (await rows.list()).items

    assert (record.version_id, record.run_id, record.messages) == (version.id, version.run_id, [])
    assert [each.name for each in record.tool_calls] == ['work']
    assert await rehydrate(record, store) == await version.messages()


async def test_record_has_only_the_calls_of_its_own_run(make: Make, rows: Rows) -> None:
    version = await (await make(call('work'), 'a', call('work'), 'b').create()).advance('One')
    await version.advance('Two')

    assert [len(each.tool_calls) for each in (await rows.list()).items] == [1, 1]
    assert [each.question for each in (await rows.list()).items] == ['One', 'Two']


async def test_stored_run_can_be_audited_again(make: Make, rows: Rows, store: SqlStore) -> None:
    """004-26: the record is a projection of the data in the store."""
    agent = make(call('work', text='it'), 'end')
    version = await (await agent.create()).advance('Go', temperature=0.5)
    (written,) = (await rows.list()).items

    again = await audit_of_run(store, version.run_id or '')

    assert again.model_dump(exclude=VOLATILE_FIELDS) == written.model_dump(exclude=VOLATILE_FIELDS)
    assert [each.model_dump(exclude={'started_at', 'ended_at'}) for each in again.tool_calls] == [
        each.model_dump(exclude={'started_at', 'ended_at'}) for each in written.tool_calls
    ]
    assert again.tool_calls[0].started_at is not None
    assert (again.ended_at is None, again.model) == (False, 'scripted:scripted')


async def test_projection_has_failure_and_cost(store: SqlStore) -> None:
    usage = RequestUsage(input_tokens=1_000_000, cache_read_tokens=5)
    answer = ModelResponse([call('work')], usage=usage, model_name='gpt-5', provider_name='openai')

    def work() -> str:
        raise LookupError('no such thing')

    failures = ToolFailures(propagate=(LookupError,))
    agent = VersionedAgent(Agent[Any, Any](ScriptedModel(answer), tools=[work], capabilities=[failures]), store)
    with pytest.raises(LookupError):
        await (await agent.create()).advance('Go')
    (run,) = await store.runs()

    record = await audit_of_run(store, run.id)

    assert record.error is not None
    assert (record.status, record.error.kind, record.error.message) == ('failed', 'LookupError', 'no such thing')
    assert [each.outcome for each in record.tool_calls] == ['failed']
    assert record.cost is not None
    assert Decimal(1) < record.cost < Decimal(2)
    assert record.usage.cache_read_tokens == 5


async def test_suspended_and_resumed_runs_are_in_stored_records(make: Make, rows: Rows, store: SqlStore) -> None:
    def pay(ctx: RunContext[Any]) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return 'ok'

    tools = FunctionToolset[Any]([pay])
    agent = make([call('pay'), call('work')], 'paid', output_type=[str, DeferredToolRequests], toolsets=[tools])
    paused = await (await agent.create(metadata={'owner': 'me', 'tenant': 'acme', 'session_id': 's'})).advance('Pay')
    await paused.resume({each.id: Approve() for each in paused.pending})
    written = (await rows.list()).items
    waiting, done = [await audit_of_run(store, each.run_id) for each in written]

    assert [each.status for each in (waiting, done)] == ['awaiting_approval', 'success']
    assert [each.question for each in (waiting, done)] == ['Pay', 'Pay']
    assert (done.owner, done.tenant, done.session_id) == ('me', 'acme', 's')
    for again, audited in zip((waiting, done), written, strict=True):
        assert [(each.name, each.outcome) for each in again.tool_calls] == [
            (each.name, each.outcome) for each in audited.tool_calls
        ]
    assert [(each.name, each.outcome) for each in done.tool_calls] == [('pay', 'success')]


async def test_media_are_in_the_history_and_described_in_the_question(make: Make, rows: Rows, store: SqlStore) -> None:
    version = await (await make('ok').create()).advance(['See', BinaryContent(b'123456', media_type='image/png')])
    (record,) = (await rows.list()).items

    assert await rehydrate(record, store) == await version.messages()
    assert record.question == 'See\n[image/png, about 6 bytes]'
    assert (await audit_of_run(store, record.run_id)).question == 'See\n[image/png]'


async def test_subagents_are_audited_with_their_own_version(rows: Rows, store: SqlStore) -> None:
    child = Subagent('helper', 'Helps.', model=ScriptedModel('helped'))
    boss = create_deep_agent(
        ScriptedModel(call('task', description='Help.', subagent='helper'), 'end'),
        subagents=[child],
        capabilities=[Audit(rows)],
        name='boss',
    )
    await (await VersionedAgent(boss, store).create()).advance('Go')

    above, below = (await rows.list()).items
    again = await audit_of_run(store, below.run_id)

    assert (below.parent_run_id, again.parent_run_id) == (above.run_id, above.run_id)
    assert below.version_id not in (None, above.version_id)
    assert len(await rehydrate(below, store)) == 2


@pytest.mark.parametrize('is_first', [True, False])
async def test_recorder_is_found_at_any_position(rows: Rows, store: SqlStore, is_first: bool) -> None:
    capabilities: list[Any] = [Audit(rows), Recorder(store=store)]
    agent = Agent[Any, Any](ScriptedModel('ok'), capabilities=capabilities if is_first else capabilities[::-1])
    result = await agent.run('Go')

    (record,) = (await rows.list()).items

    assert await rehydrate(record, store) == result.all_messages()
    assert (record.messages, (await store.version(record.version_id or '')).kind) == ([], 'turn')


async def test_owner_of_the_conversation_is_the_owner_of_its_runs(rows: Rows, store: SqlStore) -> None:
    """The owner is read from the metadata of the versions, for subagents too."""
    boss = create_deep_agent(
        ScriptedModel(call('task', description='Help.', subagent='helper'), 'end'),
        subagents=[Subagent('helper', 'Helps.', model=ScriptedModel('helped'))],
        capabilities=[Audit(rows)],
    )
    root = await VersionedAgent(boss, store).create(metadata={'server.owner': 'me', 'tenant': 'acme', 'x': 1})
    await root.advance('Go')

    above, below = (await rows.list({'owner': 'me', 'tenant': 'acme'})).items

    assert above.metadata == {'server.owner': 'me', 'tenant': 'acme', 'x': 1}
    assert below.parent_run_id == above.run_id
    assert (await audit_of_run(store, above.run_id)).owner == 'me'


async def test_missing_run_raises(store: SqlStore) -> None:
    with pytest.raises(RunNotFoundError, match="no run 'x'"):
        await audit_of_run(store, 'x')


class MortalStore(SqlStore):
    """Store of a process that crashes: after a given commit, every commit fails."""

    dies: Callable[[Commit], bool] | None = None
    is_dead = False

    async def commit(self, commit: Commit) -> Committed:
        if self.is_dead:
            raise StoreUnavailableError('The process is dead.')
        committed = await super().commit(commit)
        self.is_dead = self.dies is not None and self.dies(commit)
        return committed


class Dying(MemoryRepository[AuditRecord]):
    """Stores only `running` records, as if the process crashed before the end of each run."""

    is_dead = True

    async def upsert(self, item: AuditRecord) -> None:
        if item.status == 'running' or not self.is_dead:
            await super().upsert(item)


@pytest.fixture
async def url(tmp_path: Path) -> AsyncGenerator[str]:
    """URL of a store that outlives each simulated process, because the fixture keeps it open."""
    url = f'memory:{tmp_path.name}'
    async with SqlStore(await open_engine(url)):
        yield url


async def never(_: AuditRecord) -> bool:
    return False


def payer(store: SqlStore, rows: MemoryRepository[AuditRecord], *steps: Step) -> VersionedAgent[Any, Any]:
    """Make an agent with tools that return, fail, or never return."""

    def fast() -> str:
        return 'was done'

    def bad() -> str:
        raise ToolFailed('not possible')

    async def pay() -> str:
        return 'paid'

    tools = [fast, bad, pay]
    return VersionedAgent(
        Agent[Any, Any](ScriptedModel(*steps), name='payer', tools=tools, capabilities=[Audit(rows)]), store
    )


def starts_pay(commit: Commit) -> bool:
    return any(each.tool_name == 'pay' and each.status == 'started' for each in commit.calls)


async def crash(url: str, rows: Dying, dies: Callable[[Commit], bool], *steps: Step) -> None:
    async with MortalStore(await open_engine(url)) as store:
        store.dies = dies
        with pytest.raises(StoreUnavailableError):
            await (await payer(store, rows, *steps).create()).advance('Pay it', temperature=0.5)


async def test_crashed_run_is_closed_from_the_store(url: str) -> None:
    """C26 after a crash: the record has the completed calls and marks the others as interrupted."""
    rows = Dying(AuditRecord, fields=AUDIT_FIELDS)
    await crash(url, rows, starts_pay, [call('fast'), call('bad')], call('pay'))
    rows.is_dead = False
    async with SqlStore(await open_engine(url)) as store:
        (closed,) = await finish_crashed(rows, never, store=store)

        assert await rows.get(closed.id) == closed
        assert (closed.status, closed.question, closed.usage.requests) == ('crashed', 'Pay it', 2)
        assert closed.model_settings == {'temperature': 0.5}
        assert closed.ended_at is not None
        assert [(each.name, each.outcome, each.result and each.result.value) for each in closed.tool_calls] == [
            ('fast', 'success', 'was done'),
            ('bad', 'failed', 'not possible'),
            ('pay', 'interrupted', None),
        ]
        assert len(await rehydrate(closed, store)) == 5


async def test_results_of_calls_not_yet_in_a_message_are_recorded(url: str) -> None:
    rows = Dying(AuditRecord, fields=AUDIT_FIELDS)

    def dies(commit: Commit) -> bool:
        ended.extend(each.tool_name for each in commit.calls if each.status in ('done', 'failed'))
        return {'fast', 'bad'} <= set(ended)

    ended: list[str] = []
    await crash(url, rows, dies, [call('fast'), call('bad')], 'never')
    async with SqlStore(await open_engine(url)) as store:
        (run,) = await store.runs()
        record = await audit_of_run(store, run.id)

    assert record.status == 'crashed'
    assert [(each.name, each.outcome, each.result and each.result.value) for each in record.tool_calls] == [
        ('fast', 'success', 'was done'),
        ('bad', 'failed', 'not possible'),
    ]


async def test_run_that_crashed_before_its_first_answer_has_its_question(url: str) -> None:
    rows = Dying(AuditRecord, fields=AUDIT_FIELDS)
    await crash(url, rows, lambda commit: bool(commit.runs), 'never')
    async with SqlStore(await open_engine(url)) as store:
        (run,) = await store.runs()
        record = await audit_of_run(store, run.id)

        assert (record.status, record.question, record.model) == ('crashed', 'Pay it', None)
        assert (record.version_id, await rehydrate(record, store)) == (run.base_id, [])


async def test_recovered_run_refers_to_the_run_it_resumes(url: str) -> None:
    rows = Dying(AuditRecord, fields=AUDIT_FIELDS)
    await crash(url, rows, starts_pay, call('fast'), call('pay'))
    rows.is_dead = False
    (begun,) = (await rows.list()).items
    async with SqlStore(await open_engine(url)) as store:
        (version,) = await payer(store, rows, 'never').recover()
        await finish_crashed(rows, never, store=store)

        crashed, recovered = (await rows.list()).items
        again = await audit_of_run(store, version.run_id or '')

    assert (crashed.id, crashed.status, crashed.attempt_of) == (begun.id, 'crashed', None)
    assert (recovered.run_id, recovered.attempt_of) == (version.run_id, crashed.run_id)
    assert (recovered.status, again.status, again.attempt_of) == (
        'awaiting_approval',
        'awaiting_approval',
        crashed.run_id,
    )


async def test_recovered_run_has_the_session_of_its_original_run(url: str) -> None:
    """004-33: also if its record is made from the store. Runs without a session have none."""
    rows = Dying(AuditRecord, fields=AUDIT_FIELDS)
    with session_scope('mine sk-proj-c4n4ryZm9vYmFyQmF6MTIz'):
        await crash(url, rows, starts_pay, call('fast'), call('pay'))
    rows.is_dead = False
    async with SqlStore(await open_engine(url)) as store:
        (version,) = await payer(store, rows, 'never').recover()
        other = await (await payer(store, rows, 'ok').create()).advance('Go')
        runs = [run.id for run in await store.runs()]
        made = [await audit_of_run(store, run_id) for run_id in runs]
        written = (await rows.list()).items

    for records in (made, written):
        sessions = {record.run_id: record.session_id for record in records}
        assert sessions.pop(other.run_id or '') is None
        assert version.run_id in sessions
        assert list(sessions.values()) == ['mine [redacted: api key]'] * 2


async def test_lost_record_is_closed_with_the_outcome_of_its_run(store: SqlStore) -> None:
    rows = Dying(AuditRecord, fields=AUDIT_FIELDS)
    await (await payer(store, rows, 'ok').create()).advance('Go')
    rows.is_dead = False

    (closed,) = await finish_crashed(rows, never, store=store)

    assert (closed.status, closed.output) == ('success', 'ok')


async def test_active_run_is_not_closed(store: SqlStore, make: Make, rows: Rows) -> None:
    found: list[tuple[str, int]] = []

    async def work() -> str:
        (record,) = (await rows.list()).items

        async def is_alive(_: AuditRecord) -> bool:
            return True

        closed = await finish_crashed(rows, is_alive, store=store)
        found.append(((await audit_of_run(store, record.run_id)).status, len(closed)))
        return 'done'

    agent = Agent[Any, Any](ScriptedModel(call('work'), 'end'), tools=[work], capabilities=[Audit(rows)])
    await (await VersionedAgent(agent, store).create()).advance('Go')

    assert found == [('running', 0)]


async def test_run_that_ends_during_the_check_keeps_its_record() -> None:
    rows = MemoryRepository(AuditRecord, fields=AUDIT_FIELDS)
    record = AuditRecord(
        id='a', run_id='a', agent_name='x', question='', status='running', started_at=datetime.now(UTC)
    )
    await rows.upsert(record)

    async def ends(_: AuditRecord) -> bool:
        await rows.upsert(record.model_copy(update={'status': 'success'}))
        return False

    assert await finish_crashed(rows, ends) == []
    assert (await rows.get('a')).status == 'success'


class OnlyRequired:
    """A repository with the required methods and no others."""

    def __init__(self, rows: Rows) -> None:
        self.create, self.get, self.list, self.upsert = rows.create, rows.get, rows.list, rows.upsert
        self.delete, self.count, self.aclose = rows.delete, rows.count, rows.aclose


@pytest.mark.parametrize(('ends', 'expected'), [(False, 'crashed'), (True, 'success')])
async def test_crashed_run_is_finished_in_any_repository(ends: bool, expected: str) -> None:
    """One without updates too; there, a run that ends in the last moment may lose its record."""
    rows = MemoryRepository(AuditRecord, fields=AUDIT_FIELDS)
    record = AuditRecord(
        id='a', run_id='a', agent_name='x', question='', status='running', started_at=datetime.now(UTC)
    )
    await rows.upsert(record)

    async def is_alive(_: AuditRecord) -> bool:
        if ends:
            await rows.upsert(record.model_copy(update={'status': 'success'}))
        return False

    assert len(await finish_crashed(OnlyRequired(rows), is_alive)) == (not ends)
    assert (await rows.get('a')).status == expected


@pytest.mark.slow
async def test_crashed_run_without_a_store_keeps_its_known_fields() -> None:
    rows = Dying(AuditRecord, fields=AUDIT_FIELDS)
    agent = Agent[Any, Any](ScriptedModel(*['ok'] * 150), capabilities=[Audit(rows)])
    for number in range(150):
        await agent.run(f'Question {number}', metadata={'owner': 'me'})
    rows.is_dead = False

    closed = await finish_crashed(rows, never)

    assert len(closed) == 150
    assert {(each.status, each.owner, each.ended_at is None) for each in closed} == {('crashed', 'me', False)}
    assert await rows.count({'status': 'running'}) == 0


async def test_history_missing_from_the_store_is_in_the_record(url: str) -> None:
    """If no version has the end of a run, the record has the complete history."""
    rows = MemoryRepository(AuditRecord, fields=AUDIT_FIELDS)
    async with MortalStore(await open_engine(url)) as store:
        store.dies = starts_pay
        with pytest.raises(StoreUnavailableError):
            await (await payer(store, rows, call('fast'), call('pay')).create()).advance('Go')

    (record,) = (await rows.list()).items
    messages: list[ModelMessage] = await rehydrate(record)

    assert (record.status, record.version_id, record.first_new) == ('crashed', None, 0)
    assert [type(each).__name__ for each in messages[:4]] == ['ModelRequest', 'ModelResponse'] * 2


async def test_cancelled_run_is_recorded_as_interrupted(make: Make, store: SqlStore) -> None:
    started = asyncio.Event()

    async def work() -> str:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    agent = VersionedAgent(Agent[Any, Any](ScriptedModel(call('work')), tools=[work]), store)
    task = asyncio.ensure_future((await agent.create()).advance('Go'))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (run,) = await store.runs()

    assert (await audit_of_run(store, run.id)).status == 'interrupted'
