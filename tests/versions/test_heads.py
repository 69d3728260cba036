"""The head of a conversation moves in the commit that ends a streamed turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import CancellationToken, RunCancelled

from pydantic_deep import Approve, InvalidUploadError, LocalBackend, StateBackend
from pydantic_deep.store import (
    Commit,
    Committed,
    SqlStore,
    StoreUnavailableError,
    VersionConflictError,
    new_id,
    open_engine,
    open_store,
)
from pydantic_deep.testing import call
from pydantic_deep.versions import (
    AgentVersion,
    ApprovalsPendingError,
    TurnStream,
    UnversionedBackendError,
    VersionedAgent,
)

from .conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


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


async def test_upload_creates_a_version_that_the_next_turn_starts_from(make: MakeAgent, store: SpyStore):
    root = await make(call('read_file', path='/uploads/a.txt'), 'Read.').create()

    edit = await root.upload('a.txt', b'alpha\n', moves_head=True)

    assert (edit.kind, edit.parent_id, edit.run_id) == ('edit', root.id, None)
    assert await head_of(store, root) == edit.id
    assert {name: each.size_bytes for name, each in edit.uploads.items()} == {'a.txt': 6}
    assert root.uploads == {}
    after = await drain(edit.advance_stream('read it'))
    assert 'alpha' in str(await after.messages())
    assert list(after.uploads) == ['a.txt']
    assert len([commit for commit in store.commits if commit.heads]) == 2


async def test_upload_does_not_move_a_head_that_moved_meanwhile(make: MakeAgent, store: SpyStore):
    root = await make('Hello.').create()
    moved = await drain(root.advance_stream('hi', moves_head=True))

    with pytest.raises(VersionConflictError) as caught:
        await root.upload('a.txt', b'x', moves_head=True)

    assert await head_of(store, root) == moved.id
    assert (await store.version(caught.value.yours)).kind == 'edit'


async def test_upload_is_written_to_the_directory_of_its_version(make: MakeAgent, store: SpyStore, tmp_path: Path):
    backend = LocalBackend(tmp_path)
    agent = make('Hello.')
    root = await agent.create(backend=backend)
    (tmp_path / 'new.txt').write_text('by hand')

    edit = await root.upload('a.txt', b'alpha')

    assert (tmp_path / 'uploads' / 'a.txt').read_bytes() == b'alpha'
    assert [each.kind for each in await edit.lineage()] == ['root', 'edit', 'edit']
    after = await edit.advance('hi')
    assert after.parent_id == edit.id
    assert sorted(await after.file_tree()) == ['/new.txt', '/uploads/a.txt']


async def test_refused_upload_releases_the_directory(make: MakeAgent, tmp_path: Path):
    root = await make('Hello.').create(backend=LocalBackend(tmp_path))

    with pytest.raises(InvalidUploadError):
        await root.upload('../a.txt', b'alpha')
    edit = await root.upload('b.txt', b'')

    assert [each.name for each in (tmp_path / 'uploads').iterdir()] == ['b.txt']
    assert (await edit.advance('hi')).parent_id == edit.id


async def test_upload_to_a_pending_version_is_refused(make: MakeAgent):
    root = await make(call('ls', path='/'), interrupt_on={'ls': True}).create()
    pause = await root.advance('hi')

    with pytest.raises(ApprovalsPendingError, match=pause.pending[0].id):
        await pause.upload('a.txt', b'x')


async def test_upload_without_deep_agent_deps_or_files_is_refused(make_plain: MakeAgent):
    root = await make_plain('Hello.').create()
    with pytest.raises(UnversionedBackendError, match='not versioned'):
        await root.upload('a.txt', b'x')

    with_files = await make_plain('Hello.').create(backend=StateBackend())
    with pytest.raises(UnversionedBackendError, match='DeepAgentDeps'):
        await with_files.upload('a.txt', b'x')
