"""Budgets of scans: entries, depth and time, for all parts of one call together."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path

import pytest

from pydantic_deep_backends import (
    CompositeBackend,
    LocalBackend,
    ReadOnlyBackend,
    SandboxBackend,
    ScanLimitError,
    StateBackend,
    SupportsProtection,
    Tree,
    _scan_budget,
)
from pydantic_deep_backends.files import _directories, _hard_links
from pydantic_deep_backends.local import _protected_scan
from pydantic_deep_backends.protocol import BackendProtocol, SupportsSnapshots
from pydantic_deep_backends.sandbox import _disk_usage
from pydantic_deep_backends.search import _walk
from pydantic_deep_backends.snapshots import FileVersion, digest_of
from pydantic_deep_backends.tracking import Captured, SupportsTracking

from .test_depth import Clock, Everything, do_not_sync

pytestmark = pytest.mark.anyio

FILES = {f'/d{n}/f': 'x' for n in range(4)}
"""Eight entries in a directory, four files in memory."""


def directory(root: Path) -> Path:
    for path, text in FILES.items():
        (root / path[1:]).parent.mkdir()
        (root / path[1:]).write_text(text)
    return root


def mounted(root: Path) -> CompositeBackend:
    """Return a composite of four directories with one file each. None reaches a limit by itself."""
    directory(root)
    return CompositeBackend(StateBackend(), {f'/d{n}': LocalBackend(root / f'd{n}') for n in range(4)})


def mounted_states(root: Path) -> CompositeBackend:
    return CompositeBackend(StateBackend(), {f'/d{n}': StateBackend({'/f': 'x'}) for n in range(4)})


MAKES: dict[str, Callable[[Path], BackendProtocol]] = {
    'local': lambda root: LocalBackend(directory(root)),
    'sandbox': lambda root: SandboxBackend(directory(root)),
    'state': lambda root: StateBackend(FILES),
    'composite': mounted,
    'composite in a composite': lambda root: CompositeBackend(StateBackend(), {'/m': mounted(root)}),
    'composite of states': mounted_states,
}


@pytest.fixture(params=MAKES)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> SupportsSnapshots:
    backend = MAKES[request.param](tmp_path)
    assert isinstance(backend, SupportsSnapshots)
    return backend


class Listed(StateBackend):
    """Files that are searched by listing and reading."""

    glob = None  # pyright: ignore[reportAssignmentType] - marks an unsupported member
    grep = None  # pyright: ignore[reportAssignmentType]


async def blob(digest: str) -> bytes:
    return b'x'


async def capture(backend: object) -> Captured:
    assert isinstance(backend, SupportsTracking)
    return await backend.track(Everything(), max_file_bytes=10).capture(Tree(), is_full=True)


def pass_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the clock beyond the time limit on each call."""
    monkeypatch.setattr(_scan_budget, 'monotonic', Clock(1e12))


async def test_too_many_files_raise_with_the_limit(made: SupportsSnapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    """One limit for the whole call, however many backends are mounted. Above it, nothing is returned."""
    backend = made
    monkeypatch.setattr(_scan_budget, 'MAX_SCAN_ENTRIES', 8)
    assert len(await backend.snapshot()) == len((await capture(backend)).tree) == len(FILES)
    monkeypatch.setattr(_scan_budget, 'MAX_SCAN_ENTRIES', 3)
    looks = [backend.snapshot, lambda: backend.changes(Tree()), lambda: backend.restore(Tree())]
    if isinstance(backend, StateBackend):  # it restores the given tree without a scan
        del looks[2:]
    for look in looks:
        with pytest.raises(ScanLimitError, match=r'has more than 3 files and directories, .* Use a smaller') as met:
            await look()
        assert (met.value.limit, met.value.maximum, met.value.path) == ('entries', 3, None)
    with pytest.raises(ScanLimitError, match=r'List unneeded files in a `.gitignore`'):
        await capture(backend)
    monkeypatch.undo()
    assert len(await backend.snapshot()) == len(FILES)  # a refused restore changed nothing


async def test_too_much_time_raises_with_the_limit(made: SupportsSnapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = made
    looks = [backend.snapshot, lambda: capture(backend), lambda: backend.restore(Tree())]
    if isinstance(backend, StateBackend):
        del looks[2:]
    for look in looks:
        pass_time(monkeypatch)
        with pytest.raises(ScanLimitError, match=r'took more than 600 seconds, the most for one call. ') as met:
            await look()
        assert (met.value.limit, met.value.maximum) == ('seconds', 600)
    monkeypatch.undo()
    assert len(await backend.snapshot()) == len(FILES)


@pytest.mark.parametrize('name', ['local', 'state', 'composite'])
async def test_restore_of_an_oversized_tree_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The files of the tree to restore count too, and so does the time to fetch them."""
    empty: dict[str, SupportsSnapshots] = {
        'local': LocalBackend(tmp_path),
        'state': StateBackend(),
        'composite': CompositeBackend(StateBackend(), {}),  # pyright: ignore[reportAssignmentType] - a member on the instance
    }
    tree = Tree.of({path: FileVersion(digest=digest_of(b'x'), size=1) for path in FILES})
    slow = False

    async def fetch(digest: str) -> bytes:
        if slow:
            pass_time(monkeypatch)
        return b'x'

    backend = empty[name]
    monkeypatch.setattr(_scan_budget, 'MAX_SCAN_ENTRIES', 3)
    with pytest.raises(ScanLimitError, match='more than 3 files'):
        await backend.restore(tree, fetch)
    monkeypatch.undo()
    slow = True
    with pytest.raises(ScanLimitError, match='more than 600 seconds'):
        await backend.restore(tree.set('/other', FileVersion(digest=digest_of(b'y'), size=1)), fetch)
    monkeypatch.undo()
    assert await backend.snapshot() == Tree()
    slow = False
    await backend.restore(tree, fetch)
    assert await backend.snapshot() == tree


def dig(root: Path, name: str, levels: int) -> int:
    """Make a chain of directories. Return the last one, open, with a file in it."""
    above = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=above)
        below = os.open(name, os.O_RDONLY, dir_fd=above)
        os.close(above)
        above = below
    make(above, 'f')
    return above


def make(above: int, name: str) -> None:
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=above))


@pytest.fixture
def deep(tmp_path: Path) -> Generator[Path]:
    """A directory that `rm` empties after the test."""
    try:
        yield tmp_path
    finally:
        subprocess.run(['rm', '-rf', *tmp_path.iterdir()], check=True)  # Python recurses too deep


@pytest.mark.parametrize(('name', 'deepest'), [('d' * 20, 194), ('n' * 200, 20)])
async def test_files_too_deep_for_a_path_raise(deep: Path, name: str, deepest: int) -> None:
    """The longest path, 4,096 bytes, limits the depth of a tree. Files below it raise an error instead of being
    omitted."""
    last = dig(deep, name, deepest)
    backend = LocalBackend(deep)
    mounting = CompositeBackend(StateBackend(), {'/up': backend})
    assert isinstance(mounting, SupportsSnapshots)
    tree = await backend.snapshot()
    assert [path.count('/') for path in tree] == [deepest + 1]
    os.mkdir('n' * 255, dir_fd=last)
    looks: list[tuple[Callable[[], Awaitable[object]], str]] = [
        (backend.snapshot, f'/{name[:9]}'),
        (lambda: backend.restore(tree), f'/{name[:9]}'),
        (mounting.snapshot, f'/up/{name[:9]}'),
    ]
    for look, start in looks:
        with pytest.raises(ScanLimitError, match=r'is longer than 4,096 bytes, .* Remove it, or move it up.') as met:
            await look()
        assert (met.value.limit, met.value.maximum) == ('depth', 4096)
        assert met.value.path is not None
        assert met.value.path.startswith(start)
    captured = await capture(backend)  # which reports omitted files
    assert [path.count('/') for path in captured.tree] == [deepest + 1]
    assert [file.reason for file in captured.omitted] == ['invalid path']
    os.rmdir('n' * 255, dir_fd=last)
    make(last, 'n' * 255)
    with pytest.raises(ScanLimitError, match='4,096 bytes'):
        await backend.snapshot()
    os.close(last)


async def test_protected_file_scan_limits_directories_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other files do not count: an ignored directory may contain millions. All mounts share one limit."""
    backend = LocalBackend(directory(tmp_path))
    (tmp_path / '.git' / 'hooks' / 'more').mkdir(parents=True)
    (tmp_path / '.git' / 'hooks' / 'pre-commit').write_text('')
    mounting = CompositeBackend(StateBackend(), {'/a': backend, '/b': backend})
    assert isinstance(mounting, SupportsProtection)
    monkeypatch.setattr(_scan_budget, 'MAX_SCAN_ENTRIES', 8)
    assert list(await backend.protected_files()) == ['/.git/hooks/pre-commit']
    with pytest.raises(ScanLimitError, match='more than 8 files'):
        await mounting.protected_files()
    monkeypatch.setattr(_scan_budget, 'MAX_SCAN_ENTRIES', 5)
    with pytest.raises(ScanLimitError, match='more than 5 files'):
        await backend.protected_files()
    pass_time(monkeypatch)
    with pytest.raises(ScanLimitError, match='600 seconds'):
        await backend.protected_files()


async def test_scans_stop_at_the_maximum_depth_and_report_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command can create directories deeper than any path. They exhaust no descriptors and hide nothing."""
    for module in (_protected_scan, _hard_links, _disk_usage):
        monkeypatch.setattr(module, 'MAX_DEPTH', 3)
    os.close(dig(tmp_path, 'd', 5))
    (tmp_path / '.vscode' / 'a' / 'b' / 'c').mkdir(parents=True)
    (tmp_path / '.vscode' / 'a' / 'b' / 'c' / 'd').write_text('')
    os.link(tmp_path / 'd/d/d/d/d/f', tmp_path / 'f')
    backend = LocalBackend(tmp_path)
    assert await backend.protected_files() == {
        '/d/d/d/d': 'too deep to be looked at',
        '/.vscode/a/b/c': 'too deep to be looked at',
    }
    with pytest.raises(PermissionError, match='has a name outside'):
        await backend.read_bytes('/f')
    assert _directories.MAX_DEPTH == 2048


async def test_names_of_a_hard_link_are_counted_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a hard link has too many names to count, the file is not read and an error reports the limit."""
    directory(tmp_path)
    os.link(tmp_path / 'd0/f', tmp_path / 'also')
    backend = LocalBackend(tmp_path)
    assert await backend.read_bytes('/also') == b'x'
    monkeypatch.setattr(_scan_budget, 'MAX_SCAN_ENTRIES', 3)
    with pytest.raises(PermissionError, match=r'may have a name outside. The directory has more than 3 files'):
        await backend.read_bytes('/also')
    found = await backend.grep('x', glob='also')
    assert ['more than 3 files' in problem.reason for problem in found.problems] == [True]


async def test_composite_restores_parts_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is scanned once. A part that cannot be patched is restored by its own `restore`."""
    monkeypatch.setattr(os, 'fsync', do_not_sync)
    scans: list[str] = []
    real_open = _directories.Directories.open

    def count(self: _directories.Directories, path: tuple[str, ...]) -> int:
        scans.append('/'.join(path))
        return real_open(self, path)

    class Restored(StateBackend):
        """Files that cannot be patched."""

        patch = None  # pyright: ignore[reportAssignmentType] - marks an unsupported member

    backend = CompositeBackend(LocalBackend(tmp_path), {'/state': Restored()})
    assert isinstance(backend, SupportsSnapshots)
    tree = Tree.of(
        {path: FileVersion(digest=digest_of(b'x'), size=1) for path in ('/a', '/b/c', '/state/d', '/state/e/f')}
    )
    await backend.restore(tree, blob)
    assert await backend.snapshot() == tree
    with monkeypatch.context() as patch:
        patch.setattr(_directories.Directories, 'open', count)
        await backend.restore(tree)
    assert sorted(scans) == ['', 'b']
    await backend.restore(Tree())
    assert await backend.snapshot() == Tree()
    assert isinstance(ReadOnlyBackend(backend), BackendProtocol)


@pytest.mark.parametrize('is_walked', [False, True])
@pytest.mark.parametrize('mounts', [1, 4])
async def test_search_over_mounts_has_one_budget(monkeypatch: pytest.MonkeyPatch, mounts: int, is_walked: bool) -> None:
    """Entries and time of a search are limited for all mounts together. Partial results are reported."""
    files = {f'/f{n}': 'needle' for n in range(12 // mounts)}

    def part() -> BackendProtocol:
        return Listed(files) if is_walked else StateBackend(files)

    inner = CompositeBackend(StateBackend(), {f'/d{n}': part() for n in range(mounts)})
    backend = CompositeBackend(StateBackend(), {'/in': inner})
    assert len((await backend.glob('**')).paths) == (await backend.grep('needle')).files_searched == 12
    monkeypatch.setattr(_walk, 'MAX_ENTRIES', 10)
    monkeypatch.setattr(_walk.SearchBudget.__init__, '__defaults__', (10,))
    globbed, grepped = await backend.glob('**'), await backend.grep('needle')
    assert len(globbed.paths) == grepped.files_searched <= 10
    assert len(globbed.paths) >= 4
    for found in (globbed, grepped):
        assert {problem.reason for problem in found.problems} == {
            'stopped after 10 entries. Search in a smaller directory.'
        }
    monkeypatch.undo()
    monkeypatch.setattr(_walk, 'monotonic', Clock(61))
    globbed = await backend.glob('**')
    assert globbed.paths == ()
    assert {problem.reason for problem in globbed.problems} == {
        'stopped after 60 seconds. Search in a smaller directory.'
    }
