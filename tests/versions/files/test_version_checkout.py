"""Checkout of a version into its directory, whatever has happened to the directory since."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart

from pydantic_deep import CompositeBackend, LocalBackend, StateBackend, create_deep_agent
from pydantic_deep.store import (
    Commit,
    Store,
    StoreUnavailableError,
    UnfinishedCheckoutError,
    checkout_claim,
    open_store,
)
from pydantic_deep.store._samples import sample_run
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import (
    AgentVersion,
    NoFilesError,
    ProtectedFilesWarning,
    UnversionedChangesError,
    VersionedAgent,
    WorkspaceBusyError,
    workspace_key,
)
from pydantic_deep.versions.files._backend_descriptions import describe_backend

pytestmark = pytest.mark.anyio


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


async def test_stores_in_the_directory_are_not_versioned(tmp_path: Path) -> None:
    """Neither the store of the agent nor one of another program, whether it is open or not."""
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store, open_store(f'sqlite:///{tmp_path}/open.db'):
        v0, _, v2 = await _three(_agent(store), tmp_path)
        async with open_store(f'sqlite:///{tmp_path}/closed.db') as other:
            assert other.url.endswith('closed.db')
        databases = {path.name for path in tmp_path.iterdir()} - {'a.txt', 'b.txt'}
        assert databases >= {'agents.db', 'open.db', 'closed.db'}
        files = await v2.files()
        assert sorted(entry.name for entry in await files.list_dir('/')) == ['a.txt', 'b.txt']
        await v0.checkout(force=True)
        assert {path.name for path in tmp_path.iterdir()} == databases


@pytest.mark.parametrize('is_mounted', [False, True])
async def test_open_store_stays_in_a_checkout_of_a_version_that_has_its_file(tmp_path: Path, is_mounted: bool) -> None:
    """A store without its `.owners`, such as a copy, is a file like any other, and versions have it. After a program has
    opened it, a checkout of such a version replaces neither the store nor its log, and the next checkout works too."""
    root = tmp_path / 'work'
    root.mkdir()
    (root / 'agents.db').touch()
    (root / 'agents.db-wal').write_text('an old log')
    (root / 'other.db.owners').mkdir()
    (root / 'other.db.owners/x').touch()
    backend: LocalBackend | CompositeBackend = LocalBackend(root)
    if is_mounted:
        backend = CompositeBackend(StateBackend(), {'/files/': backend})
    async with open_store('memory:') as store:
        model = ScriptedModel('one', 'two')
        agent = VersionedAgent(create_deep_agent(model), store)
        old = await (await agent.create(backend=backend)).advance('one')
        (root / 'agents.db-wal').unlink()  # SQLite would apply it to a store that is written again
        url = f'sqlite:///{root}'
        async with open_store(f'{url}/agents.db') as other, open_store(f'{url}/other.db'):
            before = {path: path.stat().st_ino for path in root.rglob('*')}
            new = await old.advance('two')
            for version in (old, new, old):
                await version.checkout()
                assert {path: path.stat().st_ino for path in root.rglob('*')} == before
            assert await other.versions() == []


async def test_open_store_below_a_file_of_a_version_is_not_replaced(tmp_path: Path) -> None:
    """A file of a version in the place of a directory with an open store is refused, and `force` does not change that."""
    (tmp_path / 'data').write_text('a file')
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel('one', 'two')), store)
        old = await (await agent.create(backend=LocalBackend(tmp_path))).advance('one')
        (tmp_path / 'data').unlink()
        (tmp_path / 'data').mkdir()
        async with open_store(f'sqlite:///{tmp_path}/data/agents.db'):
            await old.advance('two')
            with pytest.raises(UnversionedChangesError, match=r'/data/agents\.db'):
                await old.checkout(force=True)
            assert (tmp_path / 'data/agents.db').is_file()


async def test_crashed_checkout_is_known_to_the_checkout_of_another_version(tmp_path: Path) -> None:
    root = tmp_path / 'work'
    root.mkdir()
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        v0, _, v2 = await _three(_agent(store), root)
        await v0.checkout()
        assert list(root.iterdir()) == []
        key = _workspace_key(root)
        assert await store.claim_workspace(key, checkout_claim(v2.id), v0.id)
        (root / 'b.txt').write_text('two')  # partly written before its process crashed
        v0_id, v1_id = v0.id, v2.parent_id or ''
    async with open_store(url) as store:
        agent = _agent(store)
        await (await agent.load(v1_id)).checkout()
        assert sorted(path.name for path in root.iterdir()) == ['a.txt']
        await (await agent.load(v0_id)).checkout()
        assert list(root.iterdir()) == []


async def test_files_of_a_killed_checkout_are_not_taken_for_edits(tmp_path: Path) -> None:
    root = tmp_path / 'work'
    root.mkdir()
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        v0, v1, v2 = await _three(_agent(store), root)
        assert await store.claim_workspace(_workspace_key(root), checkout_claim(v0.id), v2.id)
        (root / 'a.txt').unlink()  # partly written before its process crashed
        v2_id, v1_id = v2.id, v1.id
    async with open_store(url) as store:
        agent = _agent(store)
        v2 = await agent.load(v2_id)
        said = f'The checkout of version {v0.id} into {root} was interrupted, .* Check out that version again, or any other'
        with pytest.raises(UnfinishedCheckoutError, match=said) as caught:
            await v2.advance('three')
        assert (caught.value.backend, caught.value.version_id) == (_workspace_key(root), v0.id)
        with pytest.raises(UnfinishedCheckoutError):
            await agent.create(backend=LocalBackend(root))
        beside = await (await agent.load(v1_id)).advance('three')  # a view is not affected
        assert '/b.txt' not in await beside.file_tree()
        await v2.checkout()
        assert sorted(path.name for path in root.iterdir()) == ['a.txt', 'b.txt']
        assert (await v2.advance('three')).parent_id == v2.id


async def test_failed_checkout_must_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store('memory:') as store:
        v0, _, v2 = await _three(_agent(store), tmp_path)

        async def full(*_: object, **__: object) -> None:
            (tmp_path / 'b.txt').unlink()
            raise OSError(28, 'No space left on device')

        with monkeypatch.context() as patched:
            patched.setattr(LocalBackend, 'patch', full)
            with pytest.raises(OSError, match='No space left'):
                await v0.checkout()
        with pytest.raises(UnfinishedCheckoutError):
            await v2.advance('three')
        (tmp_path / 'mine.txt').write_text('mine')
        with pytest.raises(UnversionedChangesError):  # the interrupted checkout stays recorded
            await v2.checkout()
        with pytest.raises(UnfinishedCheckoutError):
            await v2.advance('three')
        (tmp_path / 'mine.txt').unlink()
        await v2.checkout()
        assert (await v2.advance('three')).parent_id == v2.id


async def test_files_of_several_interrupted_checkouts_are_known(tmp_path: Path) -> None:
    root = tmp_path / 'work'
    root.mkdir()
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        v0, v1, v2 = await _three(_agent(store), root)
        await v0.checkout()
        assert await store.claim_workspace(_workspace_key(root), checkout_claim(v2.id), v0.id)
        (root / 'b.txt').write_text('two')  # partly written by the first one
        ids = v0.id, v1.id
    async with open_store(url) as store:
        held = await store.workspace(_workspace_key(root))
        assert held is not None
        assert await store.claim_workspace(_workspace_key(root), checkout_claim(ids[1], *held.checkouts), ids[0])
    async with open_store(url) as store:
        agent = _agent(store)
        await (await agent.load(ids[1])).checkout()
        assert [path.name for path in root.iterdir()] == ['a.txt']


async def test_concurrent_checkouts_of_one_version_exclude_each_other(tmp_path: Path) -> None:
    async with open_store('memory:') as store:
        v0, _, _ = await _three(_agent(store), tmp_path)
        done = await asyncio.gather(*(v0.checkout() for _ in range(2)), return_exceptions=True)
        assert sorted(map(type, done), key=str) == [type(None), WorkspaceBusyError]
        assert list(tmp_path.iterdir()) == []


async def test_conversation_can_start_where_the_interrupted_checkout_is_unrepeatable(tmp_path: Path) -> None:
    root = tmp_path / 'work'
    root.mkdir()
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        v0, v1, v2 = await _three(_agent(store), root)
        assert await store.claim_workspace(_workspace_key(root), checkout_claim(v0.id), v2.id)
    async with open_store(url) as store:
        agent = _agent(store)
        for version in (v2, v1, v0):
            await store.delete(version.id)
        begun = await agent.create(backend=LocalBackend(root))
        held = await store.workspace(_workspace_key(root))
        assert held is not None
        assert (held.version_id, held.run_id) == (begun.id, None)


async def test_checkout_with_unstored_end_does_not_block_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store('memory:') as store:
        v0, v1, v2 = await _three(_agent(store), tmp_path)

        async def refuse(commit: Commit) -> None:
            raise StoreUnavailableError('The disk is full.')

        with monkeypatch.context() as patched:
            patched.setattr(store, 'commit', refuse)
            with pytest.raises(StoreUnavailableError):
                await v0.checkout()
        with pytest.raises(UnfinishedCheckoutError):
            await v2.advance('three')
        await v1.checkout()
        assert [path.name for path in tmp_path.iterdir()] == ['a.txt']
        assert (await v1.advance('three')).parent_id == v1.id


async def test_crashed_run_is_recovered_beside_an_interrupted_checkout(tmp_path: Path) -> None:
    root = tmp_path / 'work'
    root.mkdir()
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        v0, _, v2 = await _three(_agent(store), root)
        run = sample_run(v2.conversation_id, base_id=v2.id, agent_name=v2.record.agent_name, options='{}')
        await store.commit(Commit(runs=[run]))
        assert await store.claim_workspace(_workspace_key(root), checkout_claim(v0.id), v2.id)
    async with open_store(url) as store:
        agent = _agent(store)
        (recovered,) = await agent.recover()
        assert recovered.parent_id == v2.id
        held = await store.workspace(_workspace_key(root))
        assert held is not None
        assert (held.version_id, held.checkouts) == (v2.id, (v0.id,))


async def test_files_of_a_deleted_version_can_be_stored_and_replaced(tmp_path: Path) -> None:
    async with open_store('memory:') as store:
        v0, _, v2 = await _three(_agent(store), tmp_path)
        await store.delete(v2.id)
        with pytest.raises(UnversionedChangesError) as caught:
            await v0.checkout()
        assert caught.value.paths == ('/a.txt', '/b.txt')
        await v0.checkout(force=True)
        assert list(tmp_path.iterdir()) == []
        (kept,) = [child for child in await v0.children() if child.kind == 'edit']
        assert sorted(await kept.file_tree()) == ['/a.txt', '/b.txt']


async def test_unversioned_edits_are_refused_by_name_and_stored_with_force(tmp_path: Path) -> None:
    async with open_store('memory:') as store:
        v0, _, v2 = await _three(_agent(store), tmp_path)
        (tmp_path / 'mine.txt').write_text('mine')
        with pytest.raises(UnversionedChangesError) as caught:
            await v0.checkout()
        assert caught.value.paths == ('/mine.txt',)
        assert (tmp_path / 'a.txt').exists()
        await v0.checkout(force=True)
        assert list(tmp_path.iterdir()) == []
        (kept,) = [child for child in await v2.children() if child.kind == 'edit']
        assert await (await kept.files()).read_bytes('/mine.txt') == b'mine'
        await kept.checkout()
        assert (tmp_path / 'mine.txt').read_text() == 'mine'


async def test_files_in_memory_require_a_backend_for_checkout() -> None:
    async with open_store('memory:') as store:
        agent = _agent(store)
        in_memory = await agent.create(backend=StateBackend({'/a.txt': 'a'}))
        with pytest.raises(NoFilesError, match='Pass `backend=`'):
            await (await agent.load(in_memory.id)).checkout()
        other = StateBackend()
        await (await agent.load(in_memory.id)).checkout(backend=other)
        assert await other.read_bytes('/a.txt') == b'a'


async def test_checkout_warns_about_the_protected_files_it_writes(tmp_path: Path) -> None:
    """It includes those written before an interruption, and the next checkout warns about none."""
    root = tmp_path / 'work'
    root.mkdir()
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel('one', 'two', 'three')), store)
        version = await agent.create(backend=LocalBackend(root))
        (root / '.envrc').write_text('evil')
        (root / 'AGENTS.md').write_text('evil')
        first = await version.advance('one')
        (root / '.envrc').unlink()
        (root / 'AGENTS.md').write_text('good')
        (root / '.vscode').mkdir()
        (root / '.vscode' / 'tasks.json').write_text('{}')
        second = await first.advance('two')
        assert await store.claim_workspace(_workspace_key(root), checkout_claim(first.id), second.id)
        (root / '.envrc').write_text('evil')  # partly written before its process crashed
        first_id = first.id
    async with open_store(url) as store:
        first = await VersionedAgent(create_deep_agent(ScriptedModel()), store).load(first_id)
        with pytest.warns(ProtectedFilesWarning) as caught:
            await first.checkout()
        assert [str(each.message) for each in caught] == [
            f'The checkout of version {first_id} changed files that programs of this machine run or obey: /.vscode/'
            'tasks.json (removed), /AGENTS.md (changed), /.envrc (added). Look at them before you use git, an editor or '
            'a shell there.'
        ]
        await first.checkout()


def _workspace_key(root: Path) -> str:
    return workspace_key(describe_backend(LocalBackend(root)) or '')


async def test_versions_of_a_general_purpose_subagent_do_not_belong_to_its_parent() -> None:
    task = ToolCallPart('task', {'subagent': 'general-purpose', 'description': 'look'}, tool_call_id='t1')
    async with open_store('memory:') as store:
        agent: VersionedAgent[Any, Any] = VersionedAgent(create_deep_agent(ScriptedModel(task, 'seen', 'done')), store)
        after = await (await agent.create()).advance('go')
        (thread,) = await after.subagents()
        assert await agent.count() == 2
        assert (await agent.load(thread.version_id or '')).agent_name == 'general-purpose'
