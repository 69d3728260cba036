"""Operations in the last directory of a confined path: writes, removals and locks."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from pydantic_deep_backends.errors import FileChangedError
from pydantic_deep_backends.files._operations import replace_file, writable_mode
from pydantic_deep_backends.local import LocalBackend
from pydantic_deep_backends.snapshots import Tree, digest_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path)


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


async def test_new_file_mode_respects_the_umask(backend: LocalBackend, tmp_path: Path) -> None:
    for mask in (0o022, 0o077, 0o002):
        with umask(mask):
            await backend.write_bytes(f'/{mask}', b'')
        assert mode_of(tmp_path / str(mask)) == 0o666 & ~mask


@pytest.mark.parametrize('mode', [0o755, 0o600, 0o640, 0o4711])
async def test_write_preserves_the_mode(backend: LocalBackend, tmp_path: Path, mode: int) -> None:
    (tmp_path / 'f').touch()
    (tmp_path / 'f').chmod(mode)
    await backend.write_bytes('/f', b'new')
    await backend.compare_and_swap('/f', b'newer', expected=digest_of(b'new'))
    assert mode_of(tmp_path / 'f') == mode


async def test_write_through_a_link_changes_its_target(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir()
    (tmp_path / 'd' / 'f').write_text('old')
    (tmp_path / 'link').symlink_to('d/f')
    await backend.write_bytes('/link', b'new')
    assert (tmp_path / 'link').is_symlink()
    assert (tmp_path / 'd' / 'f').read_bytes() == b'new'


async def test_write_creates_parents_but_not_below_files(backend: LocalBackend) -> None:
    await backend.write_bytes('/a/b/c', b'')
    with pytest.raises(NotADirectoryError):
        await backend.write_bytes('/a/b/c/d', b'')
    with pytest.raises(IsADirectoryError):
        await backend.write_bytes('/a/b', b'')


async def test_longest_file_name_can_be_written_twice(backend: LocalBackend) -> None:
    path = '/' + 'é' * 127
    await backend.write_bytes(path, b'1')
    await backend.write_bytes(path, b'2')
    assert await backend.read_bytes(path) == b'2'


async def test_running_program_can_be_replaced(backend: LocalBackend, tmp_path: Path) -> None:
    program = shutil.copy(shutil.which('sleep') or '', tmp_path / 'program')
    async with await anyio.open_process([program, '1000']) as process:
        with pytest.raises(OSError, match='busy'):
            os.open(program, os.O_WRONLY)
        await backend.write_bytes('/program', b'new')
        process.kill()
    assert (tmp_path / 'program').read_bytes() == b'new'


async def test_unwritable_file_is_not_replaced(unprivileged: Path) -> None:
    backend = LocalBackend(unprivileged)
    (unprivileged / 'f').write_text('old')
    (unprivileged / 'f').chmod(0o400)
    with pytest.raises(PermissionError, match='/f'):
        await backend.write_bytes('/f', b'new')
    assert (unprivileged / 'f').read_text() == 'old'
    assert leftovers(unprivileged) == []


async def test_unwritable_directory_error_names_the_path(unprivileged: Path) -> None:
    (unprivileged / 'd').mkdir(mode=0o500)
    with pytest.raises(PermissionError) as caught:
        await LocalBackend(unprivileged).write_bytes('/d/f', b'')
    assert caught.value.filename == '/d/f'


async def test_failed_patch_names_the_path(unprivileged: Path) -> None:
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


def test_write_failing_at_the_rename_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir()
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            replace_file(directory, 'd', b'x', mode=None)
    finally:
        os.close(directory)
    assert os.listdir(tmp_path) == ['d']


def test_write_failing_midway_leaves_no_temporary_file(tmp_path: Path) -> None:
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


def test_writable_mode_raises_if_the_file_cannot_be_opened(tmp_path: Path) -> None:
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


def test_write_without_space_preserves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / 'f').write_text('old')
    done = subprocess.run(
        [sys.executable, '-c', WRITE_OVER_THE_LIMIT, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"[Errno {errno.EFBIG}] File too large: '/f'\n"
    assert (os.listdir(tmp_path), (tmp_path / 'f').read_text()) == (['f'], 'old')


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


async def test_write_blocks_while_another_process_holds_the_lock(backend: LocalBackend, tmp_path: Path) -> None:
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


async def test_cancelled_lock_wait_writes_nothing(backend: LocalBackend, tmp_path: Path) -> None:
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
async def test_lock_that_is_never_released_times_out(
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
        with pytest.raises(TimeoutError, match=r"Another writer has locked its directory. Try again later: '/f'"):
            await changes[change]()
    finally:
        os.close(directory)
    assert (tmp_path / 'f').read_text() == 'old'


async def test_started_write_completes_despite_cancellation(backend: LocalBackend, tmp_path: Path) -> None:
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


async def test_swap_writes_only_over_the_expected_contents(backend: LocalBackend) -> None:
    await backend.compare_and_swap('/d/f', b'1', expected=None)
    await backend.compare_and_swap('/d/f', b'2', expected=digest_of(b'1'))
    with pytest.raises(FileChangedError) as other:
        await backend.compare_and_swap('/d/f', b'3', expected=digest_of(b'1'))
    with pytest.raises(FileChangedError) as there:
        await backend.compare_and_swap('/d/f', b'3', expected=None)
    assert (other.value.expected, other.value.actual) == (digest_of(b'1'), digest_of(b'2'))
    assert (there.value.expected, there.value.actual) == (None, digest_of(b'2'))
    assert await backend.read_bytes('/d/f') == b'2'


async def test_swap_of_a_missing_file_creates_nothing(backend: LocalBackend, tmp_path: Path) -> None:
    for path in ('/f', '/no/f'):
        with pytest.raises(FileChangedError) as caught:
            await backend.compare_and_swap(path, b'', expected=digest_of(b''))
        assert (caught.value.path, caught.value.actual) == (path, None)
    assert os.listdir(tmp_path) == []


async def test_swap_of_a_directory_is_refused(backend: LocalBackend) -> None:
    with pytest.raises(IsADirectoryError):
        await backend.compare_and_swap('/', b'', expected=None)
