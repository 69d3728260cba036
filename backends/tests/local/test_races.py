"""`LocalBackend` under attack and under load: links swapped in during operations, and many writers of one file.

`SOAK_ROUNDS` (300 unless set) is the number of rounds of each operation against each attack.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from pydantic_deep_backends.errors import BackendError, FileChangedError
from pydantic_deep_backends.local import LocalBackend
from pydantic_deep_backends.snapshots import FileVersion, Tree, digest_of

pytestmark = [pytest.mark.anyio, pytest.mark.soak, pytest.mark.slow]

ROUNDS = int(os.environ.get('SOAK_ROUNDS', '300'))

CANARY = b'canary that nobody inside may read\n'
INSIDE = b'inside\n'

WRITERS = 8
ADDITIONS = 50


class Attack(threading.Thread):
    """Swaps a name inside the root between its own contents and a link outside, until stopped."""

    def __init__(self, victim: Path, target: Path, make: Callable[[Path], object]) -> None:
        super().__init__()
        self.swaps = 0
        self._victim = victim
        self._target = target
        self._make = make
        self._stopped = threading.Event()

    def run(self) -> None:
        victim = str(self._victim)
        for number in count():
            if self._stopped.is_set():
                return
            hidden = f'{victim}-{number}'
            with suppress(OSError):
                os.rename(victim, hidden)
            with suppress(OSError):
                os.symlink(self._target, victim)
                self.swaps += 1
            with suppress(OSError):
                os.unlink(victim)
            try:
                os.rename(hidden, victim)
            except OSError:  # it was removed, or an operation created a new one: start again
                with suppress(OSError):
                    self._make(self._victim)

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def make_directory(path: Path) -> None:
    path.mkdir()
    (path / 'f').write_bytes(INSIDE)


def make_file(path: Path) -> None:
    path.write_bytes(INSIDE)


@contextmanager
def attacked(victim: Path, target: Path, make: Callable[[Path], object]) -> Generator[Attack]:
    make(victim)
    attack = Attack(victim, target, make)
    attack.start()
    try:
        yield attack
    finally:
        attack.stop()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    outside = tmp_path / 'outside'
    (outside / 'below').mkdir(parents=True)
    (outside / 'f').write_bytes(CANARY)
    (outside / 'below' / 'g').write_bytes(CANARY)
    return outside


def state_of(directory: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """State that must not change: names, times, modes and contents."""
    return {
        str(path): (status.st_mtime_ns, status.st_ino, status.st_mode, path.read_bytes() if path.is_file() else b'')
        for path in (directory, *sorted(directory.rglob('*')))
        for status in [path.stat()]
    }


async def _grep(backend: LocalBackend, path: str) -> bool:
    return bool((await backend.grep('canary', '/')).matches)


async def _glob(backend: LocalBackend, path: str) -> bool:
    return any(found.endswith('/g') for found in (await backend.glob('**', '/')).paths)


async def _read(backend: LocalBackend, path: str) -> bool:
    return CANARY in await backend.read_bytes(path)


async def _stat(backend: LocalBackend, path: str) -> bool:
    return (await backend.stat(path)).size == len(CANARY)


async def _list(backend: LocalBackend, path: str) -> bool:
    return 'below' in [entry.name for entry in await backend.list_dir(path.rpartition('/')[0] or '/')]


async def _write(backend: LocalBackend, path: str) -> bool:
    await backend.write_bytes(path, INSIDE)
    return False


async def _swap(backend: LocalBackend, path: str) -> bool:
    await backend.compare_and_swap(path, INSIDE, expected=digest_of(INSIDE))
    return False


async def _make_dir(backend: LocalBackend, path: str) -> bool:
    await backend.make_dir(f'{path.rpartition("/")[0]}/new/below')
    return False


async def _remove(backend: LocalBackend, path: str) -> bool:
    with suppress(OSError, BackendError):
        await backend.write_bytes(path, INSIDE)
    await backend.remove(path)
    return False


async def _remove_tree(backend: LocalBackend, path: str) -> bool:
    with suppress(OSError, BackendError):
        await backend.write_bytes(path, INSIDE)
    await backend.remove('/victim')
    return False


async def _snapshot(backend: LocalBackend, path: str) -> bool:
    return digest_of(CANARY) in {version.digest for _, version in (await backend.snapshot()).items()}


async def _restore(backend: LocalBackend, path: str) -> bool:
    async def read_blob(digest: str) -> bytes:
        return INSIDE

    await backend.restore(Tree.of({path: FileVersion(digest=digest_of(INSIDE), size=len(INSIDE))}), read_blob)
    return False


OPERATIONS: dict[str, Callable[[LocalBackend, str], Awaitable[bool]]] = {
    'read_bytes': _read,
    'write_bytes': _write,
    'compare_and_swap': _swap,
    'stat': _stat,
    'list_dir': _list,
    'make_dir': _make_dir,
    'remove': _remove,
    'remove_tree': _remove_tree,
    'glob': _glob,
    'grep': _grep,
    'snapshot': _snapshot,
    'restore': _restore,
}
"""Each returns whether it saw anything outside of the root."""


@pytest.mark.parametrize('operation', OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize('kind', ['directory', 'file'])
async def test_no_operation_escapes_through_a_concurrently_swapped_link(
    tmp_path: Path, outside: Path, operation: Callable[[LocalBackend, str], Awaitable[bool]], kind: str
) -> None:
    root = tmp_path / 'root'
    root.mkdir()
    backend = LocalBackend(root)
    before = state_of(outside)
    target, path, make = (
        (outside, '/victim/f', make_directory) if kind == 'directory' else (outside / 'f', '/victim', make_file)
    )
    escapes = refusals = 0
    with attacked(root / 'victim', target, make) as attack:
        for _ in range(ROUNDS):
            try:
                escapes += await operation(backend, path)
            except (OSError, BackendError):
                refusals += 1
        while not attack.swaps:
            await anyio.lowlevel.checkpoint()
    print(f'{kind}: {ROUNDS} rounds, {attack.swaps} swaps, {refusals} refusals, {escapes} escapes')
    assert escapes == 0
    assert state_of(outside) == before
    assert not [name for name in os.listdir(root) if name.endswith('.tmp')]


# Writers of one file


async def add_lines(backend: LocalBackend, path: str, name: str) -> int:
    """Append lines by compare-and-swap, and return the number of refused swaps."""
    refused = 0
    for number in range(ADDITIONS):
        while True:
            data = await backend.read_bytes(path)
            try:
                added = data + f'{name} {number}\n'.encode()
                await backend.compare_and_swap(path, added, expected=digest_of(data))
                break
            except FileChangedError:
                refused += 1
    return refused


ADD_LINES = f"""
import sys
import anyio
from pydantic_deep_backends.errors import FileChangedError
from pydantic_deep_backends.local import LocalBackend
from pydantic_deep_backends.snapshots import digest_of

async def main(root, name):
    backend = LocalBackend(root)
    for number in range({ADDITIONS}):
        while True:
            data = await backend.read_bytes('/a.txt')
            try:
                added = data + f'{{name}} {{number}}\\n'.encode()
                await backend.compare_and_swap('/a.txt', added, expected=digest_of(data))
                break
            except FileChangedError:
                pass

anyio.run(main, *sys.argv[1:])
"""


async def test_eight_writers_through_different_spellings_lose_no_line(tmp_path: Path) -> None:
    root = tmp_path / 'root'
    (root / 'd').mkdir(parents=True)
    (root / 'a.txt').touch()
    (tmp_path / 'alias').symlink_to(root)
    (root / 'dir').symlink_to('d/..')
    (root / 'file').symlink_to('a.txt')
    (root / 'd' / 'absolute').symlink_to(root / 'a.txt')
    backend = LocalBackend(root)
    spellings = {
        'plain': (backend, '/a.txt'),
        'dots': (backend, '/././/a.txt'),
        'directory link': (backend, '/dir/a.txt'),
        'file link': (backend, '/file'),
        'absolute link': (backend, '/dir/dir/d/absolute'),
        'another instance': (LocalBackend(root), '/a.txt'),
        'root by a link': (LocalBackend(tmp_path / 'alias'), '/dir/file'),
    }
    assert len(spellings) + 1 == WRITERS
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.run_process, [sys.executable, '-c', ADD_LINES, str(root), 'process'])
        for name, (writer, path) in spellings.items():
            tasks.start_soon(add_lines, writer, path, name)
    expected = sorted(f'{name} {number}' for name in (*spellings, 'process') for number in range(ADDITIONS))
    assert sorted((root / 'a.txt').read_text().splitlines()) == expected


async def test_readers_see_either_old_or_new_contents(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    await backend.write_bytes('/f', b'0' * 100_000)
    torn: list[int] = []

    async def read_all() -> None:
        for _ in range(ROUNDS):
            data = await backend.read_bytes('/f')
            if len(data) != 100_000 or data.count(data[:1]) != 100_000:
                torn.append(len(data))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_all)
        for number in range(20):
            await backend.write_bytes('/f', b'%d' % (number % 10) * 100_000)
    assert torn == []


async def test_tree_can_be_removed_while_others_write_into_it(tmp_path: Path) -> None:
    """Each removal succeeds or raises because of a concurrent write. A later removal leaves nothing."""
    backend = LocalBackend(tmp_path)
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(_try, backend.write_bytes(f'/d/{number}', b''))
            tasks.start_soon(_try, backend.remove('/d'))
    await _try(backend.remove('/d'))
    assert os.listdir(tmp_path) == []


async def _try(awaitable: Awaitable[None]) -> None:
    with suppress(OSError):
        await awaitable
