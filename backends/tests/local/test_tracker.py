"""Trackers of a directory: which files they read, and that they detect every change."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from backends.tests.conftest import track
from pydantic_deep_backends import LocalBackend, SandboxBackend, SandboxLimits, Tree, digest_of
from pydantic_deep_backends.local import _capture as capturing

pytestmark = pytest.mark.anyio


class Looks:
    """Counts the reads and listings of a capture."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.listed = 0


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    looks = Looks()
    open_file, list_entries = capturing.open_file, capturing.list_entries

    def counted_open(directory: int, name: str, max_bytes: int = 0) -> tuple[int, os.stat_result]:
        opened = open_file(directory, name, max_bytes)
        looks.read.append(name)
        return opened

    def counted_list(directory: int) -> list[os.DirEntry[str]]:
        looks.listed += 1
        return list_entries(directory)

    monkeypatch.setattr(capturing, 'open_file', counted_open)
    monkeypatch.setattr(capturing, 'list_entries', counted_list)
    return looks


async def test_capture_reads_only_written_files_and_lists_nothing(local: LocalBackend, looks: Looks) -> None:
    tracker = track(local)
    before = (await tracker.capture(Tree())).tree
    looks.read, looks.listed = [], 0
    for step in range(20):
        await local.write_bytes('/d1/1', str(step).encode())
        captured = await tracker.capture(before)
        assert list(captured.blobs.values()) == [str(step).encode()]
        before = captured.tree
    assert (looks.read, looks.listed) == (['1'] * 20, 0)
    assert (await tracker.capture(before)).tree is before


async def test_tracker_started_from_a_tree_does_not_read_its_files(local: LocalBackend, looks: Looks) -> None:
    before = (await track(local).capture(Tree())).tree
    looks.read, looks.listed = [], 0
    tracker = track(local, tree=before)
    await local.write_bytes('/new', b'x')
    assert sorted((await tracker.capture(before)).tree) == sorted([*before, '/new'])
    assert (looks.read, looks.listed) == (['new'], 0)


async def test_unchanged_files_are_not_read_again(
    local: LocalBackend, tmp_path: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in tmp_path.glob('d*/*'):
        os.utime(path, ns=(1, 1))
    monkeypatch.setattr('pydantic_deep_backends.local._index.RACY_NANOSECONDS', -(10**12))
    before = (await track(local).capture(Tree())).tree
    looks.read = []
    (tmp_path / 'd1' / '1').write_text('changed by somebody else')
    captured = await track(local).capture(before)
    assert looks.read == ['1']
    assert list(captured.blobs.values()) == [b'changed by somebody else']


async def test_contents_unknown_to_the_caller_are_read_again(local: LocalBackend, looks: Looks) -> None:
    first = await track(local).capture(Tree())
    looks.read = []
    assert (await track(local).capture(Tree())).blobs == first.blobs
    assert len(looks.read) == 50


async def test_external_changes_are_seen_only_by_a_full_capture(local: LocalBackend, tmp_path: Path) -> None:
    tracker = track(local)
    before = (await tracker.capture(Tree())).tree
    (tmp_path / 'other').write_text('x')
    assert (await tracker.capture(before)).tree == before
    assert sorted((await tracker.capture(before, is_full=True)).tree.diff(before).removed) == ['/other']


async def test_ignored_directory_is_not_entered(local: LocalBackend, tmp_path: Path, looks: Looks) -> None:
    (tmp_path / '.gitignore').write_text('d0 d1 d2 d3')
    captured = await track(local).capture(Tree())
    assert len(captured.tree) == 11
    assert (looks.listed, len(looks.read)) == (2, 12)  # the ignore file is read twice: for its rules and as a file


async def test_write_below_an_ignored_directory_is_not_read(local: LocalBackend, tmp_path: Path, looks: Looks) -> None:
    (tmp_path / '.gitignore').write_text('build')
    tracker = track(local)
    before = (await tracker.capture(Tree())).tree
    looks.read = []
    await local.write_bytes('/build/deep/x', b'x')
    await local.write_bytes('/d1/build', b'x')
    assert (await tracker.capture(before)).tree == before
    assert set(looks.read) <= {'.gitignore'}


async def test_capture_after_a_failure_reads_everything(tmp_path: Path) -> None:
    root = tmp_path / 'root'
    root.mkdir()
    backend = LocalBackend(root)
    tracker = track(backend)
    before = (await tracker.capture(Tree())).tree
    await backend.write_bytes('/x', b'x')
    shutil.move(root, tmp_path / 'away')
    with pytest.raises(Exception, match='is not a directory'):
        await tracker.capture(before)
    shutil.move(tmp_path / 'away', root)
    assert sorted((await tracker.capture(before)).tree) == ['/x']


async def test_external_removals_are_seen_by_a_full_capture(local: LocalBackend, tmp_path: Path) -> None:
    tracker = track(local)
    before = (await tracker.capture(Tree())).tree
    (tmp_path / 'd1' / '1').unlink()
    assert before.diff((await tracker.capture(before, is_full=True)).tree).removed == ('/d1/1',)


async def test_in_directory_copies_the_settings(tmp_path: Path) -> None:
    limits = SandboxLimits(processes=7)
    sandbox = SandboxBackend(tmp_path, network=True, env={'A': 'b'}, read_only={'/opt/x': '/usr'}, limits=limits)
    (tmp_path / 'other').mkdir()
    other = sandbox.in_directory(tmp_path / 'other')
    settings = ('_bwrap', '_network', '_env', '_read_only', '_limits', '_tested_plan')
    assert {name: vars(other)[name] for name in settings} == {name: vars(sandbox)[name] for name in settings}
    assert other.ref.id == str(tmp_path / 'other')
    assert LocalBackend(tmp_path, allow_commands=True).in_directory(tmp_path / 'other').allows_commands is True
    assert LocalBackend(tmp_path).in_directory(tmp_path / 'other').allows_commands is False


async def test_file_written_twice_is_read_once(local: LocalBackend, looks: Looks) -> None:
    tracker = track(local)
    before = (await tracker.capture(Tree())).tree
    looks.read = []
    await local.write_bytes('/d1/1', b'x')
    await local.write_bytes('/d1/1', b'y')
    assert (await tracker.capture(before)).blobs == {digest_of(b'y'): b'y'}
    assert looks.read == ['1']
