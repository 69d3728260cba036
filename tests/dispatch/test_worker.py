"""Workers execute the turns of a queue, each once, and continue those of crashed workers."""

# Private names are used because delays are not public.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import logging
import math
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent

from pydantic_deep import Approve, StateBackend
from pydantic_deep.dispatch import InProcessDispatcher, UnknownAgentError, Worker, submit
from pydantic_deep.dispatch._stored_events import load_attempts
from pydantic_deep.errors import ValidationError
from pydantic_deep.store import (
    QueuedRunRecord,
    RunRecord,
    StoreClosedError,
    StoreUnavailableError,
    UnknownCommitError,
    new_id,
    open_store,
)
from pydantic_deep.testing import Answer, ScriptedModel
from pydantic_deep.versions import TurnOptions, VersionedAgent
from tests.dispatch.conftest import Store, answers, ask, begin, crash, ended, events_of, process, until, working
from tests.versions.recovery.crashes import MAY_HAVE_RUN, World, begins, ends, starts, tool_call

pytestmark = pytest.mark.anyio


def sends(*keys: str) -> dict[str, list[Any]]:
    """Return a script in which each prompt sends its own key."""
    return {key: [tool_call('send', key=key), f'Sent {key}.'] for key in keys}


async def test_turns_of_a_conversation_run_in_order(url: str) -> None:
    world = World(url, answers(**sends(*'abc')))
    async with process(url) as store:
        conversation = await begin(world, store)
        runs = [await ask(conversation, store, key) for key in 'abc']
        async with working(world, store) as worker:
            done = await ended(store.queue, *runs)
            assert 'Worker' in repr(worker)
        head = await conversation.head()
        assert world.ran == ['send a', 'send b', 'send c']
        assert [version.output for version in await head.lineage()][1:] == ['Sent a.', 'Sent b.', 'Sent c.']
        assert [(run.problem, run.epoch, run.node) for run in done] == [(None, 1, store.queue.node)] * 3


async def test_dispatcher_delivers_runs_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('pydantic_deep.dispatch._worker.POLL_SECONDS', 1000)
    world = World(url, answers(**sends(*'ab')))
    dispatcher = InProcessDispatcher()
    async with process(url) as store, working(world, store, dispatcher=dispatcher):
        runs = [await ask(await begin(world, store), store, key, dispatcher=dispatcher) for key in 'ab']
        await ended(store.queue, *runs)
    assert Counter(world.ran) == Counter({'send a': 1, 'send b': 1})


async def test_worker_executes_as_many_runs_as_allowed(url: str) -> None:
    scripts: dict[str, list[Answer]] = {key: [tool_call('pay', key=key), 'end'] for key in 'abc'}
    world = World(url, answers(**scripts))
    world.may_pay.clear()
    async with process(url) as store:
        runs = [await ask(await begin(world, store), store, key) for key in 'abc']
        async with working(world, store, concurrency=2) as worker:
            await until(lambda: len(world.asked) == 2)
            reads = store.mortal.reads
            await until(lambda: store.mortal.reads > reads + 10)
            assert (worker.active_count, len(world.asked)) == (2, 2)
            world.may_pay.set()
            await ended(store.queue, *runs)


async def test_concurrent_deliveries_run_a_turn_once(url: str) -> None:
    """An engine that delivers twice, to one worker or to several, and after the end, changes nothing."""
    world = World(url, answers(**sends('a')))
    async with process(url) as store, process(url) as other:
        run = await ask(await begin(world, store), store, 'a')
        workers = [Worker({'agent': world.agent(each)}, each) for each in (store, other)]
        async with anyio.create_task_group() as group:
            for worker in [*workers, *workers]:
                group.start_soon(worker.execute, run.run_id)
        await workers[0].execute(run.run_id)
        await workers[0].execute(new_id())
        (done,) = await ended(store.queue, run)
    assert (world.ran, done.epoch) == (['send a'], 1)


async def test_run_of_an_unknown_agent_stays_queued_with_a_reason(url: str) -> None:
    world = World(url, answers())
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        worker = Worker({'writer': world.agent(store)}, store)
        with pytest.raises(UnknownAgentError, match="needs the agent 'agent', and this worker has 'writer'"):
            await worker.execute(run.run_id)
        known = await store.queue.get(run.run_id)
        assert known is not None
        assert (known.state, known.problem) == ('queued', "It needs a worker with the agent 'agent'.")
        assert await store.queue.ready(['writer']) == []


async def test_run_of_another_store_is_left_to_its_workers(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Two stores have one dispatcher by mistake. The run stays queued in its own store, and the log has a sentence."""
    world = World(url, answers(**sends('a')))
    async with process(url) as store, process(f'{url}-other') as other:
        run = await ask(await begin(world, store), store, 'a')
        await Worker({'agent': world.agent(other)}, other).execute(run.run_id)
        waiting = await store.queue.get(run.run_id)
    assert waiting is not None
    assert (waiting.state, world.ran) == ('queued', [])
    assert f"The run {run.run_id} is not in the store '{url}-other'" in caplog.text


async def test_turns_wait_for_answers_to_pending_approvals(url: str) -> None:
    """A turn that pauses holds up the next one until a turn with the answers has moved the head."""
    world = World(url, answers(**sends(*'ab')), options={'interrupt_on': {'send': True}})
    async with process(url) as store, working(world, store):
        conversation = await begin(world, store)
        first, second = [await ask(conversation, store, key) for key in 'ab']
        await ended(store.queue, first)
        paused = await conversation.head()
        assert [pending.tool for pending in paused.pending] == ['send']
        reads = store.mortal.reads
        await until(lambda: store.mortal.reads > reads + 20)
        assert world.ran == []
        await submit(conversation, TurnOptions(answers={paused.pending[0].id: Approve()}, by='ann'), store)
        await ended(store.queue, second)
        again = await conversation.head()
        assert (world.ran, again.state) == (['send a'], 'awaiting_approval')
        resumption = TurnOptions(answers={again.pending[0].id: Approve()}, moves_head=True)
        await ended(store.queue, await submit(again, resumption, store))
        assert (await conversation.head()).output == 'Sent b.'
    assert world.ran == ['send a', 'send b']


async def test_running_turn_is_cancelled_and_its_work_is_stored(url: str) -> None:
    world = World(url, answers(a=[tool_call('send', key='a'), tool_call('pay', key='a'), 'Never.']))
    world.may_pay.clear()
    async with process(url) as store, working(world, store):
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        await until(lambda: len(world.asked) == 2)
        await store.queue.request_cancel(run.run_id)
        await ended(store.queue, run)
        assert (await conversation.head()).state == 'interrupted'
        assert [event.type for event in await events_of(store.queue, run)][-2:] == ['error', 'end']
    assert world.ran == ['send a']


@pytest.mark.parametrize('has_begun', [True, False])
async def test_turn_of_a_dead_worker_that_is_cancelled_is_ended_by_another(url: str, *, has_begun: bool) -> None:
    world = World(url, answers(a=[tool_call('send', key='a'), 'Never.']))
    async with process(url) as store:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        await crash(world, ends('send') if has_begun else begins, before=not has_begun)
        await store.queue.request_cancel(run.run_id)
        async with working(world, store):
            (done,) = await ended(store.queue, run)
        assert (await conversation.head()).state == ('interrupted' if has_begun else 'complete')
        assert done.problem == (None if has_begun else 'It was cancelled before it began.')
    assert world.ran == (['send a'] if has_begun else [])


async def test_worker_that_crashed_before_the_turn_began_is_replaced(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claim alone is in the store: there is no run that could be found as an orphan."""
    monkeypatch.setattr('pydantic_deep.dispatch._worker.CONFIRM_SECONDS', 0.05)
    world = World(url, answers(**sends('a')))
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        await crash(world, begins, before=True)
        assert await store.runs() == []
        async with working(world, store):
            (done,) = await ended(store.queue, run)
    assert (world.ran, done.epoch) == (['send a'], 2)


async def test_turn_of_a_crashed_worker_is_continued_without_repeating_finished_calls(url: str) -> None:
    script = answers(
        a=[[tool_call('look', key='1')], [tool_call('send', key='2')], [tool_call('look', key='3')], 'End.']
    )
    world = World(url, script)
    async with process(url) as store:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        await crash(world, ends('send'))
        async with working(world, store):
            await ended(store.queue, run)
        assert (await conversation.head()).output == 'End.'
    assert world.ran == ['look 1', 'send 2', 'look 3']


async def test_call_that_may_have_run_becomes_an_approval(url: str) -> None:
    world = World(url, answers(a=[[tool_call('send', key='2')], 'End.']))
    async with process(url) as store:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        await crash(world, starts('send'))
        async with working(world, store):
            await ended(store.queue, run)
            paused = await conversation.head()
            (pending,) = paused.pending
            assert (pending.tool, MAY_HAVE_RUN in str(pending.preview)) == ('send', True)
            await ended(store.queue, await submit(conversation, TurnOptions(answers={pending.id: Approve()}), store))
        assert (await conversation.head()).output == 'End.'


async def test_worker_that_stops_gives_its_runs_back(url: str) -> None:
    """Another worker continues them, although the process of the first is alive; finished calls are not repeated."""
    world = World(url, answers(a=[tool_call('look', key='a'), tool_call('send', key='a'), tool_call('draft'), 'End.']))
    world.may_pay.clear()
    async with process(url) as store, process(url) as other:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        async with working(world, store, drain_seconds=0) as worker:
            await until(lambda: len(world.asked) == 3)
        assert worker.active_count == 0
        given_back = await store.queue.get(run.run_id)
        assert given_back is not None
        assert (given_back.state, given_back.worker) == ('queued', None)
        world.may_pay.set()
        async with working(world, other):
            (done,) = await ended(store.queue, run)
        assert (done.epoch, (await conversation.head()).output) == (2, 'End.')
    assert world.ran == ['look a', 'send a']


async def test_run_that_was_given_back_is_cancelled_while_all_workers_are_full(url: str) -> None:
    """A cancelled run is only ended, so it needs no free worker; other runs wait for one."""
    scripts: dict[str, list[Answer]] = {key: [tool_call('pay', key=key), 'End.'] for key in ('a', 'long', 'late')}
    world = World(url, answers(**scripts))
    world.may_pay.clear()
    async with process(url) as store, process(url) as other:
        run = await ask(await begin(world, store), store, 'a')
        async with working(world, store, drain_seconds=0):
            await until(lambda: len(world.asked) == 1)
        long, late = [await ask(await begin(world, other), other, key, priority=1) for key in ('long', 'late')]
        async with working(world, other, concurrency=1):
            await until(lambda: len(world.asked) == 2)
            await store.queue.request_cancel(run.run_id)
            (done,) = await ended(store.queue, run)
            states = [waiting.state for waiting in await store.queue.get_all([long.run_id, late.run_id])]
            assert (done.epoch, sorted(states), len(world.asked)) == (2, ['queued', 'running'], 2)
            world.may_pay.set()
            await ended(store.queue, long, late)
        assert [attempt.state for attempt in await load_attempts(store, run.run_id)] == ['interrupted']


async def test_worker_that_stops_lets_short_runs_end(url: str) -> None:
    world = World(url, answers(a=[tool_call('pay', key='a'), 'End.']))
    world.may_pay.clear()
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        async with working(world, store, drain_seconds=1000) as worker:
            await until(lambda: len(world.asked) == 1)
            worker.stop()
            late = await ask(await begin(world, store), store, 'late')
            await worker.execute(late.run_id)
            world.may_pay.set()
        (done,) = await ended(store.queue, run)
        waiting = await store.queue.get(late.run_id)
        assert waiting is not None
        assert (done.epoch, waiting.state) == (1, 'queued')


@pytest.mark.parametrize('is_draining', [True, False])
async def test_worker_that_is_cancelled_gives_its_runs_back_at_once(url: str, *, is_draining: bool) -> None:
    world = World(url, answers(a=[tool_call('pay', key='a'), 'End.']))
    world.may_pay.clear()
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        worker = Worker({'agent': world.agent(store)}, store, drain_seconds=1000)
        async with anyio.create_task_group() as group:
            await group.start(worker.run)
            await until(lambda: len(world.asked) == 1)
            if is_draining:
                worker.stop()
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        given_back = await store.queue.get(run.run_id)
        assert given_back is not None
        assert given_back.state == 'queued'
        assert [attempt.state for attempt in await store.runs()] == ['running']
        assert [orphan.id for orphan in await store.orphans()] == [run.run_id]


async def test_execution_that_an_engine_cancels_ends_as_interrupted(url: str) -> None:
    world = World(url, answers(a=[tool_call('pay', key='a'), 'End.']))
    world.may_pay.clear()
    async with process(url) as store:
        conversation = await begin(world, store)

        async def has_a_step() -> bool:
            return any(version.kind == 'step' for version in await store.versions())

        run = await ask(conversation, store, 'a')
        worker = Worker({'agent': world.agent(store)}, store)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.execute, run.run_id)
            await until(has_a_step)
            group.cancel_scope.cancel()
        async with working(world, store):
            await ended(store.queue, run)
        assert (await conversation.head()).state == 'interrupted'
    assert world.ran == []


async def test_execution_that_is_cancelled_while_it_claims_its_run_is_continued(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that nobody knows of would keep the run from other workers until this process ends."""
    world = World(url, answers(**sends('a')))
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        claim = store.queue.claim

        async def claim_slowly(run_id: str) -> QueuedRunRecord | None:
            claimed = await claim(run_id)
            group.cancel_scope.cancel()
            await anyio.lowlevel.checkpoint()
            return claimed

        monkeypatch.setattr(store.queue, 'claim', claim_slowly)
        async with anyio.create_task_group() as group:
            group.start_soon(Worker({'agent': world.agent(store)}, store).execute, run.run_id)
        monkeypatch.setattr(store.queue, 'claim', claim)
        async with working(world, store):
            await ended(store.queue, run)
    assert world.ran == ['send a']


async def test_claim_that_the_store_makes_late_is_executed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process writes for a long time, the claim is not lost: it would keep the run from all workers."""
    monkeypatch.setattr('pydantic_deep.dispatch._worker.STORE_SECONDS', 0.01)
    world = World(f'sqlite:///{tmp_path}/store.db', answers(**sends('a')))
    async with process(world.url) as store:
        run = await ask(await begin(world, store), store, 'a')
        with closing(sqlite3.connect(tmp_path / 'store.db', isolation_level=None)) as other:
            other.execute('BEGIN IMMEDIATE')
            async with working(world, store) as worker:
                await until(lambda: worker.active_count == 1)
                with anyio.move_on_after(0.1):
                    await ended(store.queue, run)
                other.execute('ROLLBACK')
                await ended(store.queue, run)
    assert world.ran == ['send a']


async def test_claim_whose_outcome_is_unknown_is_given_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database was lost in the middle of its commit, and had made it."""
    world = World(url, answers(**sends('a')))
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        claim, errors = store.queue.claim, iter([UnknownCommitError('lost')])

        async def claim_without_answer(run_id: str) -> QueuedRunRecord | None:
            claimed = await claim(run_id)
            for error in errors:
                raise error
            return claimed

        monkeypatch.setattr(store.queue, 'claim', claim_without_answer)
        async with working(world, store):
            (done,) = await ended(store.queue, run)
    assert (world.ran, done.epoch) == (['send a'], 2)


async def test_claim_that_hangs_ends_with_its_worker(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(url, answers(**sends('a')))
    async with process(url) as store:
        await ask(await begin(world, store), store, 'a')
        monkeypatch.setattr('pydantic_deep.dispatch._worker.STORE_SECONDS', 0.01)
        claimed: list[str] = []

        async def claim(run_id: str) -> None:
            claimed.append(run_id)
            await anyio.sleep_forever()

        monkeypatch.setattr(store.queue, 'claim', claim)
        async with working(world, store, drain_seconds=0) as worker:
            await until(lambda: bool(claimed))
        assert (worker.active_count, world.ran) == (0, [])


async def test_subagents_of_a_run_are_given_back_with_it(url: str) -> None:
    script = answers(
        a=[tool_call('task', subagent='child', description='b'), 'End.'], b=[tool_call('pay', key='b'), 'Paid.']
    )
    world = World(url, script)
    world.may_pay.clear()
    async with process(url) as store, process(url) as other:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        async with working(world, store, drain_seconds=0):
            await until(lambda: has_started(store, 'pay'))
        assert len(await other.orphans()) == 2
        async with working(world, other):
            await ended(store.queue, run)
        assert [each.state for each in await store.runs(states=['running'])] == []
        (pending,) = (await conversation.head()).pending
    assert (pending.tool, world.ran) == ('pay', [])


async def test_run_that_ends_while_it_is_given_back_is_not_continued(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(url, answers(a=[tool_call('pay', key='a'), 'End.']))
    world.may_pay.clear()
    async with process(url) as store:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        release = store.release_run

        async def release_late(run_id: str) -> bool:
            world.may_pay.set()
            await until(lambda: is_complete(store))
            return await release(run_id)

        monkeypatch.setattr(store, 'release_run', release_late)
        async with working(world, store, drain_seconds=0):
            await until(lambda: len(world.asked) == 1)
        async with process(url) as other, working(world, other):
            await ended(store.queue, run)
        assert (await conversation.head()).output == 'End.'
    assert (world.ran, len(world.asked)) == (['pay a'], 2)


async def test_attempt_that_begins_while_a_run_is_given_back_is_given_back_too(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(url, answers(a=[tool_call('look', key='a'), tool_call('pay', key='a'), 'End.']))
    async with process(url) as store, process(url) as other:
        conversation = await begin(world, store)
        run = await ask(conversation, store, 'a')
        await crash(world, begins)
        world.may_pay.clear()
        async with working(world, other, drain_seconds=0) as worker:
            await until(lambda: has_started(store, 'pay'))
            stale = [await load_attempts(store, run.run_id)]
            assert len(stale[0]) == 2
            stale[0].pop()

            async def load(opened: Store, run_id: str) -> list[RunRecord]:
                """Return the attempts as they were before the last one began, when the run is given back."""
                is_given_back = run_id in worker._active and worker._active[run_id].is_given_back
                return stale.pop() if stale and is_given_back else await load_attempts(opened, run_id)

            monkeypatch.setattr('pydantic_deep.dispatch._worker.load_attempts', load)
        assert stale == []
        assert [attempt.state for attempt in await load_attempts(store, run.run_id)] == ['interrupted', 'running']
        async with working(world, store):
            await ended(store.queue, run)
        (pending,) = (await conversation.head()).pending
    assert (pending.tool, 'pay a' in world.ran) == ('pay', False)


async def has_started(store: Store, tool: str) -> bool:
    calls = await store.calls([run.id for run in await store.runs()])
    return any(call.tool_name == tool for call in calls)


async def is_complete(store: Store) -> bool:
    return bool(await store.runs(states=['complete']))


async def test_orphans_that_were_not_queued_are_recovered(url: str) -> None:
    world = World(url, answers(**sends('a')))
    async with world.process(dies_after=ends('send')) as agent:
        conversation_id = (await agent.create(backend=StateBackend())).conversation_id
        head = await agent.conversation(conversation_id).head()
        await head.run(TurnOptions(prompt='a', moves_head=True))
    async with process(url) as store, working(world, store):
        await until(lambda: is_complete(store))
        assert (await world.agent(store).conversation(conversation_id).head()).output == 'Sent a.'
    assert world.ran == ['send a']


async def test_orphan_whose_conversation_has_moved_on_stays_suspended(url: str) -> None:
    world = World(url, answers(a=[tool_call('send', key='a'), 'Never.'], b=['Instead.']))
    async with world.process(dies_after=ends('send')) as agent:
        root = await agent.create(backend=StateBackend())
        await root.advance('a')
    async with process(url) as store:
        await world.agent(store).conversation(root.conversation_id).head()
        await (await world.agent(store).load(root.id)).advance('b')
        async with working(world, store):
            reads = store.mortal.reads
            await until(lambda: store.mortal.reads > reads + 30)
        assert len(await world.agent(store).suspended()) == 1
    assert len(world.asked) == 2


async def test_orphans_of_other_agents_and_queued_ones_are_left_alone(url: str) -> None:
    world = World(url, answers(**sends('a')))
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        await crash(world, ends('send'))
        (claim,) = await store.queue.dead_workers()
        worker = Worker({'writer': world.agent(store)}, store)
        async with anyio.create_task_group() as group:
            await group.start(worker.run)
            reads = store.mortal.reads
            await until(lambda: store.mortal.reads > reads + 20)
            worker.stop()
        assert len(await store.orphans()) == 1
        known = await store.queue.get(run.run_id)
        assert known is not None
        assert known.worker == claim


async def test_orphans_run_side_by_side_and_one_that_hangs_holds_up_no_other(url: str) -> None:
    keys = [f'k{number}' for number in range(6)]
    script = answers(**sends(*keys), hang=[tool_call('draft'), 'Late.'])
    world = World(url, script)
    for key in ['hang', *keys]:
        async with world.process(dies_after=begins) as agent:
            await (await agent.create(backend=StateBackend())).advance(key)
    world.may_pay.clear()
    async with process(url) as store, working(world, store, concurrency=2, drain_seconds=0):
        await until(lambda: len(world.ran) == len(keys))
    assert sorted(world.ran) == [f'send {key}' for key in sorted(keys)]


async def test_run_that_cannot_be_continued_is_retried_with_growing_delays(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The others do not wait for it, although it is the oldest."""
    delays = (0.05, 0.1, 0.15)
    monkeypatch.setattr('pydantic_deep.dispatch._worker.RETRY_SECONDS', delays)
    world = World(url, answers(**sends(*'ab')))
    async with process(url) as store:
        bad = await ask(await begin(world, store), store, 'a')
        await crash(world, ends('send'))
        good = await ask(await begin(world, store), store, 'b')
        agent = world.agent(store)
        recover = agent.recover_stream
        tries: list[str] = []

        async def fail(run_id: str, **options: Any) -> object:
            tries.append(run_id)
            if len(tries) <= 4:
                raise ValueError('The disk of the files is missing.')
            return await recover(run_id, **options)

        monkeypatch.setattr(agent, 'recover_stream', fail)
        worker = Worker({'agent': agent}, store, concurrency=1)
        postponed: list[int] = []
        postpone = worker._postpone

        def note(run_id: str, *, is_cancelled: bool) -> None:
            before = anyio.current_time()
            postpone(run_id, is_cancelled=is_cancelled)
            postponed.append(int((worker._retries[run_id].until - before) / delays[0]))

        monkeypatch.setattr(worker, '_postpone', note)
        async with anyio.create_task_group() as group:
            await group.start(worker.run)
            await ended(store.queue, good, bad)
            worker.stop()
        assert worker._retries == {}
    assert postponed == [1, 2, 3, 3]
    assert 'The disk of the files is missing.' in caplog.text
    assert world.ran == ['send a', 'send b']


async def test_postponed_run_that_is_cancelled_ends_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr('pydantic_deep.dispatch._worker.RETRY_SECONDS', (1000.0,))

    def fail(account: str, conversation_id: str) -> StateBackend:
        raise OSError('The disk failed.')

    world = World(url, answers(**sends('a')))
    async with process(url) as store, process(url) as door, working(world, store, make_backend=fail):
        run = await ask(await begin(world, store), store, 'a')

        async def is_postponed() -> bool:
            known = await store.queue.get(run.run_id)
            return known is not None and known.problem is not None

        await until(is_postponed)
        await door.queue.request_cancel(run.run_id)
        (done,) = await ended(store.queue, run)
        assert (done.problem, done.epoch) == ('It was cancelled before it began.', 2)


async def test_postponed_runs_do_not_hide_others(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More runs wait for their next attempt than the worker may execute; a newer one begins nevertheless."""
    monkeypatch.setattr('pydantic_deep.dispatch._worker.RETRY_SECONDS', (1000.0,))
    world = World(url, answers(**sends('good')))
    async with process(url) as store:
        bad = [await ask(await begin(world, store), store, 'bad') for _ in range(5)]
        good = await ask(await begin(world, store), store, 'good')
        async with working(world, store, concurrency=2) as worker:
            for run in bad:
                worker._postpone(run.run_id)
            await ended(store.queue, good)
        assert [run.state for run in await store.queue.get_all([run.run_id for run in bad])] == ['queued'] * 5


async def test_worker_waits_for_a_store_that_is_unavailable(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The end of a claim is written when the store is back, so that the next turn of the conversation can begin."""
    world = World(url, answers(**sends(*'ab')))
    async with process(url) as store:
        conversation = await begin(world, store)
        runs = [await ask(conversation, store, key) for key in 'ab']
        tries: list[str] = []
        end = store.queue.end

        async def end_later(run_id: str, *, problem: str | None = None) -> bool:
            if not tries:
                store.mortal.is_dead = True
            tries.append(run_id)
            return await end(run_id, problem=problem)

        store.queue.end = end_later
        async with working(world, store):
            await until(lambda: len(tries) > 8)
            store.mortal.is_dead = False
            await ended(store.queue, *runs)
            await until(lambda: 'The worker has its store again.' in caplog.messages)
    assert world.ran == ['send a', 'send b']
    assert caplog.text.count('The worker waits for its store') == 1


async def test_turn_that_could_not_begin_because_of_the_store_begins_later(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says why it is given back, such as a wrong bucket."""
    world = World(url, answers(**sends('a')))
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        failed = iter([True])
        store.fails_at = lambda commit: begins(commit) and next(failed, False)
        async with working(world, store):
            (done,) = await ended(store.queue, run)
        assert [event.type for event in await events_of(store.queue, run)][-1] == 'end'
    assert (world.ran, done.epoch) == (['send a'], 2)
    assert f'The run {run.run_id} stays queued: The disk is full.' in caplog.text


async def test_worker_ends_if_its_store_is_closed(url: str) -> None:
    world = World(url, answers())
    async with process(url) as store:
        worker = Worker({'agent': world.agent(store)}, store)
        await store.aclose()
        with pytest.raises(StoreClosedError):
            await worker.run()


async def test_error_while_looking_for_work_is_logged_and_does_not_end_the_worker(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(url, answers(**sends('a')))
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        ready = store.queue.ready
        errors = iter([RuntimeError('damaged'), StoreUnavailableError('away')])

        async def fail(*args: Any, **options: Any) -> object:
            for error in errors:
                raise error
            return await ready(*args, **options)

        monkeypatch.setattr(store.queue, 'ready', fail)
        async with working(world, store):
            await ended(store.queue, run)
    assert 'The worker could not look for work' in caplog.text


async def test_error_of_an_execution_is_logged(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(url, answers(**sends('a')))
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        claim = store.queue.claim
        errors = iter([RuntimeError('damaged')])

        async def fail(run_id: str) -> object:
            for error in errors:
                raise error
            return await claim(run_id)

        monkeypatch.setattr(store.queue, 'claim', fail)
        with caplog.at_level(logging.ERROR, 'pydantic_deep'):
            async with working(world, store):
                await ended(store.queue, run)
    assert f'The run {run.run_id} could not be executed' in caplog.text


async def hang(run_id: str, **options: Any) -> None:
    await anyio.sleep_forever()


async def test_stopping_does_not_wait_for_a_store_that_hangs(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(url, answers(a=[tool_call('pay', key='a'), 'End.']))
    world.may_pay.clear()
    async with process(url) as store:
        await ask(await begin(world, store), store, 'a')
        async with working(world, store, drain_seconds=0):
            await until(lambda: len(world.asked) == 1)
            monkeypatch.setattr('pydantic_deep.dispatch._worker.STORE_SECONDS', 0.01)
            monkeypatch.setattr(store, 'release_run', hang)
            monkeypatch.setattr(store.queue, 'release', hang)
    assert world.ran == []


async def test_run_that_cannot_be_given_back_is_continued_when_the_process_has_ended(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(url, answers(a=[tool_call('draft'), 'End.']))
    world.may_pay.clear()
    async with process(url) as store:
        run = await ask(await begin(world, store), store, 'a')
        async with process(url) as other, working(world, other, drain_seconds=0):
            await until(lambda: len(world.asked) == 1)

            async def fail(run_id: str) -> bool:
                raise StoreUnavailableError('away')

            monkeypatch.setattr(other, 'release_run', fail)
        world.may_pay.set()
        assert 'is continued when this process has ended' in caplog.text
        async with working(world, store):
            await ended(store.queue, run)


async def test_worker_reports_its_runs_and_removes_old_ones(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('pydantic_deep.dispatch._worker.PRUNE_SECONDS', 0)
    monkeypatch.setattr('pydantic_deep.dispatch._worker._FORGET_SECONDS', -1)
    world = World(url, answers(**sends('a'), b=[tool_call('pay', key='b'), 'End.']))
    world.may_pay.clear()
    async with process(url) as store, working(world, store, retention_seconds=0) as worker:
        first, second = [await ask(await begin(world, store), store, key) for key in 'ab']
        worker._postpone(new_id())

        async def is_done() -> bool:
            running = await store.queue.get(second.run_id)
            assert running is not None
            is_beating = str(running.heartbeat_at) > str(running.started_at)
            return is_beating and await store.queue.get(first.run_id) is None and not worker._retries

        await until(is_done)
        world.may_pay.set()


async def test_many_old_runs_are_removed_without_a_pause(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [1000, 1000, 3]
    removed: list[float] = []

    async def prune(older_than_seconds: float) -> int:
        removed.append(older_than_seconds)
        return counts[len(removed) - 1]

    async with process(url) as store:
        monkeypatch.setattr(store.queue, 'prune', prune)
        async with working(World(url, answers()), store, retention_seconds=7):
            await until(lambda: len(removed) == len(counts))
            reads = store.mortal.reads
            await until(lambda: store.mortal.reads > reads + 20)
    assert removed == [7, 7, 7]


@pytest.mark.parametrize(
    'options',
    [
        {'concurrency': 0},
        {'concurrency': 1.5},
        {'drain_seconds': -1},
        {'drain_seconds': math.nan},
        {'retention_seconds': math.inf},
    ],
)
async def test_invalid_number_is_refused_when_the_worker_is_created(options: dict[str, Any]) -> None:
    """Otherwise the worker would execute nothing, or fail again and again."""
    async with open_store('memory:') as store:
        Worker({}, store, drain_seconds=math.inf)
        with pytest.raises(ValidationError, match=next(iter(options))):
            Worker({}, store, **options)


async def test_agent_of_another_store_is_refused() -> None:
    """Its commits would have another owner than the claims of the worker."""
    async with open_store('memory:') as store, open_store('memory:') as other:
        agent = VersionedAgent(Agent(ScriptedModel('Hi')), other)
        with pytest.raises(ValueError, match="The agent 'helper' has the store 'memory:'"):
            Worker({'helper': agent}, store)
