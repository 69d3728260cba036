"""`LocalBackend`: what its operations promise on real files, and how they fail."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from pydantic_deep_backends.errors import (
    BackendUnavailableError,
    FileChangedError,
    InvalidPathError,
    InvalidPatternError,
    ScanLimitError,
)
from pydantic_deep_backends.files._confined_root import ConfinedRoot, Location, link_found
from pydantic_deep_backends.files._directories import Directories, stat_location
from pydantic_deep_backends.files._operations import replace_file, writable_mode
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
from pydantic_deep_backends.snapshots import Tree, digest_of

pytestmark = pytest.mark.anyio

NOBODY = 65534


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path)


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """Give up the rights of root, to whom no file is unreadable; a directory that is our own then."""
    directory = Path(tempfile.mkdtemp())
    if os.geteuid() != 0:
        yield directory
    else:
        os.chown(directory, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield directory
        finally:
            os.seteuid(0)
    for path in directory.rglob('*'):
        path.chmod(0o700)
    shutil.rmtree(directory)


@contextmanager
def umask(mask: int) -> Generator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def leftovers(root: Path) -> list[str]:
    return [name for name in os.listdir(root) if name.endswith('.tmp')]


# The directory itself


def test_it_offers_files_search_swaps_and_snapshots_but_no_commands(backend: LocalBackend) -> None:
    assert isinstance(backend, BackendProtocol)
    assert isinstance(backend, SupportsSearch)
    assert isinstance(backend, SupportsCompareAndSwap)
    assert isinstance(backend, SupportsSnapshots)
    assert not isinstance(backend, SupportsCommands)


def test_repr_shows_the_directory_as_it_was_given(tmp_path: Path) -> None:
    assert repr(LocalBackend(tmp_path / 'a')) == f'LocalBackend({str(tmp_path / "a")!r})'


def test_backends_of_one_directory_have_equal_refs_whatever_led_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / 'real').mkdir()
    (tmp_path / 'link').symlink_to('real')
    monkeypatch.chdir(tmp_path)
    expected = BackendRef(provider='local', id=str((tmp_path / 'real').resolve()))
    for root in ('real', './link', tmp_path / 'real', tmp_path / 'link' / '..' / 'link'):
        assert LocalBackend(root).ref == expected


async def test_a_relative_root_stays_where_it_was_when_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'root').mkdir()
    monkeypatch.chdir(tmp_path)
    backend = LocalBackend('root')
    monkeypatch.chdir('/')
    await backend.write_bytes('/f', b'')
    assert (tmp_path / 'root' / 'f').exists()


async def test_a_root_that_is_a_link_is_kept_by_where_it_led_at_first(tmp_path: Path) -> None:
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
async def test_a_root_that_is_no_directory_is_unavailable_and_not_created(tmp_path: Path, names: list[str]) -> None:
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


async def test_a_root_that_is_removed_is_unavailable_until_it_is_made_again(tmp_path: Path) -> None:
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


async def test_a_root_that_is_made_later_is_found(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / 'root')
    with pytest.raises(BackendUnavailableError):
        await backend.working_dir()
    (tmp_path / 'root').mkdir()
    assert await backend.working_dir() == '/'


async def test_a_root_that_may_not_be_opened_says_which(unprivileged: Path) -> None:
    (unprivileged / 'root').mkdir(mode=0)
    with pytest.raises(PermissionError, match=str(unprivileged / 'root')):
        await LocalBackend(unprivileged / 'root').working_dir()


@pytest.mark.parametrize('action', [stat_location, str], ids=['missing', 'empty'])
def test_a_root_that_is_removed_during_an_operation_is_unavailable(
    tmp_path: Path, action: Callable[[Location], object]
) -> None:
    """Both where the operation finds nothing and where it sees an empty directory."""
    (tmp_path / 'root').mkdir()

    def visit() -> None:
        with ConfinedRoot(path=str(tmp_path / 'root')).open() as root:
            (tmp_path / 'root').rmdir()
            root.visit(('f',), action)

    with pytest.raises(BackendUnavailableError, match='was removed during'):
        visit()


def test_a_link_that_is_gone_when_it_is_to_be_followed_is_not_found(tmp_path: Path) -> None:
    def meet_link(place: Location) -> None:
        raise link_found()

    with ConfinedRoot(path=str(tmp_path)).open() as root, pytest.raises(FileNotFoundError):
        root.visit(('f',), meet_link)


def test_a_link_that_is_a_file_when_it_is_to_be_followed_is_met_again(tmp_path: Path) -> None:
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


async def test_what_is_written_is_read_whatever_its_size(backend: LocalBackend) -> None:
    for size in (0, 1, 65_535, 65_536, 65_537, 400_001):
        data = os.urandom(size)
        await backend.write_bytes('/a/b', data)
        assert await backend.read_bytes('/a/b') == data
        assert (await backend.stat('/a//./b')).size == size


async def test_errors_name_the_path_that_was_asked_for(backend: LocalBackend) -> None:
    await backend.write_bytes('/d/f', b'')
    with pytest.raises(FileNotFoundError) as missing:
        await backend.read_bytes('/d/no')
    with pytest.raises(IsADirectoryError) as directory:
        await backend.read_bytes('/d')
    with pytest.raises(NotADirectoryError) as file:
        await backend.list_dir('/d/f')
    assert [error.value.filename for error in (missing, directory, file)] == ['/d/no', '/d', '/d/f']


async def test_entries_are_sorted_and_temporary_files_are_not_among_them(backend: LocalBackend, tmp_path: Path) -> None:
    for name in ('b', 'a', 'C', '.hidden', f'.pydantic-deep-{"0" * 32}.tmp', '.pydantic-deep-1.tmp'):
        (tmp_path / name).write_text('canary')
    shown = ['.hidden', '.pydantic-deep-1.tmp', 'C', 'a', 'b']
    assert [entry.name for entry in await backend.list_dir('/')] == shown
    assert [match.path for match in (await backend.grep('canary')).matches] == ['/C', '/a', '/b']
    assert list(await backend.snapshot()) == [f'/{name}' for name in shown]


async def test_names_that_cannot_be_asked_for_are_listed_and_go_with_their_directory(
    backend: LocalBackend, tmp_path: Path
) -> None:
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


# Writing


async def test_a_new_file_has_the_mode_that_the_umask_leaves(backend: LocalBackend, tmp_path: Path) -> None:
    for mask in (0o022, 0o077, 0o002):
        with umask(mask):
            await backend.write_bytes(f'/{mask}', b'')
        assert mode_of(tmp_path / str(mask)) == 0o666 & ~mask


@pytest.mark.parametrize('mode', [0o755, 0o600, 0o640, 0o4711])
async def test_a_write_keeps_the_mode(backend: LocalBackend, tmp_path: Path, mode: int) -> None:
    (tmp_path / 'f').touch()
    (tmp_path / 'f').chmod(mode)
    await backend.write_bytes('/f', b'new')
    await backend.compare_and_swap('/f', b'newer', expected=digest_of(b'new'))
    assert mode_of(tmp_path / 'f') == mode


async def test_a_write_goes_through_a_link_to_its_target(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir()
    (tmp_path / 'd' / 'f').write_text('old')
    (tmp_path / 'link').symlink_to('d/f')
    await backend.write_bytes('/link', b'new')
    assert (tmp_path / 'link').is_symlink()
    assert (tmp_path / 'd' / 'f').read_bytes() == b'new'


async def test_a_write_makes_parents_but_not_out_of_files(backend: LocalBackend) -> None:
    await backend.write_bytes('/a/b/c', b'')
    with pytest.raises(NotADirectoryError):
        await backend.write_bytes('/a/b/c/d', b'')
    with pytest.raises(IsADirectoryError):
        await backend.write_bytes('/a/b', b'')


async def test_a_name_of_the_longest_length_can_be_written_twice(backend: LocalBackend) -> None:
    path = '/' + 'é' * 127
    await backend.write_bytes(path, b'1')
    await backend.write_bytes(path, b'2')
    assert await backend.read_bytes(path) == b'2'


async def test_a_program_that_runs_can_be_replaced(backend: LocalBackend, tmp_path: Path) -> None:
    program = shutil.copy(shutil.which('sleep') or '', tmp_path / 'program')
    async with await anyio.open_process([program, '1000']) as process:
        with pytest.raises(OSError, match='busy'):
            os.open(program, os.O_WRONLY)
        await backend.write_bytes('/program', b'new')
        process.kill()
    assert (tmp_path / 'program').read_bytes() == b'new'


async def test_a_file_that_may_not_be_written_is_not_replaced_either(unprivileged: Path) -> None:
    backend = LocalBackend(unprivileged)
    (unprivileged / 'f').write_text('old')
    (unprivileged / 'f').chmod(0o400)
    with pytest.raises(PermissionError, match='/f'):
        await backend.write_bytes('/f', b'new')
    assert (unprivileged / 'f').read_text() == 'old'
    assert leftovers(unprivileged) == []


async def test_a_directory_that_may_not_be_written_names_the_path(unprivileged: Path) -> None:
    (unprivileged / 'd').mkdir(mode=0o500)
    with pytest.raises(PermissionError) as caught:
        await LocalBackend(unprivileged).write_bytes('/d/f', b'')
    assert caught.value.filename == '/d/f'


async def test_what_may_not_be_patched_is_named(unprivileged: Path) -> None:
    backend = LocalBackend(unprivileged)
    await backend.write_bytes('/d/f', b'old')
    old = await backend.snapshot()
    await backend.write_bytes('/d/f', b'new')
    (unprivileged / 'd').chmod(0o500)
    with pytest.raises(PermissionError) as caught:
        await backend.patch(old, ['/d/f'], {digest_of(b'old'): b'old'})
    assert caught.value.filename == '/d'
    (unprivileged / 'd').chmod(0)
    with pytest.raises(PermissionError) as caught:
        await backend.occupants(['/d/f'])
    assert caught.value.filename == '/d/f'


def test_a_write_that_fails_at_its_end_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir()
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            replace_file(directory, 'd', b'x', mode=None)
    finally:
        os.close(directory)
    assert os.listdir(tmp_path) == ['d']


def test_a_write_that_fails_in_the_middle_leaves_no_temporary_file(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        with pytest.raises(OSError, match='File too large'):
            replace_file(directory, 'f', b'x' * 10_000, mode=None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        os.close(directory)
    assert os.listdir(tmp_path) == []


def test_a_file_that_cannot_be_opened_to_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / 'f').touch()
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        assert writable_mode(directory, 'f') is not None
        with no_descriptors_left(), pytest.raises(OSError, match='Too many open files'):
            writable_mode(directory, 'f')
    finally:
        os.close(directory)


@contextmanager
def no_descriptors_left() -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


WRITE_OVER_THE_LIMIT = """
import resource, sys
import anyio
from pydantic_deep_backends.local import LocalBackend

sys.dont_write_bytecode = True  # else what is imported below the limit is cut off, for all who come after
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
try:
    anyio.run(LocalBackend(sys.argv[1]).write_bytes, '/f', b'x' * 1_000_000)
except OSError as error:
    print(error)
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
"""


def test_a_write_that_runs_out_of_space_leaves_the_old_file_whole(tmp_path: Path) -> None:
    (tmp_path / 'f').write_text('old')
    done = subprocess.run(
        [sys.executable, '-c', WRITE_OVER_THE_LIMIT, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"[Errno {errno.EFBIG}] File too large: '/f'\n"
    assert (os.listdir(tmp_path), (tmp_path / 'f').read_text()) == (['f'], 'old')


# Directories


async def test_make_dir_is_idempotent_and_refuses_files(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / 'real').mkdir()
    (tmp_path / 'link').symlink_to('real')
    for path in ('/', '/a/b', '/a/b', '/link', '/link/c'):
        await backend.make_dir(path)
    assert (tmp_path / 'real' / 'c').is_dir()
    await backend.write_bytes('/f', b'')
    with pytest.raises(FileExistsError):
        await backend.make_dir('/f')
    with pytest.raises(NotADirectoryError):
        await backend.make_dir('/f/d')


async def test_remove_takes_a_file_or_a_tree_and_never_the_root(backend: LocalBackend, tmp_path: Path) -> None:
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


def deep_directory(root: Path, name: str, levels: int) -> None:
    """Make directories below each other, deeper than any path can say."""
    directory = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=directory)
        below = os.open(name, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(os.open('f', os.O_CREAT | os.O_WRONLY, dir_fd=directory))
    os.write(fd := os.open('f', os.O_WRONLY, dir_fd=directory), b'canary')
    os.close(fd)
    os.close(directory)


@pytest.mark.parametrize('levels', [31, 32, 33, 34, 200])
async def test_a_tree_of_any_depth_can_be_removed(backend: LocalBackend, tmp_path: Path, levels: int) -> None:
    deep_directory(tmp_path, 'd', levels)
    await backend.remove('/d')
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('levels', [31, 32, 33, 34, 100])
async def test_a_deep_tree_is_searched_and_captured(backend: LocalBackend, tmp_path: Path, levels: int) -> None:
    deep_directory(tmp_path, 'd', levels)
    deep_directory(tmp_path, 'e', 2)
    paths = (f'/{"d/" * levels}f', '/e/e/f')
    assert (await backend.glob('**/f')).paths == paths
    assert tuple((await backend.grep('canary')).counts) == paths
    assert tuple(await backend.snapshot()) == paths


async def test_directories_too_deep_for_a_path_are_reported_and_not_left_out(
    backend: LocalBackend, tmp_path: Path
) -> None:
    deep_directory(tmp_path, 'd' * 250, 20)
    (tmp_path / 'f').write_text('canary')
    found = await backend.grep('canary')
    assert (tuple(found.counts), len(found.problems)) == (('/f',), 1)
    with pytest.raises(ScanLimitError, match='4,096'):
        await backend.snapshot()
    await backend.remove('/' + 'd' * 250)
    assert tuple(await backend.snapshot()) == ('/f',)


# Locks


async def test_a_change_waits_while_somebody_else_holds_the_lock(backend: LocalBackend, tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.write_bytes, '/f', b'new')
            assert await backend.list_dir('/') == []
            fcntl.flock(directory, fcntl.LOCK_UN)
    finally:
        os.close(directory)
    assert await backend.read_bytes('/f') == b'new'


async def test_waiting_for_a_lock_can_be_cancelled_and_then_nothing_is_written(
    backend: LocalBackend, tmp_path: Path
) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.write_bytes, '/f', b'new')
            await backend.list_dir('/')
            tasks.cancel_scope.cancel()
    finally:
        os.close(directory)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('change', ['write_bytes', 'compare_and_swap', 'remove', 'restore'])
async def test_a_lock_that_is_never_given_back_is_a_timeout(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr('pydantic_deep_backends.local._directory.LOCK_WAITS_SECONDS', (0.0, 0.0))
    (tmp_path / 'f').write_text('old')
    changes = {
        'write_bytes': lambda: backend.write_bytes('/f', b'new'),
        'compare_and_swap': lambda: backend.compare_and_swap('/f', b'new', expected=digest_of(b'old')),
        'remove': lambda: backend.remove('/f'),
        'restore': lambda: backend.restore(Tree()),
    }
    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    try:
        with pytest.raises(TimeoutError, match=r"stays locked by somebody else. Try again later: '/f'"):
            await changes[change]()
    finally:
        os.close(directory)
    assert (tmp_path / 'f').read_text() == 'old'


async def test_a_write_that_has_begun_ends_although_it_is_cancelled(backend: LocalBackend, tmp_path: Path) -> None:
    for number in range(20):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await backend.write_bytes('/f', b'%d' % number)
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(backend.write_bytes, f'/{number}', b'whole')
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert leftovers(tmp_path) == []
    assert {(tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} <= {b'whole'}


# Compare and swap


async def test_swap_writes_only_over_what_was_read(backend: LocalBackend) -> None:
    await backend.compare_and_swap('/d/f', b'1', expected=None)
    await backend.compare_and_swap('/d/f', b'2', expected=digest_of(b'1'))
    with pytest.raises(FileChangedError) as other:
        await backend.compare_and_swap('/d/f', b'3', expected=digest_of(b'1'))
    with pytest.raises(FileChangedError) as there:
        await backend.compare_and_swap('/d/f', b'3', expected=None)
    assert (other.value.expected, other.value.actual) == (digest_of(b'1'), digest_of(b'2'))
    assert (there.value.expected, there.value.actual) == (None, digest_of(b'2'))
    assert await backend.read_bytes('/d/f') == b'2'


async def test_swap_of_a_file_that_is_gone_makes_nothing(backend: LocalBackend, tmp_path: Path) -> None:
    for path in ('/f', '/no/f'):
        with pytest.raises(FileChangedError) as caught:
            await backend.compare_and_swap(path, b'', expected=digest_of(b''))
        assert (caught.value.path, caught.value.actual) == (path, None)
    assert os.listdir(tmp_path) == []


async def test_swap_of_a_directory_is_refused(backend: LocalBackend) -> None:
    with pytest.raises(IsADirectoryError):
        await backend.compare_and_swap('/', b'', expected=None)


# Search


async def test_search_begins_at_any_directory_and_through_links_to_it(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.write_bytes('/src/a.py', b'canary\n')
    await backend.write_bytes('/src/sub/b.py', b'a\ncanary\n')
    (tmp_path / 'link').symlink_to('src')
    assert (await backend.glob('**/*.py', '/link')).paths == ('/link/a.py', '/link/sub/b.py')
    found = await backend.grep('canary', '/link', glob='sub/*')
    assert [(match.path, match.line_number) for match in found.matches] == [('/link/sub/b.py', 2)]


async def test_links_to_files_inside_are_searched_and_links_to_directories_not_entered(
    backend: LocalBackend, tmp_path: Path
) -> None:
    await backend.write_bytes('/src/a.py', b'canary\n')
    (tmp_path / 'dir').symlink_to('src')
    (tmp_path / 'file.py').symlink_to('src/a.py')
    (tmp_path / 'dangling.py').symlink_to('src/b.py')
    assert (await backend.glob('**')).paths == ('/file.py', '/src/a.py')
    assert dict((await backend.grep('canary')).counts) == {'/file.py': 1, '/src/a.py': 1}


async def test_grep_of_one_file_searches_it(backend: LocalBackend) -> None:
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


async def test_a_link_to_a_file_too_large_to_search_is_reported(backend: LocalBackend, tmp_path: Path) -> None:
    with (tmp_path / 'big').open('wb') as file:
        file.truncate(70_000_000)
    (tmp_path / 'link').symlink_to('big')
    problems = (await backend.grep('x')).problems
    assert [problem.path for problem in problems] == ['/big', '/link']
    assert all('70,000,000 bytes' in problem.reason for problem in problems)


async def test_one_unreadable_directory_or_file_hides_nothing_else(unprivileged: Path) -> None:
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
async def test_a_snapshot_that_cannot_read_everything_fails_and_says_where(unprivileged: Path, closed: str) -> None:
    (unprivileged / 'd').mkdir()
    (unprivileged / 'd' / 'f').touch()
    (unprivileged / closed).chmod(0)
    with pytest.raises(PermissionError) as caught:
        await LocalBackend(unprivileged).snapshot()
    assert caught.value.filename == f'/{closed}'


# Descriptors


def test_directories_are_opened_from_the_last_one_or_from_the_root(tmp_path: Path) -> None:
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
    gc.collect()  # other tests of the worker may have left garbage that has some
    return len(os.listdir('/proc/self/fd' if os.path.isdir('/proc/self/fd') else '/dev/fd'))


@pytest.mark.slow
async def test_no_operation_leaves_a_descriptor_open(backend: LocalBackend, tmp_path: Path) -> None:
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
