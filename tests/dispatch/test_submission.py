"""Turns are checked when they are submitted, and queued with everything that another process needs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anyio
import pytest
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from pydantic_deep import Approve, StateBackend
from pydantic_deep.approvals import NothingPendingError
from pydantic_deep.dispatch import DispatcherUnavailableError, InProcessDispatcher, Worker, submit
from pydantic_deep.errors import ValidationError
from pydantic_deep.store import (
    ApprovalAnsweredError,
    Commit,
    QueueLimitError,
    VersionBusyError,
    VersionNotFoundError,
    new_id,
    open_store,
)
from pydantic_deep.store._samples import sample_run
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import AgentVersion, ApprovalsPendingError, TurnOptions
from tests.dispatch.conftest import Store, answers, ask, begin, process
from tests.versions.recovery.crashes import World, tool_call

pytestmark = pytest.mark.anyio


def world_of(url: str) -> World:
    return World(url, answers(a=[tool_call('send', key='a'), 'End.']), options={'interrupt_on': {'send': True}})


async def pause(world: World, store: Store) -> AgentVersion[Any, Any]:
    """Return the head of a new conversation, which has a pending approval."""
    root = await world.agent(store).create(backend=StateBackend())
    return await root.run(TurnOptions(prompt='a', moves_head=True))


async def test_turn_of_a_conversation_is_queued_with_its_options(url: str) -> None:
    world, run_id = world_of(url), new_id()
    async with process(url) as store:
        conversation = await begin(world, store)
        options = TurnOptions(
            prompt='Add a chart',
            model='test',
            model_settings=ModelSettings(temperature=0.5),
            usage_limits=UsageLimits(request_limit=3),
            branch='draft',
            run_id=run_id,
        )
        run = await submit(conversation, options, store, account='ann', key_id='k', session_id='s', priority=2)
        assert run == await store.queue.get(run_id)
        assert (run.run_id, run.conversation_id, run.base_id, run.agent_name) == (
            run_id,
            conversation.id,
            None,
            'agent',
        )
        assert (run.account, run.key_id, run.priority, run.state) == ('ann', 'k', 2, 'queued')
        document = json.loads(run.options)
        assert (document['session_id'], 'moves_head' in document) == ('s', False)
        loaded = TurnOptions.load(run.prompt, run.options, run_id=run_id, moves_head=False)
        assert loaded == options


async def test_turn_from_a_version_is_queued_with_its_base(url: str) -> None:
    async with process(url) as store:
        head = await (await begin(world_of(url), store)).head()
        run = await submit(head, TurnOptions(prompt='a', moves_head=True), store)
        assert (run.base_id, json.loads(run.options)['moves_head']) == (head.id, True)


async def test_delivery_follows_submission_and_a_lost_engine_leaves_the_run_queued(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Down(InProcessDispatcher):
        async def submit(self, run_id: str, **options: Any) -> None:
            raise DispatcherUnavailableError('The engine at localhost', 'It refuses connections.')

    async with process(url) as store:
        run = await ask(await begin(world_of(url), store), store, 'a', dispatcher=Down())
        assert await store.queue.get(run.run_id) is not None
    assert 'Submitted runs stay queued in the store' in caplog.text


async def test_answers_are_stored_before_the_turn_is_queued(url: str) -> None:
    async with process(url) as store:
        paused = await pause(world_of(url), store)
        (pending,) = paused.pending
        with pytest.raises(ApprovalsPendingError):
            await submit(paused, TurnOptions(prompt='b'), store)
        await submit(paused, TurnOptions(answers={pending.id: Approve()}, by='ann'), store)
        (approval,) = await store.approvals(status='approved')
        assert approval.decided_by == 'ann'
        with pytest.raises(ApprovalAnsweredError):
            await submit(paused, TurnOptions(answers={pending.id: Approve()}), store)
        assert len(await store.queue.list()) == 1


async def test_resumption_of_a_conversation_starts_from_its_head(url: str) -> None:
    world = world_of(url)
    async with process(url) as store:
        paused = await pause(world, store)
        conversation = world.agent(store).conversation(paused.conversation_id)
        run = await submit(conversation, TurnOptions(), store)
        assert (run.base_id, run.prompt, json.loads(run.options)['moves_head']) == (paused.id, None, True)
        waiting = await ask(conversation, store, 'b')
        assert waiting.base_id is None


async def test_resumption_needs_pending_approvals(url: str) -> None:
    async with process(url) as store:
        with pytest.raises(NothingPendingError):
            await submit(await begin(world_of(url), store), TurnOptions(), store)
        assert await store.queue.list() == []


@pytest.mark.parametrize(
    ('options', 'problem'),
    [
        (TurnOptions(prompt='a', deps=object()), 'creates its own'),
        (TurnOptions(prompt='a', model=ScriptedModel('b')), 'cannot have a ScriptedModel'),
        (TurnOptions(prompt='a', model_settings=ModelSettings(extra_body={'a': object()})), 'not JSON'),
        (TurnOptions(prompt='a', model=''), 'model'),
        (TurnOptions(prompt='a', branch=' '), 'branch'),
        (TurnOptions(prompt=''), 'prompt'),
        (TurnOptions(prompt='a', answers={'1': Approve()}), 'has a prompt'),
    ],
)
async def test_options_that_another_process_cannot_have_are_refused(
    url: str, options: TurnOptions, problem: str
) -> None:
    async with process(url) as store:
        conversation = await begin(world_of(url), store)
        with pytest.raises(ValidationError, match=problem):
            await submit(conversation, options, store)
        for invalid in ({'account': ''}, {'priority': 'high'}, {'priority': 2**63}, {'priority': -(2**63)}):
            with pytest.raises(ValidationError, match=next(iter(invalid))):
                await ask(conversation, store, 'a', **invalid)
        assert await store.queue.list() == []


async def test_submission_beyond_a_limit_is_refused(url: str) -> None:
    async with process(url) as store:
        conversation = await begin(world_of(url), store)
        await ask(conversation, store, 'a', key_id='k')
        with pytest.raises(QueueLimitError):
            await ask(conversation, store, 'a', max_active=1)
        with pytest.raises(QueueLimitError):
            await ask(conversation, store, 'a', key_id='k', max_of_key=1)


async def test_exclusive_turn_from_a_busy_version_is_refused(url: str) -> None:
    async with process(url) as store:
        version = await (await begin(world_of(url), store)).head()
        run = await submit(version, TurnOptions(prompt='a', exclusive=True), store)
        with pytest.raises(VersionBusyError, match=run.run_id):
            await submit(version, TurnOptions(prompt='b', exclusive=True), store)


async def test_exclusive_turn_is_refused_while_a_run_that_was_not_queued_is_running(url: str) -> None:
    """Both are refused: one that is submitted, and one that begins here. The run of a crashed process refuses nothing."""
    world = world_of(url)
    async with process(url) as store, process(url) as other:
        version = await (await begin(world, store)).head()
        run = sample_run(version.conversation_id, base_id=version.id)
        await other.commit(Commit(runs=[run]))
        options = TurnOptions(prompt='a', exclusive=True)
        with pytest.raises(VersionBusyError, match=run.id):
            await submit(version, options, store)
        with pytest.raises(VersionBusyError, match=run.id):
            await version.run(options)
        other.mark_orphaned(run.id)
        assert await store.queue.list() == []
        await other.aclose()
        queued = await submit(version, options, store)
        with pytest.raises(VersionBusyError, match=queued.run_id):
            await version.run(options)


async def test_cancelled_submission_has_ended_when_the_cancellation_is_raised(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the run could be queued after the caller has found that it is not, and has submitted it again."""
    async with process(url) as store:
        conversation = await begin(world_of(url), store)
        add, reached, opened = store.queue.add, anyio.Event(), anyio.Event()

        async def add_slowly(*arguments: Any, **options: Any) -> None:
            reached.set()
            await opened.wait()
            await add(*arguments, **options)

        monkeypatch.setattr(store.queue, 'add', add_slowly)
        submission = asyncio.create_task(submit(conversation, TurnOptions(prompt='a'), store))
        await reached.wait()
        submission.cancel()
        await asyncio.sleep(0)
        opened.set()
        with pytest.raises(asyncio.CancelledError):
            await submission
        assert len(await store.queue.list()) == 1


async def test_id_of_another_run_is_refused(url: str) -> None:
    """Its turn would never begin: workers would find a run that has ended."""
    world, run_id = world_of(url), new_id()
    async with process(url) as store:
        conversation = await begin(world, store)
        options = TurnOptions(prompt='a', run_id=run_id)
        await submit(conversation, options, store)
        with pytest.raises(ValueError, match='is queued already'):
            await submit(conversation, options, store)
        await Worker({'agent': world.agent(store)}, store).execute(run_id)
        await store.queue.prune(0)
        with pytest.raises(ValueError, match=r'has a run .* already'):
            await submit(conversation, options, store)
        assert await store.queue.list() == []


async def test_version_of_another_store_is_refused_before_anything_is_stored(url: str) -> None:
    """Its answers stay pending, and no worker of the other store gets a turn that it cannot execute."""
    world = world_of(url)
    async with process(url) as store, open_store('memory:') as other:
        paused = await pause(world, store)
        conversation = world.agent(store).conversation(paused.conversation_id)
        for place in (paused, conversation):
            with pytest.raises(VersionNotFoundError, match='belongs to another store'):
                await submit(place, TurnOptions(answers={paused.pending[0].id: Approve()}), other)
        assert [approval.status for approval in await store.approvals(version_id=paused.id)] == ['pending']
        assert await other.queue.list() == []
