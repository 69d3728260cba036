"""`LocalBackend`: what a snapshot holds, when it reads a file again, and what a restore does to the directory."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pydantic_deep_backends.errors import InvalidPathError, MissingBlobError
from pydantic_deep_backends.files._confined_root import ConfinedRoot
from pydantic_deep_backends.files._operations import read_chunks
from pydantic_deep_backends.local import LocalBackend
from pydantic_deep_backends.local._index import RACY_NANOSECONDS, SnapshotIndex
from pydantic_deep_backends.snapshots import FileVersion, Tree, TreeDiff, digest_of
from pydantic_deep_backends.state import StateBackend

pytestmark = pytest.mark.anyio


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_snapshot_holds_contents_size_and_the_right_to_execute(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.write_bytes('/.git/config', b'hidden')
    await backend.write_bytes('/run', b'#!')
    (tmp_path / 'run').chmod(0o700)
    await backend.make_dir('/empty')
    (tmp_path / 'link').symlink_to('run')
    assert dict((await backend.snapshot()).items()) == {
        '/.git/config': FileVersion(digest=digest_of(b'hidden'), size=6),
        '/run': FileVersion(digest=digest_of(b'#!'), size=2, mode=0o755),
    }


async def test_a_file_of_terabytes_is_not_hashed(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir()
    with (tmp_path / 'd' / 'sparse').open('wb') as file:
        file.truncate(10**13)
    with pytest.raises(OSError, match='10,000,000,000,000 bytes') as caught:
        await backend.snapshot()
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, '/d/sparse')


def test_a_file_that_grows_without_end_is_not_read_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('pydantic_deep_backends.files._operations.MAX_READ_BYTES', 10)
    (tmp_path / 'f').write_bytes(b'x' * 11)
    with (tmp_path / 'f').open('rb') as file:
        chunks = read_chunks(file.fileno(), 5)
        assert next(chunks) == b'x' * 5
        with pytest.raises(OSError, match='At most 10 can be read'):
            next(chunks)


class Readings:
    """A clock of the file system that counts how often it is asked: once for each file that is read."""

    def __init__(self, ahead_nanoseconds: int, now: Callable[[], int] = time.time_ns) -> None:
        self.count = 0
        self._ahead = ahead_nanoseconds
        self._now = now

    def __call__(self) -> int:
        self.count += 1
        return self._now() + self._ahead


async def test_files_that_did_not_change_are_not_read_again(backend: LocalBackend, tmp_path: Path) -> None:
    for name in map(str, range(20)):
        await backend.write_bytes(f'/{name}', b'old')
    clock = Readings(ahead_nanoseconds=2 * RACY_NANOSECONDS)
    with ConfinedRoot(path=str(tmp_path)).open() as root:
        first = SnapshotIndex(clock=clock).scan(root)
        assert clock.count == 20
        second = first.scan(root)
        assert (clock.count, second.tree) == (20, first.tree)
        await backend.write_bytes('/7', b'new')
        await backend.remove('/8')
        third = second.scan(root)
        assert clock.count == 21
    assert third.tree == first.tree.remove('/8').set('/7', FileVersion(digest=digest_of(b'new'), size=3))
    assert third.tree == await backend.snapshot()


async def test_a_change_that_leaves_size_and_mtime_alone_is_seen(tmp_path: Path) -> None:
    (tmp_path / 'f').write_text('old')
    os.utime(tmp_path / 'f', ns=(1, 1))
    with ConfinedRoot(path=str(tmp_path)).open() as root:
        first = SnapshotIndex(clock=Readings(2 * RACY_NANOSECONDS)).scan(root)
        (tmp_path / 'f').write_text('new')
        os.utime(tmp_path / 'f', ns=(1, 1))
        assert first.scan(root).tree.get('/f') == FileVersion(digest=digest_of(b'new'), size=3)


async def test_a_file_that_changed_shortly_before_it_was_read_is_read_again(tmp_path: Path) -> None:
    (tmp_path / 'f').write_text('old')
    written_at = (tmp_path / 'f').stat().st_ctime_ns
    clock = Readings(RACY_NANOSECONDS, now=lambda: written_at)
    with ConfinedRoot(path=str(tmp_path)).open() as root:
        SnapshotIndex(clock=clock).scan(root).scan(root)
    assert clock.count == 2


async def test_what_vanishes_or_becomes_a_link_while_it_is_captured_is_left_out(tmp_path: Path) -> None:
    (tmp_path / 'f').write_text('old')
    (tmp_path / 'd').mkdir()

    def unlink_f() -> int:
        (tmp_path / 'f').unlink()
        return 0

    def replace_d() -> None:
        (tmp_path / 'd').rmdir()
        (tmp_path / 'd').symlink_to('/etc')

    with ConfinedRoot(path=str(tmp_path)).open() as root:
        checkpoints = iter([lambda: None, replace_d])
        assert len(SnapshotIndex(clock=unlink_f).scan(root, lambda: next(checkpoints)()).tree) == 0


async def test_changes_says_what_differs(backend: LocalBackend) -> None:
    await backend.write_bytes('/same', b'')
    await backend.write_bytes('/changed', b'')
    await backend.write_bytes('/removed', b'')
    tree = await backend.snapshot()
    assert not await backend.changes(tree)
    await backend.write_bytes('/changed', b'2')
    await backend.write_bytes('/added', b'')
    await backend.remove('/removed')
    assert await backend.changes(tree) == TreeDiff(added=('/added',), changed=('/changed',), removed=('/removed',))


class Blobs:
    """Contents by digest, as a store has them."""

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


async def test_restore_takes_contents_from_files_that_have_them(backend: LocalBackend) -> None:
    await backend.write_bytes('/a', b'data')
    tree = (await backend.snapshot()).set('/b', FileVersion(digest=digest_of(b'data'), size=4)).remove('/a')
    await backend.restore(tree)
    assert await backend.snapshot() == tree


async def test_restore_takes_contents_from_a_tree_that_carries_them(backend: LocalBackend) -> None:
    tree = await StateBackend({'/a': 'one', '/d/b': 'two'}).snapshot()
    await backend.restore(tree)
    assert await backend.snapshot() == tree
    assert await backend.read_bytes('/d/b') == b'two'


async def test_restore_takes_the_right_to_execute_away_and_gives_new_files_it(
    backend: LocalBackend, tmp_path: Path
) -> None:
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


async def test_restore_refuses_contents_that_are_not_what_the_digest_says(backend: LocalBackend) -> None:
    async def wrong(digest: str) -> bytes:
        return b'wrong'

    with pytest.raises(MissingBlobError):
        await backend.restore(Tree.of({'/f': FileVersion(digest=digest_of(b'right'), size=5)}), wrong)
    assert await backend.list_dir('/') == []


@pytest.mark.parametrize('change', ['changed', 'gone'])
async def test_restore_does_not_trust_a_file_that_changes_meanwhile(
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


async def test_restore_refuses_a_tree_with_a_path_that_cannot_be_asked_for(backend: LocalBackend) -> None:
    tree = Tree.of({'/a\nb': FileVersion(digest=digest_of(b''), size=0)})
    with pytest.raises(InvalidPathError):
        await backend.restore(tree, Blobs(b''))


async def test_restore_writes_where_the_tree_says_and_never_through_links(
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


async def test_restore_leaves_alone_what_a_snapshot_leaves_out(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.make_dir('/d/empty')
    (tmp_path / 'd' / 'link').symlink_to('nowhere')
    (tmp_path / 'two\nlines').touch()
    await backend.write_bytes('/d/f', b'')
    await backend.restore(Tree())
    assert sorted(os.listdir(tmp_path)) == ['d', 'two\nlines']
    assert sorted(os.listdir(tmp_path / 'd')) == ['empty', 'link']


async def test_restore_is_content_with_a_file_that_is_gone_already(backend: LocalBackend, tmp_path: Path) -> None:
    for path in ('/a/f', '/b/f'):
        await backend.write_bytes(path, b'')

    async def read_blob(digest: str) -> bytes:
        shutil.rmtree(tmp_path / 'b')
        (tmp_path / 'b').touch()
        return b'new'

    tree = Tree.of({'/c': FileVersion(digest=digest_of(b'new'), size=3)})
    await backend.restore(tree, read_blob)
    assert sorted(os.listdir(tmp_path)) == ['b', 'c']
