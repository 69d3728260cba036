"""Turns as streams of text or events, which may move the head of their conversation."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai import AgentRunResultEvent, CancellationToken, RunCancelled
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart

from pydantic_deep import Approve, DeepAgentDeps, StateBackend
from pydantic_deep.store import Commit, Committed, SqlStore, StoreUnavailableError, new_id, open_engine, open_store
from pydantic_deep.testing import Answer, call
from pydantic_deep.versions import AgentVersion, TurnOptions, TurnStream, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [part for request in requests for part in request.parts if isinstance(part, ToolReturnPart)]


def publish() -> str:
    return 'published'


async def newest(agent: VersionedAgent[Any, Any]) -> AgentVersion[Any, Any]:
    return (await agent.list(limit=1))[0]


async def test_a_stream_yields_text_and_ends_with_a_version(make: MakeAgent, store: SpyStore):
    """A streamed turn.

    000-13a: `advance_stream()` is an asynchronous iterator over text.

    000-13b: The text of a streamed turn comes from the model piece by piece.
    """
    agent = make([call('ls')], 'one two three')
    root = await agent.create()

    stream = root.advance_stream('go')
    with pytest.raises(RuntimeError, match='no version yet'):
        _ = stream.version
    texts = [text async for text in stream]

    assert isinstance(stream.__aiter__(), AsyncIterator)
    assert ''.join(texts) == 'one two three'
    assert len(texts) > 1
    assert stream.version.output == 'one two three'
    assert await root.children() == [stream.version]
    with pytest.raises(RuntimeError, match='runs once'):
        stream.events()


@pytest.mark.parametrize('how', ['text', 'events'])
async def test_stream_that_is_dropped_ends_its_turn_without_errors(
    make: MakeAgent, caplog: pytest.LogCaptureFixture, how: str
):
    """Garbage collection closed all of its generators at once, so that tasks of the loop failed."""
    agent = make('one two three')
    root = await agent.create()

    async def begin() -> None:
        stream = root.advance_stream('go')
        async for _ in stream if how == 'text' else stream.events():
            return

    await begin()
    gc.collect()
    await anyio.wait_all_tasks_blocked()
    gc.collect()
    await anyio.wait_all_tasks_blocked()

    assert [child.state for child in await root.children()] == ['interrupted']
    assert [record.message for record in caplog.records] == []


async def test_streamed_turn_stores_the_same_history_as_a_plain_turn(make: MakeAgent):
    """000-13c, C33: Deltas are never stored."""
    steps = (call('ls'), 'one two three')
    streamed, whole = make(*steps), make(*steps, name='whole')
    stream = (await streamed.create()).advance_stream('go')
    async with stream:
        async for _ in stream:
            pass
    turn = await (await whole.create()).advance('go')

    def shape(messages: list[ModelMessage]) -> list[list[str]]:
        return [[part.part_kind for part in message.parts] for message in messages]

    assert shape(await stream.version.messages()) == shape(await turn.messages())
    assert [(v.kind, v.state) for v in await streamed.list(steps=True)] == [
        ('turn', 'complete'),
        ('step', 'interrupted'),
        ('root', 'complete'),
    ]
    assert bool(await stream.version.replay())


async def test_stream_yields_events(make: MakeAgent):
    """000-13b: A streamed turn yields the events of the model and of its tools."""
    stream = (await make(call('ls'), 'done').create()).advance_stream('go')

    kinds = [event.event_kind async for event in stream.events()]

    assert 'function_tool_call' in kinds
    assert 'function_tool_result' in kinds
    assert kinds[-1] == 'agent_run_result'
    assert stream.version.output == 'done'


async def test_abandoned_stream_is_an_interrupted_version(make: MakeAgent, store: SpyStore):
    """000-13c, C33, C12: A stream that the caller abandons is stored as an interrupted version."""
    agent = make(call('ls'), 'one two three four', 'later')
    root = await agent.create()

    async with root.advance_stream('go') as stream:
        async for _ in stream:
            break

    left = await newest(agent)
    assert (left.kind, left.state, left.parent_id) == ('turn', 'interrupted', root.id)
    assert [part.tool_name for part in returns(await left.messages())] == ['ls']
    assert await store.runs(states=['running']) == []
    assert (await left.advance('go on')).output == 'later'


async def test_stream_that_is_never_iterated_does_nothing(make: MakeAgent, store: SpyStore):
    root = await make('one').create()
    store.commits.clear()

    async with root.advance_stream('go'):
        pass

    assert store.commits == []


async def test_stream_exposes_version_usage_deps_and_backend(make: MakeAgent):
    agent = make(call('ls'), 'one two', make_deps=lambda: DeepAgentDeps(metadata={'u': 1}))
    root = await agent.create(backend=StateBackend({'/a.txt': 'a'}))

    stream = root.advance_stream('go')
    before = (stream.version_id, stream.usage, stream.deps, stream.backend)
    async with stream:
        async for _ in stream:
            break
        during = (stream.version_id, stream.usage, stream.deps, stream.backend)

    assert before == (None, None, None, None)
    version_id, usage, deps, backend = during
    assert (await agent.load(version_id or '')).kind == 'step'
    assert usage is not None
    assert usage.requests >= 1
    assert isinstance(deps, DeepAgentDeps)
    assert deps.backend is backend
    assert (await newest(agent)).id == stream.version_id


class MortalStore(SqlStore):
    """A store that fails as if the process crashed at the end of a run."""

    async def commit(self, commit: Commit) -> Committed:
        if commit.ends:
            raise StoreUnavailableError('The process is dead.')
        return await super().commit(commit)


async def drain(stream: TurnStream[Any, Any]) -> AgentVersion[Any, Any]:
    async with stream:
        async for _ in stream.events():
            pass
    return stream.version


async def head_of(store: SpyStore, version: AgentVersion[Any, Any]) -> str | None:
    conversation = await store.conversation(version.conversation_id)
    assert conversation is not None
    return conversation.head_id


async def test_head_moves_in_the_commit_that_ends_the_run(make: MakeAgent, store: SpyStore):
    agent = make('Hello.')
    root, run_id = await agent.create(), new_id()
    stream = root.advance_stream('hi', run_id=run_id, moves_head=True)
    assert (stream.run_id, stream.conflict) == (None, None)

    version = await drain(stream)

    assert await head_of(store, root) == version.id
    assert [bool(commit.heads) for commit in store.commits if commit.ends] == [True]
    assert (stream.run_id, version.run_id, stream.conflict) == (run_id, run_id, None)


async def test_head_does_not_move_by_default(make: MakeAgent, store: SpyStore):
    root = await make('Hello.').create()

    await drain(root.advance_stream('hi'))

    assert await head_of(store, root) == root.id


async def test_head_moved_meanwhile_is_not_overwritten_and_the_turn_is_stored(make: MakeAgent, store: SpyStore):
    agent = make('One.', 'Two.')
    root = await agent.create()
    first = await drain(root.advance_stream('1', moves_head=True))
    stream = root.advance_stream('2', moves_head=True)

    second = await drain(stream)

    assert await head_of(store, root) == first.id
    assert stream.conflict is not None
    assert (stream.conflict.head, stream.conflict.yours) == (first.id, second.id)
    assert (await agent.load(second.id)).record == second.record
    assert second.branch != first.branch
    assert second.output == 'Two.'


async def test_resumed_turn_moves_the_head(make: MakeAgent, store: SpyStore):
    agent = make(call('write_file', path='/a', content='x'), 'Done.', interrupt_on={'write_file': True})
    root = await agent.create()
    pause = await drain(root.advance_stream('write', moves_head=True))
    assert await head_of(store, root) == pause.id
    run_id = new_id()

    after = await drain(pause.resume_stream({pause.pending[0].id: Approve()}, run_id=run_id, moves_head=True))

    assert await head_of(store, root) == after.id
    assert after.run_id == run_id


async def test_turn_that_fails_before_an_answer_does_not_move_the_head(make: MakeAgent, store: SpyStore):
    root = await make(RuntimeError('no connection')).create()
    stream = root.advance_stream('hi', moves_head=True)

    with pytest.raises(RuntimeError, match='no connection'):
        await drain(stream)

    assert await head_of(store, root) == root.id
    assert stream.version_id not in {None, root.id}


async def test_turn_that_fails_after_an_answer_moves_the_head(make: MakeAgent, store: SpyStore):
    root = await make(call('ls', path='/'), RuntimeError('no connection')).create()
    stream = root.advance_stream('hi', moves_head=True)

    with pytest.raises(RuntimeError, match='no connection'):
        await drain(stream)

    assert await head_of(store, root) == stream.version_id != root.id


async def test_turn_cancelled_in_a_tool_moves_the_head(make: MakeAgent, store: SpyStore):
    token = CancellationToken()

    async def stop() -> str:
        token.cancel()
        return 'stopped'

    agent = make(call('stop'), 'never', tools=[stop])
    root = await agent.create()
    stream = root.advance_stream('hi', moves_head=True, cancellation_token=token)

    with pytest.raises(RunCancelled):
        await drain(stream)

    assert await head_of(store, root) == stream.version_id
    assert (await agent.load(stream.version_id or '')).state == 'interrupted'


@pytest.mark.parametrize('answer', ['done', call('publish')])
async def test_turn_cancelled_while_its_end_is_stored_has_that_end(make: MakeAgent, store: SpyStore, answer: Answer):
    token = CancellationToken()

    def cancel_after(commit: Commit) -> None:
        if commit.ends:
            token.cancel()

    agent = make(then=lambda messages, info: answer, tools=[publish], interrupt_on={'publish': True})
    root = await agent.create()
    store.after = cancel_after
    stream = root.advance_stream('hi', cancellation_token=token)
    events = [event async for event in stream.events()]
    token = CancellationToken()
    version = await root.run(TurnOptions(prompt='hi', cancellation_token=token))

    assert isinstance(events[-1], AgentRunResultEvent)
    assert stream.version.state == version.state == ('complete' if answer == 'done' else 'awaiting_approval')
    assert {run.state for run in await store.runs()} == {version.state}


async def test_recovery_moves_the_head_when_it_ends_the_run(make: MakeAgent, tmp_path: Path):
    """The process crashes at the end of a turn; recovery ends the turn and moves the head to its answer."""
    url = f'sqlite:///{tmp_path}/a.db'
    async with MortalStore(await open_engine(url)) as dying:
        root = await VersionedAgent(make('Lost.').agent, dying).create()
        stream = root.advance_stream('hi', moves_head=True)
        with pytest.raises(StoreUnavailableError):
            await drain(stream)
    async with open_store(url) as store:
        recovered = await VersionedAgent(make('Found.').agent, store).recover()

        assert [version.output for version in recovered] == ['Found.']
        conversation = await store.conversation(root.conversation_id)
        assert conversation is not None
        assert conversation.head_id == recovered[0].id
