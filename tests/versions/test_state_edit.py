"""Versions without a run: uploads, and other names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pydantic_deep import InvalidUploadError, LocalBackend, StateBackend
from pydantic_deep.store import Commit, Committed, VersionConflictError, new_id
from pydantic_deep.testing import call
from pydantic_deep.versions import AgentVersion, ApprovalsPendingError, TurnStream, UnversionedBackendError
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


async def drain(stream: TurnStream[Any, Any]) -> AgentVersion[Any, Any]:
    async with stream:
        async for _ in stream.events():
            pass
    return stream.version


async def head_of(store: SpyStore, version: AgentVersion[Any, Any]) -> str | None:
    conversation = await store.conversation(version.conversation_id)
    assert conversation is not None
    return conversation.head_id


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


async def test_rename_moves_the_directory_to_the_renamed_version(make: MakeAgent, tmp_path: Path) -> None:
    """The directory holds the renamed version, so the next turn works in it and not in a view."""
    agent = make(call('write_file', path='a.txt', content='a'), 'done', 'paused')
    root = await agent.create(backend=LocalBackend(tmp_path), name='Old')

    renamed = await agent.conversation(root.conversation_id).rename('New')
    done = await agent.conversation(root.conversation_id).advance('go')

    assert (renamed.name, renamed.parent_id, done.name) == ('New', root.id, 'New')
    assert (tmp_path / 'a.txt').read_text() == 'a'


async def test_conversation_without_files_can_be_renamed(make_plain: MakeAgent) -> None:
    root = await make_plain('hi').create()
    conversation = make_plain('hi').conversation(root.conversation_id)

    assert (await conversation.rename('New')).name == 'New'


async def test_pending_conversation_cannot_be_renamed(make: MakeAgent) -> None:
    agent = make(call('ls'), interrupt_on={'ls': True})
    pause = await agent.conversation((await agent.create()).conversation_id).advance('go')

    with pytest.raises(ApprovalsPendingError):
        await agent.conversation(pause.conversation_id).rename('New')


async def test_rename_that_loses_a_race_is_stored_as_a_branch(
    make: MakeAgent, store: SpyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make('hi', 'hi')
    root = await agent.create(backend=LocalBackend(tmp_path))
    conversation = agent.conversation(root.conversation_id)

    commit = store.commit

    async def move_first(batch: Commit) -> Committed:
        if batch.heads:
            monkeypatch.undo()
            other = await root.with_metadata({'by': new_id()})
            await conversation.move_to(other)
        return await commit(batch)

    monkeypatch.setattr(store, 'commit', move_first)  # another writer moves the head in between
    with pytest.raises(VersionConflictError):
        await conversation.rename('New')
    assert [each.name for each in await root.children()] == [None, 'New']
