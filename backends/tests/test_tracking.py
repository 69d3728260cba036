"""Trackers: what a capture holds, what it looks at, and that a digest never stands for other bytes."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    FileVersion,
    LocalBackend,
    MissingBlobError,
    OverlayBackend,
    ReadOnlyBackend,
    SandboxBackend,
    SandboxLimits,
    StateBackend,
    SupportsSnapshots,
    Tree,
    digest_of,
)
from pydantic_deep_backends.local import _capture as capturing
from pydantic_deep_backends.tracking import (
    Captured,
    DirectoryRules,
    FileTracker,
    Occupant,
    OmittedFile,
    SupportsPatch,
    SupportsTracking,
)

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Named:
    """Leaves out what an ignore file names, line by line, there and below."""

    names: frozenset[str] = frozenset()

    def with_ignore_file(self, data: bytes) -> DirectoryRules:
        return replace(self, names=self.names | set(data.decode().split()))

    def below(self, name: str) -> DirectoryRules:
        return self

    def leaves_out(self, name: str, *, is_dir: bool) -> bool:
        return name in self.names


def track(backend: SupportsTracking, *, max_file_bytes: int = 1000, tree: Tree | None = None) -> FileTracker:
    return backend.track(Named(), max_file_bytes=max_file_bytes, tree=tree)


def contents(captured: Captured, blobs: Mapping[str, bytes] = {}) -> dict[str, bytes]:
    """Return the files of a capture with their contents."""
    return {path: {**blobs, **captured.blobs}[version.digest] for path, version in captured.tree.items()}


@pytest.fixture(params=['state', 'local', 'mounted', 'mount'])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> StateBackend | LocalBackend | CompositeBackend:
    match request.param:
        case 'state':
            return StateBackend()
        case 'local':
            return LocalBackend(tmp_path)
        case 'mounted':
            return CompositeBackend(LocalBackend(tmp_path), {'/other': StateBackend()})
        case _:
            return CompositeBackend(StateBackend(), {'/a': LocalBackend(tmp_path)})


class Looks:
    """Counts what a capture does to files."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.listed = 0


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    looks = Looks()
    open_file, list_entries = capturing.open_file, capturing.list_entries

    def counted_open(directory: int, name: str) -> tuple[int, os.stat_result]:
        opened = open_file(directory, name)
        looks.read.append(name)
        return opened

    def counted_list(directory: int) -> list[os.DirEntry[str]]:
        looks.listed += 1
        return list_entries(directory)

    monkeypatch.setattr(capturing, 'open_file', counted_open)
    monkeypatch.setattr(capturing, 'list_entries', counted_list)
    return looks


# What every backend does


async def test_a_capture_has_the_files_and_the_contents_that_are_new(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    await backend.write_bytes('/a/b', b'one')
    await backend.write_bytes('/c', b'two')
    first = await tracker.capture(Tree())
    assert contents(first) == {'/a/b': b'one', '/c': b'two'}
    await backend.write_bytes('/c', b'three')
    await backend.remove('/a/b')
    second = await tracker.capture(first.tree)
    assert contents(second) == {'/c': b'three'}
    assert (await tracker.capture(second.tree)).blobs == {}


async def test_what_the_ignore_files_name_is_left_out(backend: StateBackend | LocalBackend | CompositeBackend) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    before = (await tracker.capture(Tree())).tree
    await backend.write_bytes('/a/.gitignore', b'secret build')
    await backend.write_bytes('/a/secret', b's')
    await backend.write_bytes('/a/build/x', b'x')
    await backend.write_bytes('/a/d/secret', b's')
    await backend.write_bytes('/a/d/y', b'y')
    await backend.write_bytes('/secret', b'not named here')
    captured = await tracker.capture(before)
    assert sorted(captured.tree) == ['/a/.gitignore', '/a/d/y', '/secret']
    assert captured.omitted == ()


async def test_an_ignore_file_that_changes_counts_for_files_that_did_not(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    await backend.write_bytes('/a/d/x', b'x')
    await backend.write_bytes('/a/d/y', b'y')
    first = await tracker.capture(Tree())
    await backend.write_bytes('/a/.gitignore', b'x')
    second = await tracker.capture(first.tree)
    assert sorted(second.tree) == ['/a/.gitignore', '/a/d/y']
    await backend.remove('/a/.gitignore')
    third = await tracker.capture(second.tree)
    assert contents(third, first.blobs) == {'/a/d/x': b'x', '/a/d/y': b'y'}


async def test_a_file_that_is_too_large_is_listed_until_it_is_not(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    await backend.write_bytes('/a/large', b'x' * 1001)
    await backend.write_bytes('/a/small', b'x')
    first = await tracker.capture(Tree())
    assert sorted(first.tree) == ['/a/small']
    assert first.omitted == (OmittedFile(path='/a/large', reason='too large', size_bytes=1001),)
    await backend.write_bytes('/a/small', b'y')
    assert (await tracker.capture(first.tree)).omitted == first.omitted
    before = (await tracker.capture(Tree())).tree
    await backend.write_bytes('/a/large', b'x' * 1000)
    assert sorted((last := await tracker.capture(before)).tree) == ['/a/large', '/a/small']
    assert last.omitted == ()


async def test_an_ignore_file_that_is_too_large_is_not_heeded(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    await backend.write_bytes('/a/.gitignore', b'x' + b' ' * 1000)
    await backend.write_bytes('/a/x', b'x')
    assert sorted((await tracker.capture(Tree())).tree) == ['/a/x']


async def test_a_tree_that_the_tracker_did_not_return_is_compared_with_everything(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    await backend.write_bytes('/a/b', b'one')
    first = await tracker.capture(Tree())
    again = await tracker.capture(Tree())
    assert (again.tree, again.blobs) == (first.tree, first.blobs)


async def test_a_file_that_the_rules_leave_out_can_be_asked_for(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    await backend.write_bytes('/a/.gitignore', b'secret')
    await backend.write_bytes('/a/secret', b's')
    await backend.write_bytes('/a/large', b'x' * 1001)
    first = await tracker.capture(Tree(), also=['/a/secret', '/a/large', '/a/missing', '/a/no/where'])
    assert contents(first) == {'/a/.gitignore': b'secret', '/a/secret': b's'}
    assert sorted((await tracker.capture(first.tree)).tree) == ['/a/.gitignore']


async def test_a_directory_in_the_place_of_a_file_and_back(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    await backend.write_bytes('/a/x', b'file')
    first = await tracker.capture(Tree())
    await backend.remove('/a/x')
    await backend.write_bytes('/a/x/y/z', b'below')
    second = await tracker.capture(first.tree)
    assert contents(second) == {'/a/x/y/z': b'below'}
    await backend.remove('/a/x')
    await backend.write_bytes('/a/x', b'file')
    third = await tracker.capture(second.tree)
    assert third.tree == first.tree


async def test_a_compare_and_swap_is_noted(backend: StateBackend | LocalBackend | CompositeBackend) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    await backend.write_bytes('/a/x', b'1')
    first = await tracker.capture(Tree())
    swap: Callable[..., Awaitable[None]] = vars(backend).get('compare_and_swap') or backend.compare_and_swap
    await swap('/a/x', b'2', expected=digest_of(b'1'))
    assert contents(await tracker.capture(first.tree)) == {'/a/x': b'2'}


async def test_a_patch_and_a_restore_are_noted(backend: StateBackend | LocalBackend | CompositeBackend) -> None:
    assert isinstance(backend, SupportsTracking)
    assert isinstance(backend, SupportsPatch)
    assert isinstance(backend, SupportsSnapshots)
    tracker = track(backend)
    await backend.write_bytes('/a/x', b'1')
    await backend.write_bytes('/a/gone', b'1')
    first = await tracker.capture(Tree())
    wanted = await StateBackend({'/a/x': b'2', '/a/new/y': b'3'}).snapshot()
    data = {digest_of(b'2'): b'2', digest_of(b'3'): b'3'}
    await backend.patch(wanted, ['/a/x', '/a/gone', '/a/new/y'], data)
    second = await tracker.capture(first.tree)
    assert second.tree == wanted

    async def read_blob(digest: str) -> bytes:
        return {**first.blobs, **second.blobs}[digest]

    await backend.restore(first.tree, read_blob)
    assert (await tracker.capture(second.tree)).tree == first.tree


# Directories: what is looked at


@pytest.fixture
def local(tmp_path: Path) -> LocalBackend:
    for number in range(50):
        (tmp_path / f'd{number % 5}').mkdir(exist_ok=True)
        (tmp_path / f'd{number % 5}' / str(number)).write_text(str(number))
    return LocalBackend(tmp_path)


async def test_only_what_was_written_is_read_and_nothing_is_listed(local: LocalBackend, looks: Looks) -> None:
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


async def test_a_file_that_was_written_twice_is_read_once(local: LocalBackend, looks: Looks) -> None:
    tracker = track(local)
    before = (await tracker.capture(Tree())).tree
    looks.read = []
    await local.write_bytes('/d1/1', b'x')
    await local.write_bytes('/d1/1', b'y')
    assert (await tracker.capture(before)).blobs == {digest_of(b'y'): b'y'}
    assert looks.read == ['1']


async def test_a_tracker_that_is_told_the_files_does_not_look_at_them(local: LocalBackend, looks: Looks) -> None:
    before = (await track(local).capture(Tree())).tree
    looks.read, looks.listed = [], 0
    tracker = track(local, tree=before)
    await local.write_bytes('/new', b'x')
    assert sorted((await tracker.capture(before)).tree) == sorted([*before, '/new'])
    assert (looks.read, looks.listed) == (['new'], 0)


async def test_files_that_did_not_change_are_not_read_again(
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


async def test_contents_that_the_caller_does_not_have_are_read_again(local: LocalBackend, looks: Looks) -> None:
    first = await track(local).capture(Tree())
    looks.read = []
    assert (await track(local).capture(Tree())).blobs == first.blobs
    assert len(looks.read) == 50


async def test_what_others_change_is_seen_by_a_full_capture_only(local: LocalBackend, tmp_path: Path) -> None:
    tracker = track(local)
    before = (await tracker.capture(Tree())).tree
    (tmp_path / 'other').write_text('x')
    assert (await tracker.capture(before)).tree == before
    assert sorted((await tracker.capture(before, is_full=True)).tree.diff(before).removed) == ['/other']


async def test_a_directory_that_is_left_out_is_not_entered(local: LocalBackend, tmp_path: Path, looks: Looks) -> None:
    (tmp_path / '.gitignore').write_text('d0 d1 d2 d3')
    captured = await track(local).capture(Tree())
    assert len(captured.tree) == 11
    assert (looks.listed, len(looks.read)) == (2, 12)  # the ignore file is read for its rules, and as a file


async def test_a_write_below_a_directory_that_is_left_out_is_not_read(
    local: LocalBackend, tmp_path: Path, looks: Looks
) -> None:
    (tmp_path / '.gitignore').write_text('build')
    tracker = track(local)
    before = (await tracker.capture(Tree())).tree
    looks.read = []
    await local.write_bytes('/build/deep/x', b'x')
    await local.write_bytes('/d1/build', b'x')
    assert (await tracker.capture(before)).tree == before
    assert set(looks.read) <= {'.gitignore'}


async def test_a_change_through_a_link_is_noted_where_it_happened(local: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / 'link').symlink_to('d1')
    (tmp_path / 'd2' / 'file').symlink_to('../d1/1')
    tracker = track(local)
    before = (await tracker.capture(Tree())).tree
    await local.write_bytes('/link/6', b'x')
    await local.write_bytes('/d2/file', b'y')
    captured = await tracker.capture(before)
    assert captured.tree.diff(before).changed == ('/d1/1', '/d1/6')
    await local.remove('/link')
    assert (await tracker.capture(captured.tree)).tree == captured.tree


async def test_what_a_command_did_is_seen(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path, allow_commands=True)
    run: Callable[..., Awaitable[object]] = vars(backend)['run']
    await backend.write_bytes(f'{tmp_path}/x', b'1')
    tracker = track(backend)
    first = await tracker.capture(Tree())
    await run('echo made > y && chmod +x x', shell=True)
    second = await tracker.capture(first.tree)
    assert contents(second, first.blobs) == {'/x': b'1', '/y': b'made\n'}
    assert second.tree['/x'].mode == 0o755


async def test_a_closed_tracker_does_not_hinder_the_others(local: LocalBackend) -> None:
    closed, open_ = track(local), track(local)
    before = (await open_.capture(Tree())).tree
    closed.close()
    await local.write_bytes('/x', b'x')
    assert sorted((await open_.capture(before)).tree.diff(before).removed) == ['/x']


async def test_after_a_capture_that_failed_everything_is_looked_at(tmp_path: Path) -> None:
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


# What cannot be read, and what moves while it is


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Let the file or directory of a name fail; rights would not stop root."""
    open_file, open_ = capturing.open_file, capturing.Directories.open

    def set_up(name: str, number: int) -> None:
        def failing_file(directory: int, asked: str) -> tuple[int, os.stat_result]:
            if asked == name:
                raise OSError(number, os.strerror(number))
            return open_file(directory, asked)

        def failing_open(self: capturing.Directories, path: tuple[str, ...]) -> int:
            if path[-1:] == (name,):
                raise OSError(number, os.strerror(number))
            return open_(self, path)

        monkeypatch.setattr(capturing, 'open_file', failing_file)
        monkeypatch.setattr(capturing.Directories, 'open', failing_open)

    return set_up


async def test_what_cannot_be_read_is_listed_and_hides_nothing(
    local: LocalBackend, fail: Callable[[str, int], None]
) -> None:
    await local.write_bytes('/unreadable', b'x')
    fail('unreadable', errno.EACCES)
    captured = await track(local).capture(Tree())
    assert len(captured.tree) == 50
    assert captured.omitted == (OmittedFile(path='/unreadable', reason='unreadable', size_bytes=1),)


async def test_a_directory_that_cannot_be_read_is_listed(local: LocalBackend, fail: Callable[[str, int], None]) -> None:
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


async def test_what_vanishes_while_it_is_looked_at_is_not_there(
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


async def test_special_files_links_and_our_unfinished_writes_are_in_no_tree(
    local: LocalBackend, tmp_path: Path
) -> None:
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
    """A directory with names that no backend accepts, and some that only look like it."""
    for path in ('~$q3.xlsx', '~notes/a/plan.md', '~notes/b', 'C:todo', 'a\\b', 'line\nbreak', 'd/~fine', 'd/C:fine'):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text('precious')
    (tmp_path / os.fsdecode(b'not-utf8-\xff')).write_text('x' * 1001)
    backend = SandboxBackend(tmp_path) if request.param == 'sandbox' else LocalBackend(tmp_path)
    return CompositeBackend(StateBackend(), {'/m': backend}) if request.param == 'mounted' else backend


async def test_what_has_a_name_that_no_backend_accepts_is_listed(odd: LocalBackend | CompositeBackend) -> None:
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


async def test_a_write_to_a_name_that_no_tree_can_have_is_listed(tmp_path: Path) -> None:
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


async def test_what_killed_processes_left_behind_is_in_no_tree_and_removed_by_a_patch_after_a_day(
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


async def test_a_file_that_vanishes_after_it_was_listed_is_not_there(
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


async def test_what_others_remove_is_seen_by_a_full_capture(local: LocalBackend, tmp_path: Path) -> None:
    tracker = track(local)
    before = (await tracker.capture(Tree())).tree
    (tmp_path / 'd1' / '1').unlink()
    assert before.diff((await tracker.capture(before, is_full=True)).tree).removed == ('/d1/1',)


async def test_rules_go_with_their_directory(backend: StateBackend | LocalBackend | CompositeBackend) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    await backend.write_bytes('/a/d/.gitignore', b'x')
    await backend.write_bytes('/a/d/x', b'1')
    await backend.write_bytes('/a/y', b'1')
    first = await tracker.capture(Tree())
    assert sorted(first.tree) == ['/a/d/.gitignore', '/a/y']
    await backend.remove('/a/d')
    second = await tracker.capture(first.tree)
    await backend.write_bytes('/a/d/x', b'2')
    assert sorted((await tracker.capture(second.tree)).tree) == ['/a/d/x', '/a/y']


async def test_a_file_that_changes_while_it_is_read_is_read_again(
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


async def test_a_file_that_never_stands_still_is_what_was_read_last(
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


async def test_a_file_that_grows_too_large_while_it_is_read_is_left_out(
    local: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grown(descriptor: int, size_bytes: int) -> list[bytes]:
        return [b'x' * 1001]

    monkeypatch.setattr(capturing, 'read_chunks', grown)
    captured = await track(local).capture(Tree())
    assert (len(captured.tree), len(captured.omitted)) == (0, 50)
    assert captured.omitted[0] == OmittedFile(path='/d0/0', reason='too large', size_bytes=1001)


# Parts


async def test_what_a_mount_hides_is_in_no_tree(tmp_path: Path) -> None:
    below = StateBackend({'/m': b'a file where a mount is', '/deep': b'and one above', '/x': b'x'})
    backend = CompositeBackend(below, {'/m': StateBackend({'/y': b'y'}), '/deep/n': LocalBackend(tmp_path)})
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    first = await tracker.capture(Tree())
    assert contents(first) == {'/m/y': b'y', '/x': b'x'}
    await below.remove('/m')
    await below.write_bytes('/m/y', b'hidden')
    await backend.write_bytes('/deep/n/z', b'z')
    second = await tracker.capture(first.tree)
    assert contents(second, first.blobs) == {'/m/y': b'y', '/x': b'x', '/deep/n/z': b'z'}
    tracker.close()


async def test_the_parts_of_a_tree_are_told_apart(tmp_path: Path) -> None:
    backend = CompositeBackend(SandboxBackend(tmp_path), {'/m': StateBackend(), '/workspace/n': StateBackend()})
    assert isinstance(backend, SupportsTracking)
    await backend.write_bytes('/workspace/x', b'x')
    await backend.write_bytes('/m/y', b'y')
    await backend.write_bytes('/workspace/n/z', b'z')
    before = (await track(backend).capture(Tree())).tree
    assert sorted(before) == ['/m/y', '/workspace/n/z', '/workspace/x']
    shares = {share.mount: (share.root, sorted(share.tree)) for share in backend.split(before)}
    assert shares == {'/': ('/workspace', ['/x']), '/m': ('/m', ['/y']), '/workspace/n': ('/workspace/n', ['/z'])}
    tracker = track(backend, tree=before)
    await backend.write_bytes('/workspace/x', b'2')
    assert (
        contents(await tracker.capture(before), {digest_of(b'y'): b'y', digest_of(b'z'): b'z'})['/workspace/x'] == b'2'
    )
    assert list(backend.mounts) == ['/m', '/workspace/n']
    assert isinstance(backend.default, SandboxBackend)


async def test_a_file_that_no_part_can_have_is_refused(tmp_path: Path) -> None:
    backend = CompositeBackend(SandboxBackend(tmp_path), {'/m': StateBackend()})
    assert isinstance(backend, SupportsPatch)
    for path in ('/beside', '/m', '/workspace'):
        with pytest.raises(ValueError, match='No part of the composite'):
            await backend.occupants([path])


async def test_a_read_only_part_is_captured_and_never_patched() -> None:
    files = StateBackend({'/s': b's'})
    backend = CompositeBackend(StateBackend({'/x': b'x'}), {'/skills': ReadOnlyBackend(files)})
    assert isinstance(backend, SupportsTracking)
    assert isinstance(backend, SupportsPatch)
    captured = await track(backend).capture(Tree())
    assert contents(captured) == {'/skills/s': b's', '/x': b'x'}
    assert await backend.occupants(['/skills/s', '/x']) == [Occupant(path='/x', is_file=True)]
    with pytest.raises(PermissionError, match='/skills/s'):
        await backend.patch(Tree(), ['/x', '/skills/s'], {})
    assert await backend.read_bytes('/x') == b'x'


async def test_who_can_be_tracked(tmp_path: Path) -> None:
    with_commands = LocalBackend(tmp_path, allow_commands=True)
    state = StateBackend()
    backends: dict[str, tuple[BackendProtocol, bool, bool]] = {
        'sandbox': (SandboxBackend(tmp_path), True, True),
        'with commands': (with_commands, True, True),
        'read-only': (ReadOnlyBackend(state), True, False),
        'read-only, elsewhere': (ReadOnlyBackend(with_commands), False, False),
        'overlay': (OverlayBackend(state), False, False),
        'all parts read-only': (CompositeBackend(ReadOnlyBackend(state), {}), True, False),
        'part that appears at its real path': (CompositeBackend(with_commands, {'/m': state}), False, False),
        'part that is an overlay': (CompositeBackend(state, {'/m': OverlayBackend(state)}), False, False),
    }
    assert {
        name: (backend, isinstance(backend, SupportsTracking), isinstance(backend, SupportsPatch))
        for name, (backend, _, _) in backends.items()
    } == backends
    assert stat.S_ISDIR(tmp_path.stat().st_mode)


# Patches


async def test_occupants_are_what_a_file_would_replace(backend: StateBackend | LocalBackend | CompositeBackend) -> None:
    assert isinstance(backend, SupportsPatch)
    for path in ('/a/file', '/a/d/x', '/a/d/e/y', '/a/beside'):
        await backend.write_bytes(path, b'')
    found = await backend.occupants(['/a/file/below/it', '/a/d', '/a/missing', '/a/e/missing'])
    assert [occupant.path for occupant in found] == ['/a/d/e/y', '/a/d/x', '/a/file']
    assert all(occupant.is_file for occupant in found)


async def test_links_and_special_files_are_occupants_but_no_files(local: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / 'link').symlink_to('d1')
    (tmp_path / 'd').mkdir()
    os.mkfifo(tmp_path / 'd' / 'fifo')
    (tmp_path / 'd' / f'.pydantic-deep-{"0" * 32}.tmp').write_text('x')
    assert await local.occupants(['/link/x', '/d']) == [
        Occupant(path='/d/fifo', is_file=False),
        Occupant(path='/link', is_file=False),
    ]


async def test_what_cannot_be_looked_at_is_an_error_and_not_free(
    local: LocalBackend, fail: Callable[[str, int], None]
) -> None:
    fail('d1', errno.EACCES)
    with pytest.raises(PermissionError):
        await local.occupants(['/d1/1'])


async def test_a_patch_puts_files_and_directories_in_the_place_of_each_other(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    assert isinstance(backend, SupportsPatch)
    await backend.write_bytes('/a/file', b'1')
    await backend.write_bytes('/a/d/x', b'1')
    await backend.write_bytes('/a/same', b'1')
    wanted = await StateBackend({'/a/file/below': b'2', '/a/d': b'3', '/a/same': b'1'}).snapshot()
    data = {digest_of(text): text for text in (b'2', b'3')}
    await backend.patch(wanted, ['/a/file', '/a/file/below', '/a/d', '/a/d/x'], data, is_durable=False)
    assert (await track(backend).capture(Tree())).tree == wanted


async def test_what_stands_in_the_way_of_a_file_goes(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    assert isinstance(backend, SupportsPatch)
    await backend.write_bytes('/a/d/x', b'1')
    wanted = await StateBackend({'/a/d': b'2'}).snapshot()
    await backend.patch(wanted, ['/a/d'], {digest_of(b'2'): b'2'})
    assert (await track(backend).capture(Tree())).tree == wanted


async def test_a_patch_without_contents_changes_nothing(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    assert isinstance(backend, SupportsPatch)
    await backend.write_bytes('/a/x', b'1')
    before = (await track(backend).capture(Tree())).tree
    wanted = await StateBackend({'/a/y': b'2'}).snapshot()
    plain = Tree.of({path: replaced(version.digest, version.size) for path, version in wanted.items()})
    with pytest.raises(KeyError):
        await backend.patch(plain, ['/a/x', '/a/y'], {})
    with pytest.raises(ValueError, match='is not a valid path'):
        await backend.patch(plain, ['/a/x', '/a/../y'], {})
    assert (await track(backend).capture(Tree())).tree == before


def replaced(digest: str, size: int) -> FileVersion:
    return FileVersion(digest=digest, size=size)


async def test_directories_that_lose_their_last_file_go(local: LocalBackend, tmp_path: Path) -> None:
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
    """What the disk is asked to be sure of."""
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


async def test_few_files_are_made_durable_one_by_one(tmp_path: Path, disk: list[str]) -> None:
    tree, data = many(20)
    await LocalBackend(tmp_path).patch(tree, list(tree), data)
    assert disk == ['file'] * 20 + ['directory']


async def test_many_files_are_made_durable_together(
    tmp_path: Path, disk: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('pydantic_deep_backends.local._patch.MAX_CHUNK_FILES', 200)
    tree, data = many(400)
    backend = LocalBackend(tmp_path)
    await backend.patch(tree, list(tree), data)
    assert disk == ['all'] * 4  # before the files of each chunk take their names, and after
    assert (await track(backend).capture(Tree())).tree == tree
    disk.clear()
    await backend.patch(Tree(), list(tree), {})
    assert disk == ['directory']


async def test_files_of_a_view_are_not_made_durable(tmp_path: Path, disk: list[str]) -> None:
    tree, data = many(200)
    await LocalBackend(tmp_path).patch(tree, list(tree), data, is_durable=False)
    assert disk == []


@pytest.mark.parametrize('failing', ['open', 'rename'])
async def test_a_patch_that_fails_leaves_each_file_as_it_was_or_as_it_will_be(
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


async def test_a_directory_that_is_gone_takes_its_unfinished_writes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_a_backend_of_another_directory_has_the_same_settings(tmp_path: Path) -> None:
    limits = SandboxLimits(processes=7)
    sandbox = SandboxBackend(tmp_path, network=True, env={'A': 'b'}, read_only={'/opt/x': '/usr'}, limits=limits)
    (tmp_path / 'other').mkdir()
    other = sandbox.in_directory(tmp_path / 'other')
    settings = ('_bwrap', '_network', '_env', '_read_only', '_limits', '_tested_plan')
    assert {name: vars(other)[name] for name in settings} == {name: vars(sandbox)[name] for name in settings}
    assert other.ref.id == str(tmp_path / 'other')
    assert LocalBackend(tmp_path, allow_commands=True).in_directory(tmp_path / 'other').allows_commands is True
    assert LocalBackend(tmp_path).in_directory(tmp_path / 'other').allows_commands is False


# Files in memory that are fetched


class Blobs:
    """Contents by digest, and who asked for them."""

    def __init__(self, *data: bytes) -> None:
        self.data = {digest_of(each): each for each in data}
        self.asked: list[bytes | None] = []

    async def __call__(self, digest: str) -> bytes:
        self.asked.append(self.data.get(digest))
        return self.data[digest]


def tree_of(files: Mapping[str, bytes]) -> Tree:
    return Tree.of({path: replaced(digest_of(data), len(data)) for path, data in files.items()})


async def test_contents_are_fetched_when_they_are_read_and_once() -> None:
    blobs = Blobs(b'one', b'two')
    backend = StateBackend.of(tree_of({'/a': b'one', '/b': b'two', '/c': b'one'}), blobs)
    assert [entry.size for entry in await backend.list_dir('/')] == [3, 3, 3]
    assert blobs.asked == []
    assert [await backend.read_bytes(path) for path in ('/a', '/a', '/c')] == [b'one'] * 3
    assert blobs.asked == [b'one']
    await backend.write_bytes('/b', b'new')
    assert (await backend.grep('n')).counts == {'/a': 1, '/b': 1, '/c': 1}
    assert blobs.asked == [b'one']


async def test_a_search_fetches_what_it_reads() -> None:
    blobs = Blobs(b'one', b'two')
    backend = StateBackend.of(tree_of({'/d/a': b'one', '/d/b': b'two', '/c': b'one'}), blobs)
    assert (await backend.glob('**')).paths == ('/c', '/d/a', '/d/b')
    assert blobs.asked == []
    assert (await backend.grep('w', '/d')).counts == {'/d/b': 1}
    assert blobs.asked == [b'one', b'two']
    assert (await backend.grep('o', '/c')).counts == {'/c': 1}


async def test_contents_that_nobody_has_are_an_error() -> None:
    backend = StateBackend.of(tree_of({'/a': b'one'}), Blobs())
    with pytest.raises(MissingBlobError):
        await backend.read_bytes('/a')
    with pytest.raises(MissingBlobError):
        await backend.grep('x')


async def test_a_file_that_is_written_while_it_is_fetched_keeps_what_was_written() -> None:
    async def read_blob(digest: str) -> bytes:
        await backend.write_bytes('/a', b'new')
        return b'one'

    backend = StateBackend.of(tree_of({'/a': b'one'}), read_blob)
    assert await backend.read_bytes('/a') == b'one'
    assert await backend.read_bytes('/a') == b'new'


async def test_files_that_were_not_fetched_are_captured_without_their_contents() -> None:
    blobs = Blobs(b'one', b'x')
    before = tree_of({'/a': b'one', '/.gitignore': b'x', '/d/x': b'one'})
    backend = StateBackend.of(before, blobs)
    tracker = track(backend)
    captured = await tracker.capture(before)
    assert (sorted(captured.tree), captured.blobs) == (['/.gitignore', '/a'], {})
    assert (await tracker.capture(Tree())).blobs == {}
    await backend.restore(before)
    assert (await backend.snapshot()) == before


async def test_a_tree_with_a_path_that_no_backend_accepts_has_no_view() -> None:
    with pytest.raises(ValueError, match='is not a valid path'):
        StateBackend.of(tree_of({'/a\nb': b''}), Blobs())
