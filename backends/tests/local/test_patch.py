"""Restores: all files change, or none."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends.tests.conftest import replaced, track
from pydantic_deep_backends.errors import InvalidPathError, MissingBlobError
from pydantic_deep_backends.local import LocalBackend
from pydantic_deep_backends.snapshots import FileVersion, Tree, digest_of
from pydantic_deep_backends.state import StateBackend
from pydantic_deep_backends.tracking import Occupant

pytestmark = pytest.mark.anyio


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class Blobs:
    """Contents by digest, like a store."""

    def __init__(self, *contents: bytes) -> None:
        self.fetched: list[str] = []
        self._data_by_digest = {digest_of(data): data for data in contents}

    async def __call__(self, digest: str) -> bytes:
        self.fetched.append(digest)
        return self._data_by_digest[digest]


async def test_restore_makes_the_files_equal_to_the_tree(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.write_bytes('/same', b'same')
    await backend.write_bytes('/edited', b'old')
    await backend.write_bytes('/deep/er/gone', b'gone')
    await backend.write_bytes('/run', b'#!')
    (tmp_path / 'run').chmod(0o755)
    tree = await backend.snapshot()
    await backend.write_bytes('/edited', b'new')
    await backend.remove('/deep')
    await backend.write_bytes('/added/in/here', b'')
    await backend.write_bytes('/deep/er/stays-not', b'')
    await backend.write_bytes('/added2', b'')
    (tmp_path / 'run').chmod(0o640)
    blobs = Blobs(b'old', b'gone')
    await backend.restore(tree, blobs)
    assert await backend.snapshot() == tree
    assert sorted(blobs.fetched) == sorted([digest_of(b'old'), digest_of(b'gone')])
    assert sorted(os.listdir(tmp_path)) == ['deep', 'edited', 'run', 'same']
    assert mode_of(tmp_path / 'run') == 0o750


async def test_restore_takes_contents_from_existing_files(backend: LocalBackend) -> None:
    await backend.write_bytes('/a', b'data')
    tree = (await backend.snapshot()).set('/b', FileVersion(digest=digest_of(b'data'), size=4)).remove('/a')
    await backend.restore(tree)
    assert await backend.snapshot() == tree


async def test_restore_takes_contents_from_the_tree(backend: LocalBackend) -> None:
    tree = await StateBackend({'/a': 'one', '/d/b': 'two'}).snapshot()
    await backend.restore(tree)
    assert await backend.snapshot() == tree
    assert await backend.read_bytes('/d/b') == b'two'


async def test_restore_clears_and_sets_the_executable_bit(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.write_bytes('/was', b'data')
    (tmp_path / 'was').chmod(0o755)
    tree = Tree.of(
        {
            '/was': FileVersion(digest=digest_of(b'data'), size=4),
            '/new': FileVersion(digest=digest_of(b'data'), size=4, mode=0o755),
        }
    )
    before = os.umask(0o027)
    try:
        await backend.restore(tree)
    finally:
        os.umask(before)
    assert (mode_of(tmp_path / 'was'), mode_of(tmp_path / 'new')) == (0o644, 0o750)


async def test_restore_changes_nothing_when_contents_are_missing(backend: LocalBackend) -> None:
    await backend.write_bytes('/f', b'now')
    before = await backend.snapshot()
    versions = {name: FileVersion(digest=digest_of(name.encode()), size=2) for name in ('/a', '/b', '/c')}
    with pytest.raises(MissingBlobError) as without:
        await backend.restore(Tree.of(versions))
    with pytest.raises(MissingBlobError) as partly:
        await backend.restore(Tree.of(versions), Blobs(b'/b'))
    assert (without.value.paths, partly.value.paths) == (('/a', '/b', '/c'), ('/a', '/c'))
    assert await backend.snapshot() == before


async def test_restore_refuses_contents_with_a_wrong_digest(backend: LocalBackend) -> None:
    async def wrong(digest: str) -> bytes:
        return b'wrong'

    with pytest.raises(MissingBlobError):
        await backend.restore(Tree.of({'/f': FileVersion(digest=digest_of(b'right'), size=5)}), wrong)
    assert await backend.list_dir('/') == []


@pytest.mark.parametrize('change', ['changed', 'gone'])
async def test_restore_ignores_contents_of_a_concurrently_changed_file(
    backend: LocalBackend, tmp_path: Path, change: str
) -> None:
    await backend.write_bytes('/a', b'first')
    version = FileVersion(digest=digest_of(b'moved'), size=5)
    await backend.write_bytes('/b', b'moved')

    class Changing(Blobs):
        async def __call__(self, digest: str) -> bytes:
            if digest != version.digest:
                (tmp_path / 'b').unlink()
            if digest != version.digest and change == 'changed':
                (tmp_path / 'b').write_text('other')
            return await super().__call__(digest)

    blobs = Changing(b'moved', b'needed')
    tree = Tree.of({'/a': FileVersion(digest=digest_of(b'needed'), size=6), '/c': version})
    await backend.restore(tree, blobs)
    assert blobs.fetched == [digest_of(b'needed'), version.digest]
    assert await backend.snapshot() == tree


async def test_restore_refuses_a_tree_with_an_invalid_path(backend: LocalBackend) -> None:
    tree = Tree.of({'/a\nb': FileVersion(digest=digest_of(b''), size=0)})
    with pytest.raises(InvalidPathError):
        await backend.restore(tree, Blobs(b''))


async def test_restore_never_writes_through_links(
    backend: LocalBackend, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp('outside')
    (outside / 'f').write_text('canary')
    for path in ('/d/f', '/x/y/f', '/file', '/was-file'):
        await backend.write_bytes(path, b'data')
    tree = await backend.snapshot()
    shutil.rmtree(tmp_path / 'd')
    (tmp_path / 'd').symlink_to(outside)
    shutil.rmtree(tmp_path / 'x')
    (tmp_path / 'x').write_text('a file where a directory was')
    (tmp_path / 'file').unlink()
    (tmp_path / 'file').symlink_to(outside / 'f')
    (tmp_path / 'was-file').unlink()
    (tmp_path / 'was-file').mkdir()
    (tmp_path / 'was-file' / 'link').symlink_to(outside)
    await backend.restore(tree, Blobs(b'data'))
    assert await backend.snapshot() == tree
    assert (os.listdir(outside), (outside / 'f').read_text()) == (['f'], 'canary')
    assert not any((tmp_path / name).is_symlink() for name in ('d', 'file', 'was-file'))


async def test_restore_preserves_paths_outside_of_snapshots(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.make_dir('/d/empty')
    (tmp_path / 'd' / 'link').symlink_to('nowhere')
    (tmp_path / 'two\nlines').touch()
    await backend.write_bytes('/d/f', b'')
    await backend.restore(Tree())
    assert sorted(os.listdir(tmp_path)) == ['d', 'two\nlines']
    assert sorted(os.listdir(tmp_path / 'd')) == ['empty', 'link']


async def test_restore_tolerates_files_already_removed(backend: LocalBackend, tmp_path: Path) -> None:
    for path in ('/a/f', '/b/f'):
        await backend.write_bytes(path, b'')

    async def read_blob(digest: str) -> bytes:
        shutil.rmtree(tmp_path / 'b')
        (tmp_path / 'b').touch()
        return b'new'

    tree = Tree.of({'/c': FileVersion(digest=digest_of(b'new'), size=3)})
    await backend.restore(tree, read_blob)
    assert sorted(os.listdir(tmp_path)) == ['b', 'c']


async def test_occupants_include_links_and_special_files(local: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / 'link').symlink_to('d1')
    (tmp_path / 'd').mkdir()
    os.mkfifo(tmp_path / 'd' / 'fifo')
    (tmp_path / 'd' / f'.pydantic-deep-{"0" * 32}.tmp').write_text('x')
    assert await local.occupants(['/link/x', '/d']) == [
        Occupant(path='/d/fifo', is_file=False),
        Occupant(path='/link', is_file=False),
    ]


async def test_unreadable_path_raises_instead_of_being_free(
    local: LocalBackend, fail: Callable[[str, int], None]
) -> None:
    fail('d1', errno.EACCES)
    with pytest.raises(PermissionError):
        await local.occupants(['/d1/1'])


async def test_directories_without_files_are_removed(local: LocalBackend, tmp_path: Path) -> None:
    await local.write_bytes('/one/two/x', b'')
    await local.write_bytes('/one/y', b'')
    tree = (await track(local).capture(Tree())).tree.remove('/one/two/x')
    await local.patch(tree, ['/one/two/x', '/one/two/gone', '/no/where'], {})
    assert sorted(path.name for path in (tmp_path / 'one').iterdir()) == ['y']
    await local.patch(Tree(), ['/one/y', '/d1/1'], {})
    assert (tmp_path / 'one').exists() is False
    assert (tmp_path / 'd1').exists() is True


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the calls of fsync and sync."""
    asked: list[str] = []
    fsync, sync = os.fsync, os.sync

    def noted_fsync(descriptor: int) -> None:
        asked.append('directory' if stat.S_ISDIR(os.fstat(descriptor).st_mode) else 'file')
        fsync(descriptor)

    def noted_sync() -> None:
        asked.append('all')
        sync()

    monkeypatch.setattr(os, 'fsync', noted_fsync)
    monkeypatch.setattr(os, 'sync', noted_sync)
    return asked


def many(count: int) -> tuple[Tree, dict[str, bytes]]:
    data = {f'/{number}': str(number).encode() for number in range(count)}
    versions = {path: replaced(digest_of(text), len(text)) for path, text in data.items()}
    return Tree.of(versions), {digest_of(text): text for text in data.values()}


async def test_few_files_are_synced_individually(tmp_path: Path, disk: list[str]) -> None:
    tree, data = many(20)
    await LocalBackend(tmp_path).patch(tree, list(tree), data)
    assert disk == ['file'] * 20 + ['directory']


async def test_many_files_are_synced_together(tmp_path: Path, disk: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('pydantic_deep_backends.local._patch.MAX_CHUNK_FILES', 200)
    tree, data = many(400)
    backend = LocalBackend(tmp_path)
    await backend.patch(tree, list(tree), data)
    assert disk == ['all'] * 4  # before and after the files of each chunk are renamed
    assert (await track(backend).capture(Tree())).tree == tree
    disk.clear()
    await backend.patch(Tree(), list(tree), {})
    assert disk == ['directory']


async def test_files_of_a_view_are_not_synced(tmp_path: Path, disk: list[str]) -> None:
    tree, data = many(200)
    await LocalBackend(tmp_path).patch(tree, list(tree), data, is_durable=False)
    assert disk == []


@pytest.mark.parametrize('failing', ['open', 'rename'])
async def test_failed_patch_leaves_each_file_old_or_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    backend = LocalBackend(tmp_path)
    for number in range(5):
        await backend.write_bytes(f'/{number}', b'old')
    tracker = track(backend)
    before = (await tracker.capture(Tree())).tree
    tree, data = many(5)
    left = 3
    real: Callable[..., object] = getattr(os, failing)

    def call(name: str, *args: object, **options: object) -> object:
        nonlocal left
        if name.startswith('.pydantic-deep-'):
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, 'No space left')
        return real(name, *args, **options)

    monkeypatch.setattr(os, failing, call)
    with pytest.raises(OSError, match='No space left'):
        await backend.patch(tree, list(tree), data)
    monkeypatch.undo()
    here = (await tracker.capture(before)).tree
    assert [path for path in tree if here[path] == tree[path]] == ([] if failing == 'open' else ['/0', '/1', '/2'])
    assert all(here[path] in (before[path], tree[path]) for path in tree)
    assert sorted(os.listdir(tmp_path)) == ['0', '1', '2', '3', '4']
    await backend.patch(tree, list(tree), data)
    assert (await tracker.capture(here)).tree == tree


async def test_removed_directory_leaves_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, data = many(2)
    tree = Tree().graft('/d', tree)
    real = os.rename

    def rename(*args: Any, **options: Any) -> None:
        shutil.rmtree(tmp_path / 'd')
        real(*args, **options)

    monkeypatch.setattr(os, 'rename', rename)
    with pytest.raises(OSError, match='No such file'):
        await LocalBackend(tmp_path).patch(tree, list(tree), data)
    assert os.listdir(tmp_path) == []
