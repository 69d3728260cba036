"""Suspended runs, whose end is not stored, can be resumed or cancelled, and need confirmation if the conversation has
moved on."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic_ai import AgentRunResult, CancellationToken, RunCancelled, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, WrapRunHandler
from pydantic_ai.messages import UserPromptPart

from pydantic_deep import Approve, StateBackend
from pydantic_deep.fluent import prompt
from pydantic_deep.store import Commit, StoreUnavailableError
from pydantic_deep.testing import call
from pydantic_deep.versions import AgentVersion, Recorder, TurnStream, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio

FULL = StoreUnavailableError('The disk is full.')


class Outside:
    """Irreversible external effects of tools."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def send(self, key: str) -> str:
        """Send something."""
        self.sent.append(key)
        return f'sent {key}'


@pytest.fixture
def outside() -> Outside:
    return Outside()


def refuse_ends(store: SpyStore) -> None:
    store.refuse = lambda commit: FULL if commit.ends else None


def take_all(store: SpyStore) -> None:
    store.refuse = lambda commit: None


async def drain(stream: TurnStream[Any, Any]) -> None:
    async with stream:
        async for _ in stream:
            pass


async def suspended_turn(
    agent: VersionedAgent[Any, Any], store: SpyStore, said: str = 'go'
) -> tuple[AgentVersion[Any, Any], str]:
    """Return a root and its suspended run."""
    root = await agent.create(backend=StateBackend())
    refuse_ends(store)
    with pytest.raises(StoreUnavailableError):
        await root.advance(said)
    take_all(store)
    [run] = await agent.suspended()
    return root, run.id


async def test_suspended_run_is_listed_and_the_error_explains_how_to_end_it(make: MakeAgent, store: SpyStore) -> None:
    agent = make('lost')
    root = await agent.create()
    stream = root.advance_stream('go')
    refuse_ends(store)

    with pytest.raises(StoreUnavailableError) as caught:
        await drain(stream)

    [run] = await agent.suspended(root.conversation_id)
    assert stream.is_suspended
    assert (run.id, run.conversation_id, run.has_moved_on) == (stream.run_id, root.conversation_id, False)
    assert run.prompt == 'go'
    assert caught.value.__notes__[-1].startswith(f'The run {run.id} is suspended after the version {root.id}: ')
    assert await agent.suspended('another') == []


async def test_cancelled_run_with_unstored_end_is_suspended(make: MakeAgent, store: SpyStore) -> None:
    """A cancellation that is not stored is no interruption: the stream reports that the run may be resumed."""
    token = CancellationToken()

    async def stop() -> str:
        """Stop the run."""
        refuse_ends(store)
        token.cancel()
        return 'stopped'

    agent = make(call('stop'), 'end', tools=[stop])
    stream = (await agent.create()).advance_stream('go', cancellation_token=token)
    with pytest.raises(Exception, match=r'cancelled|full'):
        await drain(stream)
    take_all(store)

    assert stream.is_suspended
    assert [(run.id, run.prompt) for run in await agent.suspended()] == [(stream.run_id, None)], 'a step has the prompt'


async def test_cancel_preserves_completed_calls(make: MakeAgent, store: SpyStore, outside: Outside) -> None:
    """A cancelled run is never recovered, and its version has the results of completed calls."""
    agent = make(call('send', key='a'), 'lost', 'never', tools=[outside.send])
    root, run_id = await suspended_turn(agent, store)

    refuse_ends(store)
    with pytest.raises(StoreUnavailableError):
        await agent.cancel(run_id)
    assert [run.id for run in await agent.suspended()] == [run_id], 'it is not cancelled until the store says so'
    take_all(store)

    assert await agent.cancel(run_id) is True
    assert await agent.cancel(run_id) is False
    assert await agent.cancel('00000000-0000-7000-8000-000000000000') is False
    assert (await agent.recover(), await agent.suspended(), outside.sent) == ([], [], ['a'])
    [version] = await root.children()
    assert (version.state, len(await version.messages())) == ('interrupted', 3)
    [run] = await store.runs()
    assert (run.state, run.error is not None) == ('interrupted', True)


async def test_cancel_before_the_first_response_preserves_the_prompt(make: MakeAgent, store: SpyStore) -> None:
    agent = make('lost', 'said')
    root, run_id = await suspended_turn(agent, store, 'what I said')

    assert await agent.cancel(run_id) is True

    [version] = await root.children()
    [message] = await version.messages()
    assert isinstance(message.parts[0], UserPromptPart)
    assert (version.state, message.parts[0].content) == ('interrupted', 'what I said')
    assert (await version.advance('more')).output == 'said'


async def test_cancel_ends_a_run_with_a_deleted_base(make: MakeAgent, store: SpyStore) -> None:
    agent = make('lost')
    root, run_id = await suspended_turn(agent, store)
    await agent.delete(root.id)
    [suspended] = await agent.suspended()

    assert suspended.version_id is None
    assert await agent.cancel(run_id) is True
    assert [run.state for run in await store.runs()] == ['interrupted']


async def test_cancel_of_a_resumed_turn_ends_it_with_its_answers_used(
    make: MakeAgent, store: SpyStore, outside: Outside
) -> None:
    agent = make(call('send', key='a'), 'never', tools=[outside.send], interrupt_on={'send': True})
    pause = await (await agent.create()).advance('go')

    def lose(commit: Commit) -> Exception | None:
        return FULL if any(each.status == 'done' for each in commit.calls) or commit.ends else None

    store.refuse = lose
    with pytest.raises(StoreUnavailableError):
        await pause.resume({pause.pending[0].id: Approve()})
    take_all(store)
    [run] = await agent.suspended()

    assert await agent.cancel(run.id) is True

    [version] = await pause.children()
    assert (version.state, outside.sent) == ('interrupted', ['a'])
    assert (await agent.recover(), await agent.suspended()) == ([], [])


async def test_run_is_not_resumed_if_its_conversation_moved_on(
    make: MakeAgent, store: SpyStore, outside: Outside
) -> None:
    """If another turn started while the run was suspended, only an explicit run id resumes it."""
    agent = make('lost', 'second', call('send', key='first'), 'resumed', tools=[outside.send])
    root, run_id = await suspended_turn(agent, store, 'first')
    second = await root.advance('second')

    assert await agent.recover() == []
    [run] = await agent.suspended()
    assert (run.id, run.has_moved_on, outside.sent) == (run_id, True, [])

    [resumed] = await agent.recover(run_id)
    assert (resumed.output, resumed.parent_id, outside.sent) == ('resumed', root.id, ['first'])
    assert [each.id for each in await root.children()] == [second.id, resumed.id]
    assert await agent.suspended() == []


class Audited(AbstractCapability[Any]):
    """Delays the run before its recorder observes it, as a write of its audit record does, and is cancelled meanwhile."""

    def __init__(self) -> None:
        self.token = CancellationToken()
        self.is_slow = False

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position='outermost', wraps=(Recorder,))

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        if self.is_slow:
            self.token.cancel()
            await anyio.sleep_forever()
        return await handler()


async def test_turn_cancelled_before_it_was_recorded_is_interrupted_and_leaves_nothing_behind(
    make: MakeAgent, store: SpyStore, outside: Outside
) -> None:
    """Its answers can be used again, and a suspended run is resumed as if the turn had not begun."""
    audited = Audited()
    agent = make(
        call('send', key='a'), 'sent', tools=[outside.send], interrupt_on={'send': True}, capabilities=[audited]
    )
    pause = await (await agent.create()).advance('send')
    audited.is_slow = True

    with pytest.raises(RunCancelled):
        await drain(pause.resume_stream({pause.pending[0].id: Approve()}, cancellation_token=audited.token))

    [cancelled, _] = await store.runs()
    assert (cancelled.state, '"kind": "cancelled"' in (cancelled.error or '')) == ('interrupted', True)
    audited.is_slow = False
    assert ((await pause.resume()).output, outside.sent) == ('sent', ['a'])


async def test_turn_cancelled_before_it_was_recorded_does_not_move_on(make: MakeAgent, store: SpyStore) -> None:
    audited = Audited()
    agent = make('lost', 'resumed', capabilities=[audited])
    root, run_id = await suspended_turn(agent, store)
    audited.is_slow = True

    with pytest.raises(RunCancelled):
        await drain(root.advance_stream('second', cancellation_token=audited.token))
    audited.is_slow = False

    assert [(run.id, run.has_moved_on) for run in await agent.suspended()] == [(run_id, False)]
    assert [version.output for version in await agent.recover()] == ['resumed']


async def test_concurrent_suspended_runs_are_all_resumed(make: MakeAgent, store: SpyStore) -> None:
    """A branch started while the other run was active does not count as moving on."""
    agent = make('lost', 'lost', 'one', 'two')
    root = await agent.create()
    streams = [root.advance_stream(said) for said in ('a', 'b')]
    events = [stream.events() for stream in streams]
    for each in events:
        await anext(each)
    refuse_ends(store)
    for each in events:
        with pytest.raises(StoreUnavailableError):
            async for _ in each:
                pass
    take_all(store)

    assert [run.has_moved_on for run in await agent.suspended()] == [False, False]
    assert len(await agent.recover()) == 2


async def test_conversation_reports_that_its_turn_is_suspended(make: MakeAgent, store: SpyStore) -> None:
    agent = make('lost', 'again')
    conversation = prompt(agent).user('go').start()
    refuse_ends(store)
    with pytest.raises(StoreUnavailableError):
        async for _ in conversation:
            pass
    take_all(store)

    assert conversation.state == 'suspended'


async def test_start_stored_without_acknowledgement_is_ended(make: MakeAgent, store: SpyStore) -> None:
    """A turn reported as not started must not run at the next start."""
    agent = make('never')
    root = await agent.create()

    def lose_answer(commit: Commit) -> None:
        if commit.runs:
            raise StoreUnavailableError('The connection was lost.')

    store.after = lose_answer
    with pytest.raises(StoreUnavailableError):
        await root.advance('go')

    assert [run.state for run in await store.runs()] == ['failed']
    assert (await agent.suspended(), await agent.recover()) == ([], [])
