"""`LocalBackend`: contents of a snapshot, and when a file is read again."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pydantic_deep_backends.files._confined_root import ConfinedRoot
from pydantic_deep_backends.files._operations import read_chunks
from pydantic_deep_backends.local import LocalBackend
from pydantic_deep_backends.local._index import RACY_NANOSECONDS, SnapshotIndex
from pydantic_deep_backends.snapshots import FileVersion, TreeDiff, digest_of

pytestmark = pytest.mark.anyio


async def test_snapshot_records_contents_size_and_executable_bit(backend: LocalBackend, tmp_path: Path) -> None:
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


def test_growing_file_is_read_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('pydantic_deep_backends.files._operations.MAX_READ_BYTES', 10)
    (tmp_path / 'f').write_bytes(b'x' * 11)
    with (tmp_path / 'f').open('rb') as file:
        chunks = read_chunks(file.fileno(), 5)
        assert next(chunks) == b'x' * 5
        with pytest.raises(OSError, match='At most 10 can be read'):
            next(chunks)


class Readings:
    """File system clock that counts its calls: one for each file that is read."""

    def __init__(self, ahead_nanoseconds: int, now: Callable[[], int] = time.time_ns) -> None:
        self.count = 0
        self._ahead = ahead_nanoseconds
        self._now = now

    def __call__(self) -> int:
        self.count += 1
        return self._now() + self._ahead


async def test_unchanged_files_are_not_read_again(backend: LocalBackend, tmp_path: Path) -> None:
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


async def test_change_with_equal_size_and_mtime_is_detected(tmp_path: Path) -> None:
    (tmp_path / 'f').write_text('old')
    os.utime(tmp_path / 'f', ns=(1, 1))
    with ConfinedRoot(path=str(tmp_path)).open() as root:
        first = SnapshotIndex(clock=Readings(2 * RACY_NANOSECONDS)).scan(root)
        (tmp_path / 'f').write_text('new')
        os.utime(tmp_path / 'f', ns=(1, 1))
        assert first.scan(root).tree.get('/f') == FileVersion(digest=digest_of(b'new'), size=3)


async def test_file_changed_shortly_before_reading_is_read_again(tmp_path: Path) -> None:
    (tmp_path / 'f').write_text('old')
    written_at = (tmp_path / 'f').stat().st_ctime_ns
    clock = Readings(RACY_NANOSECONDS, now=lambda: written_at)
    with ConfinedRoot(path=str(tmp_path)).open() as root:
        SnapshotIndex(clock=clock).scan(root).scan(root)
    assert clock.count == 2


async def test_paths_that_vanish_or_become_links_during_a_scan_are_omitted(tmp_path: Path) -> None:
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


async def test_changes_returns_the_differences(backend: LocalBackend) -> None:
    await backend.write_bytes('/same', b'')
    await backend.write_bytes('/changed', b'')
    await backend.write_bytes('/removed', b'')
    tree = await backend.snapshot()
    assert not await backend.changes(tree)
    await backend.write_bytes('/changed', b'2')
    await backend.write_bytes('/added', b'')
    await backend.remove('/removed')
    assert await backend.changes(tree) == TreeDiff(added=('/added',), changed=('/changed',), removed=('/removed',))
