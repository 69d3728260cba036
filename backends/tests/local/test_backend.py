"""`LocalBackend`: operations on real files and their failures."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from backends.tests.conftest import deep_directory
from pydantic_deep_backends.errors import (
    BackendUnavailableError,
    FileChangedError,
    InvalidPathError,
    InvalidPatternError,
)
from pydantic_deep_backends.files._confined_root import ConfinedRoot, Location, link_found
from pydantic_deep_backends.files._directories import Directories, stat_location
from pydantic_deep_backends.local import LocalBackend
from pydantic_deep_backends.protocol import (
    BackendProtocol,
    BackendRef,
    FileEntry,
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsSearch,
    SupportsSnapshots,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path)


# The root directory


def test_local_backend_supports_files_search_swaps_and_snapshots_but_no_commands(backend: LocalBackend) -> None:
    assert isinstance(backend, BackendProtocol)
    assert isinstance(backend, SupportsSearch)
    assert isinstance(backend, SupportsCompareAndSwap)
    assert isinstance(backend, SupportsSnapshots)
    assert not isinstance(backend, SupportsCommands)


def test_repr_shows_the_given_directory(tmp_path: Path) -> None:
    assert repr(LocalBackend(tmp_path / 'a')) == f'LocalBackend({str(tmp_path / "a")!r})'


def test_refs_of_one_directory_are_equal_for_every_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'real').mkdir()
    (tmp_path / 'link').symlink_to('real')
    monkeypatch.chdir(tmp_path)
    expected = BackendRef(provider='local', id=str((tmp_path / 'real').resolve()))
    for root in ('real', './link', tmp_path / 'real', tmp_path / 'link' / '..' / 'link'):
        assert LocalBackend(root).ref == expected


async def test_relative_root_is_resolved_at_construction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'root').mkdir()
    monkeypatch.chdir(tmp_path)
    backend = LocalBackend('root')
    monkeypatch.chdir('/')
    await backend.write_bytes('/f', b'')
    assert (tmp_path / 'root' / 'f').exists()


async def test_linked_root_is_resolved_at_first_use(tmp_path: Path) -> None:
    for name in ('one', 'two'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'f').write_text(name)
    (tmp_path / 'link').symlink_to('one')
    backend = LocalBackend(tmp_path / 'link')
    ref = backend.ref
    (tmp_path / 'link').unlink()
    (tmp_path / 'link').symlink_to('two')
    assert await backend.read_bytes('/f') == b'one'
    assert backend.ref == ref


@pytest.mark.parametrize('names', [[], ['root']], ids=['missing', 'file'])
async def test_invalid_root_is_unavailable_and_not_created(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    backend = LocalBackend(tmp_path / 'root')
    with pytest.raises(BackendUnavailableError, match=r'root. is not a directory. Create it'):
        await backend.working_dir()
    with pytest.raises(BackendUnavailableError):
        await backend.exists('/f')
    with pytest.raises(BackendUnavailableError):
        await backend.write_bytes('/f', b'')
    assert os.listdir(tmp_path) == names


async def test_removed_root_is_unavailable_until_recreated(tmp_path: Path) -> None:
    root = tmp_path / 'root'
    root.mkdir()
    backend = LocalBackend(root)
    await backend.write_bytes('/f', b'')
    shutil.rmtree(root)
    for operation in (backend.read_bytes, backend.stat, backend.exists, backend.list_dir, backend.make_dir):
        with pytest.raises(BackendUnavailableError):
            await operation('/f')
    with pytest.raises(BackendUnavailableError):
        await backend.compare_and_swap('/f', b'', expected=None)
    with pytest.raises(BackendUnavailableError):
        await backend.snapshot()
    root.mkdir()
    assert list(await backend.snapshot()) == []


async def test_root_created_later_becomes_available(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / 'root')
    with pytest.raises(BackendUnavailableError):
        await backend.working_dir()
    (tmp_path / 'root').mkdir()
    assert await backend.working_dir() == '/'


async def test_unreadable_root_error_names_the_root(unprivileged: Path) -> None:
    (unprivileged / 'root').mkdir(mode=0)
    with pytest.raises(PermissionError, match=str(unprivileged / 'root')):
        await LocalBackend(unprivileged / 'root').working_dir()


@pytest.mark.parametrize('action', [stat_location, str], ids=['missing', 'empty'])
def test_root_removed_during_an_operation_is_unavailable(tmp_path: Path, action: Callable[[Location], object]) -> None:
    """The operation may find nothing or see an empty directory."""
    (tmp_path / 'root').mkdir()

    def visit() -> None:
        with ConfinedRoot(path=str(tmp_path / 'root')).open() as root:
            (tmp_path / 'root').rmdir()
            root.visit(('f',), action)

    with pytest.raises(BackendUnavailableError, match='was removed during'):
        visit()


def test_link_removed_before_it_is_followed_is_not_found(tmp_path: Path) -> None:
    def meet_link(place: Location) -> None:
        raise link_found()

    with ConfinedRoot(path=str(tmp_path)).open() as root, pytest.raises(FileNotFoundError):
        root.visit(('f',), meet_link)


def test_link_replaced_by_a_file_is_visited_again(tmp_path: Path) -> None:
    (tmp_path / 'f').touch()
    answers = iter(['link', 'file'])

    def meet(place: Location) -> str:
        if next(answers) == 'link':
            raise link_found()
        return place.name

    with ConfinedRoot(path=str(tmp_path)).open() as root:
        assert root.visit(('f',), meet) == 'f'


async def test_working_dir_is_the_root(backend: LocalBackend) -> None:
    assert await backend.working_dir() == '/'
    assert await backend.stat('/') == FileEntry(name='', path='/', is_dir=True, size=None)


# Reading and listing


async def test_written_data_of_any_size_can_be_read(backend: LocalBackend) -> None:
    for size in (0, 1, 65_535, 65_536, 65_537, 400_001):
        data = os.urandom(size)
        await backend.write_bytes('/a/b', data)
        assert await backend.read_bytes('/a/b') == data
        assert (await backend.stat('/a//./b')).size == size


async def test_errors_name_the_requested_path(backend: LocalBackend) -> None:
    await backend.write_bytes('/d/f', b'')
    with pytest.raises(FileNotFoundError) as missing:
        await backend.read_bytes('/d/no')
    with pytest.raises(IsADirectoryError) as directory:
        await backend.read_bytes('/d')
    with pytest.raises(NotADirectoryError) as file:
        await backend.list_dir('/d/f')
    assert [error.value.filename for error in (missing, directory, file)] == ['/d/no', '/d', '/d/f']


async def test_entries_are_sorted_and_omit_temporary_files(backend: LocalBackend, tmp_path: Path) -> None:
    for name in ('b', 'a', 'C', '.hidden', f'.pydantic-deep-{"0" * 32}.tmp', '.pydantic-deep-1.tmp'):
        (tmp_path / name).write_text('canary')
    shown = ['.hidden', '.pydantic-deep-1.tmp', 'C', 'a', 'b']
    assert [entry.name for entry in await backend.list_dir('/')] == shown
    assert [match.path for match in (await backend.grep('canary')).matches] == ['/C', '/a', '/b']
    assert list(await backend.snapshot()) == [f'/{name}' for name in shown]


async def test_invalid_names_are_listed_and_removed_with_their_directory(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir()
    names = ['two\nlines', 'bell\a', os.fsdecode(b'latin-\xe9'), 'back\\slash']
    for name in names:
        (tmp_path / 'd' / name).write_text('canary')
    (tmp_path / 'd' / 'good').write_text('canary')
    assert {entry.name for entry in await backend.list_dir('/d')} == {*names, 'good'}
    for name in names:
        with pytest.raises(InvalidPathError):
            await backend.read_bytes(f'/d/{name}')
    assert list(await backend.snapshot()) == ['/d/good']
    assert len((await backend.grep('canary')).problems) == len(names)
    await backend.remove('/d')
    assert os.listdir(tmp_path) == []


async def test_exists_is_false_below_a_file(backend: LocalBackend) -> None:
    await backend.write_bytes('/f', b'')
    assert [await backend.exists(path) for path in ('/', '/f', '/f/x', '/x')] == [True, True, False, False]


# Directories


async def test_remove_deletes_files_and_trees_but_never_the_root(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.write_bytes('/t/a/b/f', b'')
    await backend.write_bytes('/t/f', b'')
    await backend.make_dir('/t/empty')
    await backend.remove('/t/f')
    await backend.remove('/t')
    for path in ('/', '/.', '/./'):
        with pytest.raises(ValueError, match='root of the backend'):
            await backend.remove(path)
    with pytest.raises(FileNotFoundError):
        await backend.remove('/t')
    assert os.listdir(tmp_path) == []


# Search


async def test_search_starts_at_any_directory_or_link_to_one(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.write_bytes('/src/a.py', b'canary\n')
    await backend.write_bytes('/src/sub/b.py', b'a\ncanary\n')
    (tmp_path / 'link').symlink_to('src')
    assert (await backend.glob('**/*.py', '/link')).paths == ('/link/a.py', '/link/sub/b.py')
    found = await backend.grep('canary', '/link', glob='sub/*')
    assert [(match.path, match.line_number) for match in found.matches] == [('/link/sub/b.py', 2)]


async def test_links_to_files_are_searched_but_linked_directories_are_not_entered(
    backend: LocalBackend, tmp_path: Path
) -> None:
    await backend.write_bytes('/src/a.py', b'canary\n')
    (tmp_path / 'dir').symlink_to('src')
    (tmp_path / 'file.py').symlink_to('src/a.py')
    (tmp_path / 'dangling.py').symlink_to('src/b.py')
    assert (await backend.glob('**')).paths == ('/file.py', '/src/a.py')
    assert dict((await backend.grep('canary')).counts) == {'/file.py': 1, '/src/a.py': 1}


async def test_grep_can_search_a_single_file(backend: LocalBackend) -> None:
    await backend.write_bytes('/.hidden', b'x\ncanary\n')
    found = await backend.grep('canary', '/.hidden', limit=1)
    assert [(match.line_number, match.line) for match in found.matches] == [(2, 'canary')]


async def test_search_refuses_bad_patterns_and_paths(backend: LocalBackend) -> None:
    await backend.write_bytes('/f', b'')
    with pytest.raises(InvalidPatternError):
        await backend.glob('[')
    with pytest.raises(InvalidPatternError):
        await backend.grep('(')
    for search in (backend.glob, backend.grep):
        with pytest.raises(FileNotFoundError, match='/no'):
            await search('x', '/no')
    with pytest.raises(NotADirectoryError, match='/f'):
        await backend.glob('*', '/f')


async def test_link_to_a_file_too_large_to_search_is_reported(backend: LocalBackend, tmp_path: Path) -> None:
    with (tmp_path / 'big').open('wb') as file:
        file.truncate(70_000_000)
    (tmp_path / 'link').symlink_to('big')
    problems = (await backend.grep('x')).problems
    assert [problem.path for problem in problems] == ['/big', '/link']
    assert all('70,000,000 bytes' in problem.reason for problem in problems)


async def test_unreadable_directory_or_file_does_not_hide_others(unprivileged: Path) -> None:
    for name in ('a', 'closed', 'z'):
        (unprivileged / name).mkdir()
        (unprivileged / name / 'f').write_text('canary')
    (unprivileged / 'closed').chmod(0)
    (unprivileged / 'z' / 'closed').write_text('canary')
    (unprivileged / 'z' / 'closed').chmod(0)
    backend = LocalBackend(unprivileged)
    found = await backend.grep('canary')
    listed = await backend.glob('**/f')
    assert (tuple(found.counts), listed.paths) == (('/a/f', '/z/f'), ('/a/f', '/z/f'))
    assert [problem.path for problem in found.problems] == ['/closed', '/z/closed']
    assert [problem.path for problem in listed.problems] == ['/closed']


@pytest.mark.parametrize('closed', ['d', 'd/f'])
async def test_snapshot_fails_at_an_unreadable_path_and_names_it(unprivileged: Path, closed: str) -> None:
    (unprivileged / 'd').mkdir()
    (unprivileged / 'd' / 'f').touch()
    (unprivileged / closed).chmod(0)
    with pytest.raises(PermissionError) as caught:
        await LocalBackend(unprivileged).snapshot()
    assert caught.value.filename == f'/{closed}'


# Descriptors


def test_directories_are_opened_relative_to_the_last_one_or_the_root(tmp_path: Path) -> None:
    deep_directory(tmp_path, 'd', 40)
    (tmp_path / 'd' / 'e').mkdir()
    before = open_descriptors()
    with ConfinedRoot(path=str(tmp_path)).open() as root:
        directories = Directories(root)
        for parts in (('d',) * 40, ('d',) * 39, ('d',) * 40, ('d', 'e'), (), ('d', 'd')):
            expected = (tmp_path / '/'.join(parts)).stat().st_ino
            assert os.fstat(directories.open(parts)).st_ino == expected
        with pytest.raises(FileNotFoundError):
            directories.open(('d',) * 40 + ('no',))
        directories.close()
    assert open_descriptors() == before


def open_descriptors() -> int:
    gc.collect()  # garbage of other tests may hold descriptors
    return len(os.listdir('/proc/self/fd' if os.path.isdir('/proc/self/fd') else '/dev/fd'))


@pytest.mark.slow
async def test_operations_leave_no_descriptors_open(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.write_bytes('/d/f', b'data')
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'out').symlink_to('/etc')
    (tmp_path / 'loop').symlink_to('loop')
    (tmp_path / 'link').symlink_to('d/../d/f')
    operations: list[Callable[[str], Awaitable[object]]] = [
        backend.read_bytes,
        backend.stat,
        backend.list_dir,
        backend.realpath,
        backend.make_dir,
        lambda path: backend.write_bytes(path, b'data'),
        lambda path: backend.compare_and_swap(path, b'', expected=None),
        lambda path: backend.glob('**', path),
        lambda path: backend.grep('data', path),
    ]
    before = open_descriptors()
    failures = 0
    for path in ('/d/f', '/d', '/pipe', '/out', '/out/passwd', '/loop', '/loop/f', '/d/f/x', '/link', '/no') * 3:
        for operation in operations:
            try:
                await operation(path)
            except (OSError, FileChangedError):
                failures += 1
        await backend.snapshot()
    assert failures > 100
    assert open_descriptors() == before
