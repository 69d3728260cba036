"""A directory other than the recorded one: on another machine, in a fresh container, or recreated at its path."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from pydantic_ai.messages import ToolCallPart

from pydantic_deep import LocalBackend, ReadOnlyBackend, StateBackend, create_deep_agent
from pydantic_deep.approvals import Approve
from pydantic_deep.store import (
    Commit,
    Committed,
    SqlStore,
    Store,
    StoreUnavailableError,
    open_engine,
    open_store,
    restore_store,
)
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import (
    ProtectedFilesWarning,
    UnversionedChangesError,
    VersionedAgent,
    WorkspaceReplacedError,
)
from pydantic_deep_backends import CompositeBackend, ProtectedChange, SandboxBackend
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
    writes,
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


def removed_and_made(root: Path) -> None:
    """Replace the directory by another one, for which the file system may reuse the inode."""
    shutil.rmtree(root)
    root.mkdir()


def missing(root: Path) -> None:
    shutil.rmtree(root.parent)


def with_leftovers(root: Path) -> None:
    """Leave unversioned files in the recreated directory."""
    made_anew(root)
    write(root, {'.git/config': '[core]'})
    (root / 'empty').mkdir()


CHANGES: list[Callable[[Path], None]] = [made_anew, removed_and_made, missing]


@pytest.mark.parametrize('change', CHANGES)
async def test_turn_in_an_empty_or_missing_directory_starts_with_the_files_of_its_version(
    store: Store, root: Path, change: Callable[[Path], None]
) -> None:
    version = await begun(store, root)
    change(root)
    turn = await (await agent_of(store, writes('/c.txt', 'three')).load(version.id)).advance('next')
    assert turn.parent_id == version.id
    assert await edits(store) == 0
    assert read(root) == await files_of(turn) == {**FILES, 'c.txt': 'three'}
    (root / 'a.txt').write_text('edited')
    again = await (await agent_of(store).load(turn.id)).advance('and on')
    assert await edits(store) == 1
    assert (await files_of(again))['a.txt'] == 'edited'


@pytest.mark.parametrize('change', CHANGES)
@pytest.mark.parametrize('force', [False, True])
async def test_checkout_into_an_empty_or_missing_directory_writes_the_files(
    store: Store, root: Path, change: Callable[[Path], None], force: bool
) -> None:
    version = await begun(store, root)
    change(root)
    version = await agent_of(store).load(version.id)
    await version.checkout(force=force)
    assert read(root) == FILES
    assert await edits(store) == 0
    (root / 'a.txt').unlink()
    turn = await version.advance('next')
    assert await files_of(turn) == {'sub/b.txt': 'two'}


async def test_checkout_restores_a_directory_without_versioned_files_but_refuses_a_partial_removal(
    store: Store, root: Path
) -> None:
    version = await begun(store, root)
    (root / 'a.txt').unlink()
    with pytest.raises(
        UnversionedChangesError, match=r'The checkout would overwrite /a\.txt, with changes that no version has'
    ):
        await version.checkout()
    shutil.rmtree(root / 'sub')
    await version.checkout()
    assert read(root) == FILES
    assert await edits(store) == 0


async def test_files_removed_from_the_same_directory_are_an_edit(store: Store, root: Path) -> None:
    version = await begun(store, root)
    for name in os.listdir(root):
        shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()
    turn = await (await agent_of(store).load(version.id)).advance('next')
    assert await files_of(turn) == read(root) == {}
    assert await edits(store) == 1


async def test_unversioned_leftovers_do_not_count_as_other_files(store: Store, root: Path) -> None:
    version = await begun(store, root)
    with_leftovers(root)
    await (await agent_of(store).load(version.id)).advance('next')
    assert read(root) == {**FILES, '.git/config': '[core]'}
    assert await edits(store) == 0


@pytest.mark.parametrize('is_old', [False, True])
async def test_ignored_files_are_untouched_in_a_recreated_directory(store: Store, root: Path, is_old: bool) -> None:
    write(root, {'.gitignore': '.venv/\n', 'a.txt': 'one', '.venv/lib.py': 'old'})
    root_version = await agent_of(store).create(backend=LocalBackend(root))
    if is_old:
        await forget_identity(store, root)
    made_anew(root)
    write(root, {'.venv/lib.py': 'new'})
    await (await agent_of(store).load(root_version.id)).advance('next')
    assert read(root) == {'.gitignore': '.venv/\n', 'a.txt': 'one', '.venv/lib.py': 'new'}
    assert await edits(store) == 0


async def test_restored_protected_files_are_reported(store: Store, root: Path) -> None:
    write(root, {'.envrc': 'export A=1', 'a.txt': 'one'})
    version = await agent_of(store).create(backend=LocalBackend(root))
    made_anew(root)
    said = rf'^Bringing the files of the version {version.id} here changed files .* obey: /\.envrc \(added\)\.'
    with pytest.warns(ProtectedFilesWarning, match=said) as caught:
        turn = await (await agent_of(store).load(version.id)).advance('next')
    assert len(caught) == 1
    assert turn.protected_changes == (ProtectedChange(path='/.envrc', change='added'),)
    assert read(root) == {'.envrc': 'export A=1', 'a.txt': 'one'}
    assert (await turn.advance('another')).protected_changes == ()


async def test_protected_files_restored_by_an_upload_are_reported(store: Store, root: Path) -> None:
    write(root, {'.envrc': 'export A=1', 'a.txt': 'one'})
    version = await agent_of(store).create(backend=LocalBackend(root))
    made_anew(root)
    with pytest.warns(ProtectedFilesWarning, match=r'/\.envrc \(added\)'):
        uploaded = await (await agent_of(store).load(version.id)).upload('b.txt', b'b')
    assert uploaded.protected_changes == (ProtectedChange(path='/.envrc', change='added'),)
    assert (await uploaded.advance('next')).protected_changes == ()


async def test_directory_with_equal_files_is_adopted(store: Store, root: Path) -> None:
    version = await begun(store, root)
    made_anew(root)
    write(root, FILES)
    turn = await (await agent_of(store).load(version.id)).advance('next')
    assert (turn.parent_id, await edits(store)) == (version.id, 0)
    shutil.rmtree(root / 'sub')
    turn = await (await agent_of(store).load(turn.id)).advance('from here on it is known')
    assert await files_of(turn) == {'a.txt': 'one'}


async def test_partially_restored_files_are_completed(store: Store, root: Path) -> None:
    """As if the process crashed while it restored the files."""
    version = await begun(store, root)
    made_anew(root)
    write(root, {'a.txt': 'one'})
    await (await agent_of(store).load(version.id)).advance('next')
    assert read(root) == FILES
    assert await edits(store) == 0


async def test_other_files_are_refused_and_stored_with_force(store: Store, root: Path) -> None:
    version = await begun(store, root)
    made_anew(root)
    there = {'a.txt': 'mine', **{f'n{number}.txt': 'new' for number in range(4)}}
    write(root, there)
    said = (
        f'^{root} is not the directory that had the files of the version {version.id}: it was recreated, or is on '
        r'another machine. It has files that the version does not have: /a\.txt, /n0\.txt, /n1\.txt and 2 more. Empty '
        r'it, or call `checkout\(force=True\)` of the version'
    )
    version = await agent_of(store).load(version.id)
    for _ in range(2):
        with pytest.raises(WorkspaceReplacedError, match=said) as caught:
            await version.advance('next')
        assert caught.value.paths == tuple(sorted(f'/{name}' for name in there))
        assert (caught.value.version_id, caught.value.can_be_stored) == (version.id, True)
        assert caught.value.workspace == key_of(LocalBackend(root))
    assert read(root) == there
    assert await edits(store) == 0
    with pytest.raises(UnversionedChangesError):
        await version.checkout()
    await version.checkout(force=True)
    assert read(root) == FILES
    [kept] = [each for each in await store.versions(limit=100) if each.kind == 'edit']
    assert kept.parent_id == version.id
    mine = await agent_of(store).load(kept.id)
    await mine.checkout()
    turn = await mine.advance('on with mine')
    assert await files_of(turn) == read(root) == there


async def test_unversionable_file_is_not_overwritten(store: Store, root: Path) -> None:
    version = await begun(store, root)
    made_anew(root)
    (root / 'a.txt').symlink_to('/elsewhere')
    with pytest.raises(WorkspaceReplacedError, match='Move them away: some of them cannot be versioned') as caught:
        await (await agent_of(store).load(version.id)).advance('next')
    assert caught.value.can_be_stored is False
    assert (root / 'a.txt').is_symlink()


async def test_unknown_directory_counts_as_another_one(store: Store, root: Path, tmp_path: Path) -> None:
    version = await begun(store, root)
    elsewhere = tmp_path / 'elsewhere'
    elsewhere.mkdir()
    write(elsewhere, {'mine.txt': 'mine'})
    agent = agent_of(store)
    for _ in range(2):
        with pytest.raises(WorkspaceReplacedError):
            await (await agent.load(version.id, backend=LocalBackend(elsewhere))).advance('next')
    (elsewhere / 'mine.txt').unlink()
    turn = await (await agent.load(version.id, backend=LocalBackend(elsewhere))).advance('next')
    assert read(elsewhere) == await files_of(turn) == FILES
    moved = tmp_path / 'moved'
    root.rename(moved)
    turn = await (await agent.load(version.id, backend=LocalBackend(moved))).advance('next')
    assert read(moved) == await files_of(turn) == FILES
    assert await edits(store) == 0


@pytest.mark.parametrize('change', CHANGES)
async def test_pause_is_resumed_in_an_empty_or_missing_directory(
    store: Store, root: Path, change: Callable[[Path], None]
) -> None:
    write(root, FILES)
    model = ScriptedModel(writes('/c.txt', 'three'), 'done')
    agent = VersionedAgent(create_deep_agent(model, interrupt_on={'write_file': True}), store)
    pause = await (await agent.create(backend=LocalBackend(root))).advance('write')
    [pending] = pause.pending
    change(root)
    agent = VersionedAgent(create_deep_agent(ScriptedModel('done'), interrupt_on={'write_file': True}), store)
    turn = await (await agent.load(pause.id)).resume({pending.id: Approve()})
    assert read(root) == await files_of(turn) == {**FILES, 'c.txt': 'three'}
    assert await edits(store) == 0


async def test_answers_are_stored_until_the_directory_can_be_used(store: Store, root: Path) -> None:
    write(root, FILES)
    model = ScriptedModel(writes('/c.txt', 'three'), 'done')
    agent = VersionedAgent(create_deep_agent(model, interrupt_on={'write_file': True}), store)
    pause = await (await agent.create(backend=LocalBackend(root))).advance('write')
    [pending] = pause.pending
    made_anew(root)
    write(root, {'mine.txt': 'mine'})
    with pytest.raises(WorkspaceReplacedError):
        await pause.resume({pending.id: Approve()})
    (root / 'mine.txt').unlink()
    turn = await pause.resume()
    assert read(root) == await files_of(turn) == {**FILES, 'c.txt': 'three'}


class DyingStore(SqlStore):
    """A store that fails as if the process crashed at the end of its first turn."""

    is_dead = False

    async def commit(self, commit: Commit) -> Committed:
        self.is_dead = self.is_dead or any(version.kind == 'turn' for version in commit.versions)
        if self.is_dead:
            raise StoreUnavailableError('The process is dead.')
        return await super().commit(commit)


async def _crashed(root: Path, url: str) -> None:
    """Leave a crashed run that has written a file in a directory."""
    write(root, {'a.txt': 'one'})
    async with DyingStore(await open_engine(url)) as store:
        look = ToolCallPart('ls', {}, tool_call_id='l')
        version = await agent_of(store, writes('/sub/b.txt', 'two'), look).create(backend=LocalBackend(root))
        with pytest.raises(StoreUnavailableError):
            await version.advance('first')
    assert read(root) == FILES


@pytest.mark.parametrize('change', CHANGES)
async def test_run_is_recovered_in_an_empty_or_missing_directory_with_its_files(
    root: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    url = f'memory:{tmp_path.name}'
    async with open_store(url) as store:
        await _crashed(root, url)
        change(root)
        [turn] = await agent_of(store).recover()
        assert read(root) == await files_of(turn) == FILES
        assert await edits(store) == 0


async def test_run_is_recovered_in_a_view_if_the_directory_has_other_files(root: Path, tmp_path: Path) -> None:
    url = f'memory:{tmp_path.name}'
    async with open_store(url) as store:
        await _crashed(root, url)
        made_anew(root)
        write(root, {'mine.txt': 'mine'})
        [turn] = await agent_of(store).recover()
        assert await files_of(turn) == FILES
        assert read(root) == {'mine.txt': 'mine'}
        assert await edits(store) == 0


async def test_finished_crashed_run_restores_its_files_in_another_directory(root: Path, tmp_path: Path) -> None:
    url = f'memory:{tmp_path.name}'
    async with open_store(url) as store:
        await _crashed(root, url)
        made_anew(root)
        agent = agent_of(store)
        step = next(each for each in await agent.list(steps=True) if each.kind == 'step')
        closed = await agent.finish_crashed(step)
        turn = await closed.advance('next')
        assert read(root) == await files_of(turn) == FILES
        assert await edits(store) == 0


async def test_other_versions_than_the_recorded_one_use_a_view(store: Store, root: Path) -> None:
    version = await begun(store, root)
    made_anew(root)
    agent = agent_of(store)
    branch = await (await agent.load(version.parent_id or '')).advance('beside', branch='beside')
    assert await files_of(branch) == {'a.txt': 'one'}
    assert read(root) == {}
    await (await agent.load(version.parent_id or '')).checkout()
    assert read(root) == {'a.txt': 'one'}


async def test_read_only_directory_that_was_replaced_is_read_through_a_view(store: Store, root: Path) -> None:
    version = await begun(store, root)
    for change in (made_anew, missing):
        change(root)
        read_only = ReadOnlyBackend(LocalBackend(root))
        turn = await (await agent_of(store).load(version.id, backend=read_only)).advance('look')
        assert await files_of(turn) == FILES
        assert not root.exists() or read(root) == {}
    assert await edits(store) == 0


async def test_mounts_of_a_composite_are_restored(store: Store, root: Path, tmp_path: Path) -> None:
    mounted = tmp_path / 'mounted'
    mounted.mkdir()
    write(mounted, {'m.txt': 'mounted'})
    backend = CompositeBackend(LocalBackend(root), {'/m': LocalBackend(mounted)})
    version = await begun(store, root, backend)
    for change in (made_anew, removed_and_made, shutil.rmtree):
        change(mounted)
        version = await (await agent_of(store).load(version.id, backend=backend)).advance('next')
        assert read(mounted) == {'m.txt': 'mounted'}
    assert await edits(store) == 0
    (mounted / 'm.txt').unlink()
    version = await (await agent_of(store).load(version.id, backend=backend)).advance('next')
    assert await files_of(version) == FILES


async def test_sandbox_commands_see_the_files_of_the_version(store: Store, root: Path) -> None:
    version = await begun(store, root)
    made_anew(root)
    call = ToolCallPart('execute', {'command': 'cat a.txt sub/b.txt'}, tool_call_id='x')
    agent = VersionedAgent(create_deep_agent(ScriptedModel(call, 'done'), interrupt_on={'execute': False}), store)
    turn = await (await agent.load(version.id, backend=SandboxBackend(root))).advance('look')
    assert 'onetwo' in json.dumps([str(message) for message in await turn.messages()])
    assert await edits(store) == 0


async def test_removed_files_in_memory_are_an_edit(store: Store) -> None:
    backend = StateBackend({'/a.txt': 'one'})
    agent = agent_of(store)
    version = await agent.create(backend=backend)
    await backend.remove('/a.txt')
    turn = await version.advance('next')
    assert await files_of(turn) == {}
    assert await edits(store) == 1


async def test_restored_backup_restores_the_files_on_another_machine(root: Path, tmp_path: Path) -> None:
    """Only the backup is left of the first machine; the first turn recreates its directories."""
    async with open_store(f'sqlite:///{tmp_path}/first.db') as store:
        write(root, {'a.txt': 'one'})
        agent = agent_of(store, writes('/sub/b.txt', 'two'))
        began = await agent.create(backend=LocalBackend(root))
        version = await agent.conversation(began.conversation_id).advance('first')
        await store.backup(tmp_path / 'backup')
    shutil.rmtree(root)
    await restore_store(f'sqlite:///{tmp_path}/second.db', tmp_path / 'backup')
    async with open_store(f'sqlite:///{tmp_path}/second.db') as store:
        assert await store.check() == []
        conversation = agent_of(store, writes('/c.txt', 'three')).conversation(version.conversation_id)
        turn = await conversation.advance('next')
        assert read(root) == await files_of(turn) == {**FILES, 'c.txt': 'three'}
        assert await edits(store) == 0
