"""The turn of a claimed run: how it begins, continues after a crash, or cannot."""

# Private names are used because deps are created in the session of the agent.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from pydantic_deep import Approve, Deny, StateBackend
from pydantic_deep.dispatch import Worker, load_attempts, submit
from pydantic_deep.dispatch._queued_turn import MAX_CLAIMS
from pydantic_deep.errors import UploadNotFoundError
from pydantic_deep.store import (
    ApprovalRecord,
    Commit,
    Committed,
    QueuedRunRecord,
    StoreCorruptedError,
    StoreUnavailableError,
    UnknownCommitError,
    VersionFilter,
)
from pydantic_deep.streaming import (
    EndEvent,
    ErrorEvent,
    NoticeEvent,
    StartEvent,
    StreamEvent,
    TextEvent,
    ToolCallDeltaEvent,
    ToolResultEvent,
)
from pydantic_deep.versions import ConversationDirectories, TurnOptions
from pydantic_deep_backends import LocalBackend
from tests.dispatch.conftest import Store, answers, ask, begin, crash, ended, events_of, process, until, working
from tests.versions.recovery.crashes import World, begins, nth, tool_call

pytestmark = pytest.mark.anyio

UNEXPECTED = 'The run failed with {}. The log of the application has the details.'
"""What clients read of an unexpected error."""

SCRIPT = answers(
    a=[
        ['I look.', tool_call('look', key='1'), tool_call('look', key='2')],
        tool_call('draft'),
        ['And again.', tool_call('look', key='3')],
        'The end.',
    ]
)


def every(commit: Commit) -> bool:
    return True


def comparable(events: list[StreamEvent]) -> list[StreamEvent]:
    """Return the events without ids of runs and versions, fragments of calls and notices before them, with the parts of
    each text joined, and the results of parallel calls in the order of their ids.
    """
    joined: list[StreamEvent] = []
    for event in events:
        match event:
            case NoticeEvent() | ToolCallDeltaEvent():
                pass
            case TextEvent() if joined and isinstance(joined[-1], TextEvent):
                joined[-1] = replace(event, text=joined[-1].text + event.text)
            case ToolResultEvent() if joined and isinstance(joined[-1], ToolResultEvent):
                joined[-1:] = sorted([joined[-1], event], key=lambda each: each.id)
            case StartEvent():
                joined.append(replace(event, id='', conversation_id=''))
            case EndEvent():
                joined.append(replace(event, version_id=None))
            case _:
                joined.append(event)
    return joined


async def run_once(url: str, **options: Any) -> tuple[list[StreamEvent], int]:
    """Run a turn without a crash; return its events and the number of its commits."""
    world, count = World(url, SCRIPT), 0

    def note(commit: Commit) -> bool:
        nonlocal count
        count += 1
        return False

    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a', **options)
        store.dies_after = note
        async with working(world, store):
            await ended(store.queue, run)
        return await events_of(store.queue, run), count


@pytest.mark.slow
async def test_events_of_a_continued_run_are_those_of_an_undisturbed_one(url: str) -> None:
    """Whatever was committed when the process died: no event is missing, and none comes twice.

    If the end of the run was committed, nothing is left to do, and its events are in the store only.
    """
    expected, commits = await run_once(url)
    assert [event.type for event in expected if not isinstance(event, TextEvent)].count('tool_call') == 4
    for number in range(1, commits + 1):
        world = World(url, SCRIPT)
        async with process(url) as store:
            run = await ask(await begin(world, store), store, 'a')
            await crash(world, nth(every, number), before=number == 1)
            async with working(world, store):
                await ended(store.queue, run)
            events = comparable(await events_of(store.queue, run))
            assert events == ([] if number == commits else comparable(expected)), number


async def test_turn_uses_the_files_that_the_application_opens(url: str) -> None:
    world, opened = World(url, SCRIPT), list[tuple[str, str]]()
    backend = StateBackend()

    def open_backend(account: str, conversation_id: str) -> StateBackend:
        opened.append((account, conversation_id))
        return backend

    async with process(url) as store:
        conversation = await begin(world, store)
        head = await conversation.head()
        runs = [await ask(conversation, store, 'a', account='ann')]
        async with working(world, store, make_backend=open_backend):
            await ended(store.queue, *runs)
            runs.append(await submit(head, TurnOptions(prompt='a'), store))
            await ended(store.queue, *runs)
    assert opened == [('ann', conversation.id), ('', conversation.id)]


async def test_turn_of_a_crashed_worker_uses_the_files_that_the_next_one_opens(url: str, tmp_path: Path) -> None:
    """Without them it would use files in memory, in which no command can run."""

    def has_step(commit: Commit) -> bool:
        return any(version.kind == 'step' for version in commit.versions)

    def opens(name: str) -> Callable[[str, str], LocalBackend]:
        (tmp_path / name).mkdir()
        return lambda account, conversation_id: LocalBackend(tmp_path / name)

    world = World(url, SCRIPT)
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        await crash(world, has_step, make_backend=opens('first'))
        async with working(world, store, make_backend=opens('second')):
            await ended(store.queue, run)
    assert (tmp_path / 'second/draft.txt').read_bytes() == b'half'


async def test_turn_that_cannot_begin_ends_whatever_its_error_contains(url: str) -> None:
    """The text of an error may have characters that databases refuse. The claim ends all the same."""

    def fail(account: str, conversation_id: str) -> StateBackend:
        raise ValueError('a\0b\udc80')

    world = World(url, SCRIPT)
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        async with working(world, store, make_backend=fail):
            (done,) = await ended(store.queue, run)
    assert done.problem == f'{UNEXPECTED.format("ValueError")}\nValueError: a\\0b\\udc80'


async def test_turn_that_continues_in_a_directory_with_older_files_says_so(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It works on a view, and its version has its files. The directory gets them before the next turn."""
    script = answers(
        a=['End.'], b=[tool_call('draft'), 'End.'], c=[tool_call('draft'), tool_call('look', key='c'), 'End.']
    )
    world, old, new = (
        World(url, script),
        ConversationDirectories(tmp_path / 'old'),
        ConversationDirectories(tmp_path / 'new'),
    )
    async with process(url) as store:
        conversation = await begin(world, store)
        for prompt, directories in (('a', old), ('b', new)):
            async with working(world, store, make_backend=directories):
                await ended(store.queue, await ask(conversation, store, prompt))
        run = await ask(conversation, store, 'c')
        await crash(
            world, nth(lambda commit: any(version.kind == 'step' for version in commit.versions), 2), make_backend=new
        )
        async with working(world, store, make_backend=old):
            await ended(store.queue, run)
            (log,) = [record.getMessage() for record in caplog.records if 'continues on a view' in record.message]
            assert f'The run {run.run_id} continues on a view of the files of version ' in log
            assert str(tmp_path / 'old') in log
            draft = tmp_path / 'old' / conversation.id / 'draft.txt'
            assert not draft.exists()
            await ended(store.queue, await ask(conversation, store, 'a'))
        assert draft.read_bytes() == b'half'


def fail_to_open(error: Exception, count: int) -> Callable[[str, str], StateBackend]:
    """Return a function that opens files after it has failed this number of times."""
    errors = [error] * count

    def open_backend(account: str, conversation_id: str) -> StateBackend:
        if errors:
            raise errors.pop()
        return StateBackend()

    return open_backend


@pytest.mark.parametrize('error', [OSError(28, 'No space left on device'), sqlite3.OperationalError('disk I/O error')])
async def test_turn_that_cannot_begin_on_one_worker_is_tried_by_others(url: str, error: Exception) -> None:
    world = World(url, answers(a=['End.']))
    async with process(url) as store, process(url) as other:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        agents = {'agent': world.agent(store)}
        await Worker(agents, store, make_backend=fail_to_open(error, 1)).execute(run.run_id)
        waiting = await store.queue.get(run.run_id)
        assert waiting is not None
        name = type(error).__name__
        problem = f'{UNEXPECTED.format(name)}\n{name}: {error}'
        assert (waiting.state, waiting.worker, waiting.problem) == ('queued', None, problem)
        async with working(world, other, make_backend=fail_to_open(error, 0)):
            (done,) = await ended(store.queue, run)
        assert (done.epoch, done.problem, (await conversation.head()).output) == (2, None, 'End.')
    assert world.asked == ['a 0']


@pytest.mark.parametrize('error', [OSError('The disk failed.'), StoreCorruptedError('asset', None, 'lost')])
async def test_turn_that_cannot_begin_anywhere_fails_after_some_claims(url: str, error: Exception) -> None:
    world = World(url, SCRIPT)
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        problem = await refused(store, world, run, make_backend=fail_to_open(error, 100))
        done = await store.queue.get(run.run_id)
        assert done is not None
        assert problem.endswith(str(error))
        assert done.epoch == MAX_CLAIMS
    assert world.asked == []


async def test_error_after_the_files_were_opened_fails_a_turn_with_its_reason(url: str) -> None:
    """The turn is ready, and nothing of it is stored."""
    world = World(url, SCRIPT)
    async with process(url) as store:
        agent, error = world.agent(store), UploadNotFoundError('a.csv')

        def fail() -> Any:
            raise error

        agent._session.make_deps = fail
        run = await ask(await begin(world, store), store, 'a')
        worker = Worker({'agent': agent}, store)
        await worker.execute(run.run_id)
        (done,) = await ended(store.queue, run)
        assert (done.epoch, done.problem) == (1, str(error))


async def test_turn_that_is_given_back_while_it_begins_is_continued(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker stops while the run is being stored, and its process lives on."""
    world, is_storing, may_store = World(url, answers(a=['End.'])), anyio.Event(), anyio.Event()
    async with process(url) as store, process(url) as other:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        commit = store.commit

        async def commit_late(new: Commit) -> Committed:
            is_storing.set()
            await may_store.wait()
            return await commit(new)

        monkeypatch.setattr(store, 'commit', commit_late)
        async with working(world, store, drain_seconds=0) as worker:
            await is_storing.wait()
            worker.stop()
            await until(lambda: worker._active[run.run_id].scope.cancel_called)
            may_store.set()
        assert [attempt.state for attempt in await load_attempts(store, run.run_id)] == ['running']
        async with working(world, other):
            (done,) = await ended(store.queue, run)
        assert (done.problem, (await conversation.head()).output) == (None, 'End.')
    assert world.asked == ['a 0']


async def test_turn_whose_begin_is_stored_without_an_answer_is_continued(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world, errors = World(url, answers(a=['End.'])), iter([UnknownCommitError('lost')])
    async with process(url) as store:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        commit = store.commit

        async def commit_without_answer(new: Commit) -> Committed:
            committed = await commit(new)
            for error in errors:
                raise error
            return committed

        monkeypatch.setattr(store, 'commit', commit_without_answer)
        async with working(world, store):
            (done,) = await ended(store.queue, run)
        assert (done.problem, (await conversation.head()).output) == (None, 'End.')
    assert world.asked == ['a 0']


async def test_turn_that_begins_again_after_an_unknown_commit_has_its_process(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was stored, so that the run begins with the same id, and nobody may take it over."""
    world, errors = World(url, answers(a=[tool_call('pay', key='a'), 'End.'])), iter([UnknownCommitError('lost')])
    world.may_pay.clear()
    async with process(url) as store:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        commit = store.commit

        async def lose_commit(new: Commit) -> Committed:
            for error in errors:
                raise error
            return await commit(new)

        monkeypatch.setattr(store, 'commit', lose_commit)
        async with working(world, store):
            await until(lambda: bool(world.asked))
            assert await store.orphans() == []
            world.may_pay.set()
            await ended(store.queue, run)
        assert (await conversation.head()).output == 'End.'
    assert world.ran == ['pay a']


async def test_resumption_continues_if_its_answers_could_not_be_claimed(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(url, answers(a=[tool_call('send', key='a'), 'End.']), options={'interrupt_on': {'send': True}})
    errors = iter([StoreUnavailableError('The server is gone.')])
    async with process(url) as store:
        conversation = await begin(world, store)
        async with working(world, store):
            await ended(store.queue, await ask(conversation, store, 'a'))
            (pending,) = (await conversation.head()).pending
            claim = store.claim_approvals

            async def fail(version_id: str, run_id: str) -> list[ApprovalRecord]:
                for error in errors:
                    raise error
                return await claim(version_id, run_id)

            monkeypatch.setattr(store, 'claim_approvals', fail)
            (done,) = await ended(
                store.queue, await submit(conversation, TurnOptions(answers={pending.id: Approve()}), store)
            )
        assert (done.problem, (await conversation.head()).output) == (None, 'End.')
    assert world.ran == ['send a']


async def refused(store: Store, world: World, run: QueuedRunRecord, **options: Any) -> str:
    """Expect that a run ends without a record of it, and return why."""
    async with working(world, store, **options):
        (done,) = await ended(store.queue, run)
    assert await load_attempts(store, run.run_id) == []
    start, error, end = await events_of(store.queue, run)
    assert isinstance(start, StartEvent)
    assert isinstance(error, ErrorEvent)
    assert isinstance(end, EndEvent)
    assert (start.id, end.status) == (run.run_id, 'failed')
    return str(done.problem)


async def test_turn_whose_base_was_deleted_fails(url: str) -> None:
    world = World(url, SCRIPT)
    async with process(url) as store:
        conversation = await begin(world, store)
        version = await (await conversation.head()).run(TurnOptions(prompt='a'))
        run = await submit(version, TurnOptions(prompt='a'), store)
        await store.delete(version.id)
        assert (await refused(store, world, run)).startswith('There is no version ')


async def test_turn_of_a_deleted_conversation_fails_and_holds_up_no_other(url: str) -> None:
    world = World(url, SCRIPT)
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        await store.queue.add(
            run._replace(run_id=f'{run.run_id[:-1]}{int(run.run_id[-1], 16) ^ 1:x}', base_id=run.run_id)
        )
        newer, _ = await store.queue.list()
        assert (await refused(store, world, newer)).startswith('There is no version ')
        await ended(store.queue, run)


async def test_continued_turn_whose_base_was_deleted_uses_its_own_steps(url: str) -> None:
    world = World(url, SCRIPT)
    async with process(url) as store:
        conversation = await begin(world, store)
        base = await (await conversation.head()).run(TurnOptions(prompt='a', moves_head=True))
        run = await ask(conversation, store, 'a')
        await crash(world, nth(every, 3))
        await store.delete(base.id)
        async with working(world, store):
            await ended(store.queue, run)
        (last,) = await world.agent(store).list(conversation_id=conversation.id, limit=1)
        assert (last.output, len(await last.messages())) == ('The end.', 16)
        assert [event.type for event in await events_of(store.queue, run)].count('tool_call') == 4


async def test_continued_turn_ends_if_it_had_no_step_and_its_base_was_deleted(url: str) -> None:
    world = World(url, SCRIPT)
    async with process(url) as store:
        conversation = await begin(world, store)
        base = await (await conversation.head()).run(TurnOptions(prompt='a'))
        run = await submit(base, TurnOptions(prompt='a'), store)
        await crash(world, begins)
        await store.delete(base.id)
        async with working(world, store):
            await ended(store.queue, run)
        assert [attempt.state for attempt in await load_attempts(store, run.run_id)] == ['failed']


async def test_head_that_paused_since_the_claim_is_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that was not queued moved the head to a version with pending approvals."""
    world = World(
        url, answers(a=[tool_call('send', key='a'), 'Sent.'], b=['End.']), options={'interrupt_on': {'send': True}}
    )
    async with process(url) as store:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'b')
        claim, paused = store.queue.claim, list[Any]()

        async def claim_before_pause(run_id: str) -> QueuedRunRecord | None:
            claimed = await claim(run_id)
            if claimed is not None and not paused:
                paused.append(await (await conversation.head()).run(TurnOptions(prompt='a', moves_head=True)))
            return claimed

        monkeypatch.setattr(store.queue, 'claim', claim_before_pause)
        async with working(world, store):

            async def is_queued_again() -> bool:
                known = await store.queue.get(run.run_id)
                assert known is not None
                return known.state == 'queued' and 'pending' in str(known.problem)

            await until(is_queued_again)
            resumed = await submit(conversation, TurnOptions(answers={paused[0].pending[0].id: Deny()}), store)
            await ended(store.queue, resumed, run)
        assert (await conversation.head()).output == 'End.'


async def test_events_that_cannot_be_read_leave_the_run_to_the_next_attempt(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(url, SCRIPT)
    async with process(url) as store:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        await crash(world, nth(every, 3))
        read, errors = store.versions, iter([StoreUnavailableError('The disk failed.')])

        async def fail(filter: VersionFilter, **page: Any) -> object:
            is_claimed = (await load_attempts(store, run.run_id))[-1].owner == store.owner
            for error in errors if is_claimed and page.get('limit') == 1_000_000 else ():
                raise error
            return await read(filter, **page)

        monkeypatch.setattr(store, 'versions', fail)
        async with working(world, store):
            (done,) = await ended(store.queue, run)
        assert next(errors, None) is None
        assert (done.epoch, (await conversation.head()).output) == (3, 'The end.')


async def test_run_that_another_process_recovers_is_not_touched(url: str) -> None:
    """A person resumes it with `VersionedAgent.recover`, while a worker has claimed its turn."""
    world = World(url, answers(a=[tool_call('look', key='1'), tool_call('draft'), 'End.']))
    async with process(url) as store, process(url) as other:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        await crash(world, begins)
        assert await other.claim_run(run.run_id)
        worker = Worker({'agent': world.agent(store)}, store)
        await worker.execute(run.run_id)
        waiting = await store.queue.get(run.run_id)
        assert waiting is not None
        assert (waiting.state, world.asked) == ('queued', [])
        await store.queue.request_cancel(run.run_id)
        await worker.execute(run.run_id)
        assert (await load_attempts(store, run.run_id))[0].state == 'running'
        assert await other.release_run(run.run_id)
        await worker.execute(run.run_id)
        assert (await load_attempts(store, run.run_id))[0].state == 'interrupted'


async def test_next_attempt_that_does_not_begin_leaves_the_run_to_others(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run was claimed, and its process is alive: it is marked as an orphan."""
    world = World(url, SCRIPT)
    async with process(url) as store:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        await crash(world, nth(every, 3))
        agent, errors = world.agent(store), iter([ZeroDivisionError('no deps')])
        make_deps = agent._session.make_deps

        def fail() -> Any:
            for error in errors:
                raise error
            return make_deps()

        monkeypatch.setattr(agent._session, 'make_deps', fail)
        worker = Worker({'agent': agent}, store)
        await worker.execute(run.run_id)
        known = await store.queue.get(run.run_id)
        assert known is not None
        assert (known.state, known.problem) == (
            'queued',
            f'{UNEXPECTED.format("ZeroDivisionError")}\nZeroDivisionError: no deps',
        )
        await worker.execute(run.run_id)
        (done,) = await ended(store.queue, run)
        assert (await conversation.head()).output == 'The end.'
        assert [event.type for event in await events_of(store.queue, done)].count('start') == 1


async def test_turn_begins_later_if_its_base_could_not_be_read(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(url, SCRIPT)
    async with process(url) as store:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        read, errors = store.version, iter([StoreUnavailableError('The disk failed.')])

        async def fail(id: str) -> object:
            for error in errors:
                raise error
            return await read(id)

        monkeypatch.setattr(store, 'version', fail)
        async with working(world, store):
            (done,) = await ended(store.queue, run)
        assert (done.epoch, done.problem, (await conversation.head()).output) == (2, None, 'The end.')
