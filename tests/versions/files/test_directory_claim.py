"""Claims of directories by runs and checkouts, and the identity of a directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart

from pydantic_deep import DeepAgentDeps, LocalBackend, StateBackend, create_deep_agent
from pydantic_deep.store import Store, WorkspaceRecord, open_store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import AgentVersion, VersionedAgent, WorkspaceBusyError, workspace_key
from pydantic_deep.versions.files._backend_descriptions import describe_backend
from pydantic_deep.versions.files._directory_claim import make_missing
from tests.versions.files.conftest import (
    FILES,
    agent_of,
    begun,
    edits,
    files_of,
    forget_identity,
    key_of,
    made_anew,
    read,
    write,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The directory on the first machine."""
    root = tmp_path / 'work'
    root.mkdir()
    return root


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_store('memory:') as store:
        yield store


async def test_directory_is_identified_through_links_and_moves(store: Store, root: Path, tmp_path: Path) -> None:
    version = await begun(store, root)
    link = tmp_path / 'link'
    link.symlink_to(root)
    (root / 'a.txt').write_text('edited')
    turn = await (await agent_of(store).load(version.id, backend=LocalBackend(link))).advance('next')
    assert (await files_of(turn))['a.txt'] == 'edited'
    aside = tmp_path / 'aside'
    root.rename(aside)
    aside.rename(root)
    (root / 'a.txt').write_text('again')
    turn = await (await agent_of(store).load(turn.id)).advance('next')
    assert (await files_of(turn))['a.txt'] == 'again'
    assert await edits(store) == 2


async def test_record_without_identity_is_compared_by_files(store: Store, root: Path) -> None:
    version = await begun(store, root)
    await forget_identity(store, root)
    made_anew(root)
    version = await agent_of(store).load(version.id)
    turn = await version.advance('nothing is there')
    assert await files_of(turn) == read(root) == FILES
    await forget_identity(store, root)
    write(root, {'a.txt': 'edited'})
    turn = await turn.advance('something is there')
    assert (await files_of(turn))['a.txt'] == 'edited'
    assert await edits(store) == 1
    held = await store.workspace(key_of(LocalBackend(root)))
    assert held is not None
    assert await LocalBackend(root).has_identity(held.identity or '') is True


async def test_identity_is_that_of_the_last_commit(store: Store, root: Path) -> None:
    """A directory in a container image gets another inode with the first write."""
    version = await begun(store, root)
    held = await store.workspace(key_of(LocalBackend(root)))
    assert held == WorkspaceRecord(key_of(LocalBackend(root)), version.id, None, await LocalBackend(root).identity())


class Place(StateBackend):
    """Files with an identity whose root is missing at first."""

    is_there = False

    async def identity(self) -> str | None:
        return 'place' if self.is_there else None

    async def has_identity(self, identity: str) -> bool | None:
        return self.is_there and identity == 'place'

    async def make_root(self) -> None:
        assert not self.is_there
        self.is_there = True


async def test_missing_root_is_created_once() -> None:
    place = Place()
    for _ in range(2):
        await make_missing(place)
    assert await place.identity() == 'place'
    await make_missing(StateBackend())
    await make_missing(None)


def _writes(path: str, content: str) -> ToolCallPart:
    return ToolCallPart('write_file', {'path': path, 'content': content}, tool_call_id=f'w{path}')


async def _three(agent: VersionedAgent[Any, Any], root: Path) -> list[AgentVersion[Any, Any]]:
    versions = [await agent.create(backend=LocalBackend(root))]
    for prompt in ('one', 'two'):
        versions.append(await versions[-1].advance(prompt))
    return versions


def _agent(store: Store) -> VersionedAgent[Any, Any]:
    model = ScriptedModel(_writes('/a.txt', 'one'), 'done', _writes('/b.txt', 'two'), *['done'] * 4)
    return VersionedAgent(create_deep_agent(model), store)


async def test_directory_used_by_a_run_is_not_changed(tmp_path: Path) -> None:
    async with open_store('memory:') as store:
        v0, _, v2 = await _three(_agent(store), tmp_path)
        assert await store.claim_workspace(_workspace_key(tmp_path), 'some run', v2.id)
        with pytest.raises(WorkspaceBusyError, match=f'^A run works in {tmp_path} now. Wait') as caught:
            await v0.checkout()
        assert caught.value.workspace == _workspace_key(tmp_path)


def _workspace_key(root: Path) -> str:
    return workspace_key(describe_backend(LocalBackend(root)) or '')


async def test_turn_that_cannot_start_releases_the_directory(tmp_path: Path) -> None:
    deps: list[object] = [DeepAgentDeps(), DeepAgentDeps(), DeepAgentDeps()]

    def make_deps() -> Any:
        if len(deps) == 2:
            deps.pop()
            raise RuntimeError('no connection')
        return deps.pop()

    async with open_store('memory:') as store:
        model = ScriptedModel(_writes('/a.txt', 'one'), 'done')
        agent = VersionedAgent(create_deep_agent(model), store, make_deps=make_deps)
        root = await agent.create(backend=LocalBackend(tmp_path))
        with pytest.raises(RuntimeError, match='no connection'):
            await root.advance('one')
        await root.advance('one')
        assert (tmp_path / 'a.txt').read_text() == 'one'


async def test_new_conversation_does_not_take_the_directory_of_a_run(tmp_path: Path) -> None:
    async with open_store('memory:') as store:
        _, _, v2 = await _three(_agent(store), tmp_path)
        key = _workspace_key(tmp_path)
        assert await store.claim_workspace(key, 'some run', v2.id)
        await _agent(store).create(backend=LocalBackend(tmp_path))
        workspace = await store.workspace(key)
        assert workspace is not None
        assert (workspace.run_id, workspace.version_id) == ('some run', v2.id)
