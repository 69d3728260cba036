"""Captures: unreadable files, files that change during the capture, and invalid names."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.tests.conftest import track
from pydantic_deep_backends import CompositeBackend, LocalBackend, SandboxBackend, StateBackend, Tree, digest_of
from pydantic_deep_backends.local import _capture as capturing
from pydantic_deep_backends.tracking import OmittedFile, SupportsTracking

pytestmark = pytest.mark.anyio


async def test_unreadable_file_is_listed_and_does_not_hide_others(
    local: LocalBackend, fail: Callable[[str, int], None]
) -> None:
    await local.write_bytes('/unreadable', b'x')
    fail('unreadable', errno.EACCES)
    captured = await track(local).capture(Tree())
    assert len(captured.tree) == 50
    assert captured.omitted == (OmittedFile(path='/unreadable', reason='unreadable', size_bytes=1),)


async def test_unreadable_directory_is_listed(local: LocalBackend, fail: Callable[[str, int], None]) -> None:
    tracker = track(local)
    before = (await tracker.capture(Tree())).tree
    fail('d1', errno.EACCES)
    omitted = (OmittedFile(path='/d1', reason='unreadable', size_bytes=None),)
    captured = await tracker.capture(before, is_full=True)
    assert (len(captured.tree), captured.omitted) == (40, omitted)
    await local.write_bytes('/d1/new', b'x')
    captured = await tracker.capture(captured.tree)
    assert [file.path for file in captured.omitted] == ['/d1', '/d1/new']
    assert [f.path for f in (await tracker.capture(Tree(), also=['/d1/1'])).omitted] == ['/d1', '/d1/1']


async def test_paths_that_vanish_during_a_capture_are_absent(
    local: LocalBackend, fail: Callable[[str, int], None]
) -> None:
    tracker = track(local)
    await tracker.capture(Tree())
    fail('1', errno.ENOENT)
    captured = await tracker.capture(Tree(), is_full=True)
    assert ('/d1/1' in captured.tree, captured.omitted) == (False, ())
    fail('d2', errno.ENOENT)
    captured = await tracker.capture(Tree(), is_full=True)
    assert (captured.tree.is_dir('/d2'), captured.omitted) == (False, ())


async def test_special_files_links_and_temporary_files_are_not_captured(local: LocalBackend, tmp_path: Path) -> None:
    before = (await track(local).capture(Tree())).tree
    os.mkfifo(tmp_path / 'fifo')
    (tmp_path / 'link').symlink_to('d1')
    (tmp_path / f'.pydantic-deep-{"0" * 32}.tmp').write_text('x')
    (tmp_path / 'empty').mkdir()
    tracker = track(local)
    captured = await tracker.capture(before)
    assert (captured.tree, captured.omitted) == (before, ())
    assert (await tracker.capture(before, also=['/fifo', '/link'])).tree == before
    await local.remove('/fifo')
    await local.make_dir('/empty/2')
    assert (await tracker.capture(before)).tree == before


@pytest.fixture(params=['local', 'sandbox', 'mounted'])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> LocalBackend | CompositeBackend:
    """A directory with names that no backend accepts, and some that only resemble them."""
    for path in ('~$q3.xlsx', '~notes/a/plan.md', '~notes/b', 'C:todo', 'a\\b', 'line\nbreak', 'd/~fine', 'd/C:fine'):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text('precious')
    (tmp_path / os.fsdecode(b'not-utf8-\xff')).write_text('x' * 1001)
    backend = SandboxBackend(tmp_path) if request.param == 'sandbox' else LocalBackend(tmp_path)
    return CompositeBackend(StateBackend(), {'/m': backend}) if request.param == 'mounted' else backend


async def test_files_with_invalid_names_are_listed_as_omitted(odd: LocalBackend | CompositeBackend) -> None:
    assert isinstance(odd, SupportsTracking)
    above = '/m' if isinstance(odd, CompositeBackend) else ''
    tracker = track(odd)
    captured = await tracker.capture(Tree())
    assert sorted(captured.tree) == [f'{above}/d/C:fine', f'{above}/d/~fine']
    assert [(each.path.removeprefix(above), each.reason, each.size_bytes) for each in captured.omitted] == [
        ('/C:todo', 'invalid path', 8),
        ('/a\\b', 'invalid path', 8),
        ('/line\\nbreak', 'invalid path', 8),
        ('/not-utf8-\\udcff', 'invalid path', 1001),
        ('/~$q3.xlsx', 'invalid path', 8),
        ('/~notes', 'invalid path', None),
    ]
    assert all(each.path.isprintable() for each in captured.omitted)
    assert (await tracker.capture(captured.tree)).omitted == captured.omitted
    assert (await tracker.capture(captured.tree, is_full=True)).omitted == captured.omitted


async def test_write_to_a_name_no_tree_accepts_is_listed_as_omitted(tmp_path: Path) -> None:
    backend = SandboxBackend(tmp_path)
    tracker = track(backend)
    before = (await tracker.capture(Tree())).tree
    await backend.write_bytes('/workspace/~notes/a/plan.md', b'precious')
    await backend.write_bytes('/workspace/~file', b'precious')
    (tmp_path / 'd' / 'a\\b').mkdir(parents=True)
    (tmp_path / 'link').symlink_to('d/a\\b')
    await backend.write_bytes('/workspace/link/c', b'precious')
    captured = await tracker.capture(before)
    assert (captured.tree, captured.omitted) == (
        before,
        (
            OmittedFile(path='/d/a\\b', reason='invalid path', size_bytes=None),
            OmittedFile(path='/~file', reason='invalid path', size_bytes=8),
            OmittedFile(path='/~notes', reason='invalid path', size_bytes=None),
        ),
    )
    await backend.remove('/workspace/d')
    await backend.remove('/workspace/~notes')
    await backend.remove('/workspace/~file')
    assert (await tracker.capture(before)).omitted == ()


async def test_stale_temporary_files_are_not_captured_and_a_patch_removes_them(
    local: LocalBackend, tmp_path: Path
) -> None:
    now = time.time()
    seconds_by_name = {'d1/.pydantic-deep-' + f'{n}' * 32 + '.tmp': n * 86_000 for n in range(4)}
    for name, seconds in seconds_by_name.items():
        (tmp_path / name).write_text('half')
        os.utime(tmp_path / name, (now - seconds, now - seconds))
    directory = tmp_path / 'd1' / f'.pydantic-deep-{"d" * 32}.tmp'
    directory.mkdir()
    os.utime(directory, (0, 0))
    captured = await track(local).capture(Tree())
    assert (len(captured.tree), captured.omitted) == (50, ())
    assert all((tmp_path / name).exists() for name in seconds_by_name)
    file = captured.tree['/d1/1']
    await local.patch(captured.tree, ['/d1/1'], {file.digest: (tmp_path / 'd1' / '1').read_bytes()})
    assert [(tmp_path / name).exists() for name in seconds_by_name] == [True, True, False, False]
    assert directory.is_dir()


async def test_file_that_vanishes_after_listing_is_absent(
    local: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_entries = capturing.list_entries

    def vanishing(directory: int) -> list[os.DirEntry[str]]:
        entries = list_entries(directory)
        if any(entry.name == '1' for entry in entries):
            (tmp_path / 'd1' / '1').unlink()
        return entries

    monkeypatch.setattr(capturing, 'list_entries', vanishing)
    captured = await track(local).capture(Tree())
    assert (len(captured.tree), captured.omitted) == (49, ())


async def test_file_that_changes_while_read_is_read_again(
    local: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, left = tmp_path / 'd1' / '1', 2
    read_chunks = capturing.read_chunks

    def changing(descriptor: int, size_bytes: int) -> list[bytes]:
        nonlocal left
        chunks = list(read_chunks(descriptor, size_bytes))
        if left and os.fstat(descriptor).st_ino == path.stat().st_ino:
            left -= 1
            path.write_text(f'changed, {left} to come, longer and longer{"." * (9 - left)}')
        return chunks

    monkeypatch.setattr(capturing, 'read_chunks', changing)
    captured = await track(local).capture(Tree())
    assert captured.tree['/d1/1'].digest == digest_of(path.read_bytes())
    assert captured.blobs[captured.tree['/d1/1'].digest] == path.read_bytes()


async def test_constantly_changing_file_has_the_last_contents_read(
    local: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = tmp_path / 'd1' / '1', list[bytes]()
    read_chunks = capturing.read_chunks

    def changing(descriptor: int, size_bytes: int) -> list[bytes]:
        chunks = list(read_chunks(descriptor, size_bytes))
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            read.append(b''.join(chunks))
            path.write_text('.' * (len(read) + 10))
        return chunks

    monkeypatch.setattr(capturing, 'read_chunks', changing)
    captured = await track(local).capture(Tree())
    assert len(read) == capturing.MAX_ATTEMPTS
    assert captured.blobs[captured.tree['/d1/1'].digest] == read[-1]
    monkeypatch.undo()
    captured = await track(local).capture(captured.tree)
    assert captured.blobs == {digest_of(path.read_bytes()): path.read_bytes()}


async def test_file_that_grows_too_large_while_read_is_omitted(
    local: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grown(descriptor: int, size_bytes: int) -> list[bytes]:
        return [b'x' * 1001]

    monkeypatch.setattr(capturing, 'read_chunks', grown)
    captured = await track(local).capture(Tree())
    assert (len(captured.tree), len(captured.omitted)) == (0, 50)
    assert captured.omitted[0] == OmittedFile(path='/d0/0', reason='too large', size_bytes=1001)
