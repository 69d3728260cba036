"""Cost of deep trees: the same for each directory, at any depth."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from pydantic_deep_backends import (
    CompositeBackend,
    LocalBackend,
    OverlayBackend,
    ReadOnlyBackend,
    StateBackend,
    Tree,
    digest_of,
)
from pydantic_deep_backends.protocol import BackendProtocol
from pydantic_deep_backends.search import GlobResult, GrepResult, _walk, glob_backend, grep_backend
from pydantic_deep_backends.snapshots import FileVersion
from pydantic_deep_backends.tracking import DirectoryRules
from pydantic_deep_backends.trees import _nodes as nodes

pytestmark = pytest.mark.anyio

DEPTH = 130
"""Far more directories than are open at the same time."""


class Everything:
    """Rules that ignore nothing."""

    def with_ignore_file(self, data: bytes) -> DirectoryRules:
        return self

    def below(self, name: str) -> DirectoryRules:
        return self

    def leaves_out(self, name: str, *, is_dir: bool) -> bool:
        return False


def make_comb(root: Path, depth: int) -> None:
    """Make a chain of directories, each with a file and a sibling directory before and after the next one."""
    directory = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        for name in ('a', 'm', 'z'):
            os.mkdir(name, dir_fd=directory)
        os.close(os.open('f', os.O_CREAT | os.O_WRONLY, dir_fd=directory))
        below = os.open('m', os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(directory)


def comb(depth: int) -> Tree:
    version = FileVersion(digest=digest_of(b'needle\n'), size=7)
    return Tree.of({f'{"/m" * level}/{name}': version for level in range(depth) for name in ('a/f', 'f', 'z/f')})


def do_not_sync(descriptor: int) -> None:
    """Replace `os.fsync`, which is slow and not counted."""


@contextmanager
def counted_opens(monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """Count opened files and directories, by patching `os.open`."""
    opened: list[str] = []
    real_open = os.open

    def count(path: str, *args: object, **kwargs: object) -> int:
        opened.append(path)
        return real_open(path, *args, **kwargs)  # pyright: ignore[reportArgumentType]

    with monkeypatch.context() as patch:
        patch.setattr(os, 'open', count)
        patch.setattr(os, 'fsync', do_not_sync)
        yield opened


async def blob(digest: str) -> bytes:
    return b'needle\n'


def mounted(backend: BackendProtocol, default: BackendProtocol | None = None) -> CompositeBackend:
    return CompositeBackend(StateBackend() if default is None else default, {'/up/here': backend})


Act = Callable[[LocalBackend], Awaitable[object]]

ACTS: dict[str, Act] = {
    'glob': lambda backend: backend.glob('**'),
    'grep': lambda backend: backend.grep('needle'),
    'snapshot': lambda backend: backend.snapshot(),
    'capture': lambda backend: backend.track(Everything(), max_file_bytes=10).capture(Tree()),
    'occupants': lambda backend: backend.occupants(['/m']),
    'overlay': lambda backend: OverlayBackend(backend).glob('**'),
    'glob of a mount': lambda backend: mounted(backend).glob('**'),
    'grep of a mount': lambda backend: mounted(backend).grep('needle'),
    'glob of files of a mount': lambda backend: mounted(backend).glob('{up/*/**/[f],here/f}'),
    'grep of files of a mount': lambda backend: mounted(backend).grep('needle', '/up', glob='here/**/f'),
    'glob of alternatives with directories in a mount': lambda backend: mounted(backend).glob(
        '{up/here/**,x}/{f,m/**}'
    ),
    'grep of alternatives that begin a component': lambda backend: mounted(backend).grep(
        'needle', glob='up{/here/**,}/f'
    ),
    'glob of a mount that hides': lambda backend: mounted(backend, StateBackend({'/up/here/f': ''})).glob('**'),
    'grep of a mount in a mount': lambda backend: mounted(mounted(ReadOnlyBackend(backend))).grep('needle'),
    'remove': lambda backend: backend.remove('/m'),
}


@pytest.mark.parametrize('act', ACTS.values(), ids=ACTS)
async def test_scan_of_a_deep_directory_opens_each_directory_at_most_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Act
) -> None:
    """`glob`, `grep`, `snapshot` and captures open directories in proportion to how many there are, not to their depth."""
    make_comb(tmp_path, DEPTH)
    with counted_opens(monkeypatch) as opened:
        await act(LocalBackend(tmp_path))
    files, directories = DEPTH, 3 * DEPTH + 1
    assert directories * 0.9 <= len(opened) <= files + 2 * directories + 10


async def test_restoring_a_deep_directory_opens_each_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`restore` and `patch` create and remove deep trees with a constant number of opens for each file and
    directory."""
    backend, tree = LocalBackend(tmp_path), comb(DEPTH)
    most = 6 * (len(tree) + 3 * DEPTH)
    with counted_opens(monkeypatch) as made:
        await backend.restore(tree, blob)
    assert len(tree) < len(made) <= most
    assert await backend.snapshot() == tree
    with counted_opens(monkeypatch) as removed:
        await backend.restore(Tree())
    assert len(removed) <= most
    assert list(tmp_path.iterdir()) == []
    with counted_opens(monkeypatch) as patched:
        await backend.patch(tree, list(tree), {digest_of(b'needle\n'): b'needle\n'}, is_durable=False)
    assert len(patched) <= most
    with counted_opens(monkeypatch) as patched:
        await backend.patch(Tree(), list(tree), {})
    assert len(patched) <= most
    assert list(tmp_path.iterdir()) == []


async def test_directories_too_deep_for_a_path_are_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path has at most 4,096 bytes. Deeper files are in no version and no search, cost nothing, and are reported."""
    directory = os.open(tmp_path, os.O_RDONLY)
    for _ in range(60):
        os.mkdir('d' * 200, dir_fd=directory)
        os.close(os.open('f', os.O_CREAT | os.O_WRONLY, dir_fd=directory))
        below = os.open('d' * 200, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(directory)
    backend = LocalBackend(tmp_path)
    with counted_opens(monkeypatch) as opened:
        captured = await backend.track(Everything(), max_file_bytes=10).capture(Tree())
        found = await backend.glob('**')
    tree = captured.tree
    assert [file.reason for file in captured.omitted] == ['invalid path']
    assert len(tree) == len(found.paths) == 4_095 // 201 + 1
    assert len(opened) <= 4 * len(tree)
    assert [problem.reason for problem in found.problems] == [
        'not a valid path: it is 4,221 bytes long. At most 4,096 are allowed.'
    ]
    await backend.remove('/' + 'd' * 200)  # deeper than some tools can remove


class Clock:
    """A clock that advances by some seconds on each call."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


@pytest.mark.parametrize('is_walked', [False, True])
async def test_search_that_takes_too_long_returns_partial_results(
    monkeypatch: pytest.MonkeyPatch, is_walked: bool
) -> None:
    """After 60 seconds a search returns its results so far, with a problem that reports them as partial."""
    files = StateBackend({f'/d{n}/{name}': 'needle\n' for n in range(5) for name in 'abcd'})

    async def search(seconds: float) -> tuple[GlobResult, GrepResult]:
        monkeypatch.setattr(_walk, 'monotonic', Clock(seconds))
        globbed = await (glob_backend(files, '**') if is_walked else files.glob('**'))
        monkeypatch.setattr(_walk, 'monotonic', Clock(seconds))
        return globbed, await (grep_backend(files, 'needle') if is_walked else files.grep('needle'))

    globbed, grepped = await search(25)
    assert (globbed.paths, grepped.files_searched) == (('/d0/a', '/d0/b', '/d0/c', '/d0/d'), 0)
    reason = 'stopped after 60 seconds. Search in a smaller directory.'
    assert [(problem.path, problem.reason) for problem in globbed.problems] == [('/', reason)]
    assert grepped.problems == globbed.problems
    globbed, grepped = await search(0)
    assert (len(globbed.paths), grepped.files_searched, globbed.problems, grepped.problems) == (20, 20, (), ())


async def count_look_ups(monkeypatch: pytest.MonkeyPatch, depth: int, name: str) -> int:
    """Return the number of lookups in directories of in-memory trees."""
    tree = comb(depth)
    files = StateBackend()
    await files.restore(tree, blob)
    tracker = files.track(Everything(), max_file_bytes=10)
    looked_up = 0
    real_find = nodes.find

    def find(node: nodes.Node, name: str) -> nodes.Child | None:
        nonlocal looked_up
        looked_up += 1
        return real_find(node, name)

    with monkeypatch.context() as patch:
        patch.setattr(nodes, 'find', find)
        match name:
            case 'glob':
                assert len((await files.glob('**')).paths) == 3 * depth
            case 'grep':
                assert (await files.grep('needle')).files_searched == 3 * depth
            case 'capture':
                assert (await tracker.capture(tree)).tree == tree
            case _:
                Tree().with_changes(dict(tree.items()))
    return looked_up


@pytest.mark.parametrize('name', ['glob', 'grep', 'capture', 'with_changes'])
async def test_deep_in_memory_trees_are_not_looked_up_from_the_root(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Each directory has the same cost in memory too: twice the depth takes at most twice the steps."""
    once = await count_look_ups(monkeypatch, 40, name)
    twice = await count_look_ups(monkeypatch, 80, name)
    assert twice <= 2 * once + 10


async def count_made_directories(monkeypatch: pytest.MonkeyPatch, depth: int) -> int:
    """Return the number of tree directories that a patch creates."""
    tree = comb(depth)
    files = StateBackend({'/z': 'in the way', '/m/a/f/below': 'in the way too'})
    made: list[str] = []
    real_with, real_of = nodes.with_entry, nodes.directory_of

    def with_entry(node: nodes.Node, name: str, child: nodes.Child | None, level: int = 0) -> nodes.Node:
        made.append(name)
        return real_with(node, name, child, level)

    def directory_of(entries: Mapping[str, nodes.Child], level: int = 0) -> nodes.Node:
        made.extend(entries)
        return real_of(entries, level)

    with monkeypatch.context() as patch:
        patch.setattr(nodes, 'with_entry', with_entry)
        patch.setattr(nodes, 'directory_of', directory_of)
        await files.patch(tree, list(tree), {digest_of(b'needle\n'): b'needle\n'})
        assert await files.snapshot() == tree
        await files.patch(Tree(), ['/', '/no/file', *tree], {})
        assert await files.snapshot() == Tree()
    return len(made)


async def test_in_memory_patch_rebuilds_each_directory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories are rebuilt once for all files of a patch, not once for each file below them."""
    once = await count_made_directories(monkeypatch, 40)
    twice = await count_made_directories(monkeypatch, 80)
    assert 80 < twice <= 2 * once + 10
