"""Checkout writes the files of a version and loses no unversioned work."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pydantic_deep.versions import GitignoreRules
from pydantic_deep.versions.errors import UnversionedBackendError, UnversionedChangesError
from pydantic_deep.versions.files._checkout import CheckedOut, checkout
from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    FileVersion,
    LocalBackend,
    MissingBlobError,
    OverlayBackend,
    ReadOnlyBackend,
    ReadOnlyError,
    SandboxBackend,
    StateBackend,
    Tree,
    digest_of,
)
from pydantic_deep_backends.tracking import Captured, SupportsTracking

pytestmark = pytest.mark.anyio


class Blobs:
    """Contents by digest, like a store."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    async def __call__(self, digest: str) -> bytes:
        return self.data[digest]

    def tree(self, files: Mapping[str, str]) -> Tree:
        versions: dict[str, FileVersion] = {}
        for path, text in files.items():
            digest = digest_of(text.encode())
            self.data[digest] = text.encode()
            versions[path] = FileVersion(digest=digest, size=len(text))
        return Tree.of(versions)


@pytest.fixture
def blobs() -> Blobs:
    return Blobs()


@pytest.fixture
def local(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path)


def put(directory: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (directory / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (directory / path[1:]).write_text(text)


def files_of(directory: Path) -> dict[str, str]:
    return {'/' + str(path.relative_to(directory)): path.read_text() for path in directory.rglob('*') if path.is_file()}


async def captured_of(backend: BackendProtocol) -> Tree:
    assert isinstance(backend, SupportsTracking)
    tracker = backend.track(GitignoreRules(), max_file_bytes=10**6)
    try:
        return (await tracker.capture(Tree())).tree
    finally:
        tracker.close()


ONE = {'/a': '1', '/b': '1', '/d/c': '1', '/d/e/f': '1'}
TWO = {'/a': '2', '/d': 'a file now', '/new/x': '2', '/b': '1'}


@pytest.mark.parametrize('kind', ['local', 'sandbox', 'state', 'composite', 'mounted'])
async def test_checkout_writes_the_files_of_a_version_and_back(tmp_path: Path, blobs: Blobs, kind: str) -> None:
    backends: dict[str, BackendProtocol] = {
        'local': LocalBackend(tmp_path),
        'sandbox': SandboxBackend(tmp_path),
        'state': StateBackend(),
        'composite': CompositeBackend(LocalBackend(tmp_path), {'/m': StateBackend()}),
        'mounted': CompositeBackend(StateBackend(), {'/new': LocalBackend(tmp_path)}),
    }
    backend = backends[kind]
    one, two = blobs.tree(ONE), blobs.tree(TWO)
    done = await checkout(backend, current=None, target=one, read_blob=blobs)
    assert done == CheckedOut(written=('/a', '/b', '/d/c', '/d/e/f'), removed=(), stored=None)
    done = await checkout(backend, current=one, target=two, read_blob=blobs)
    assert done == CheckedOut(written=('/a', '/d', '/new/x'), removed=('/d/c', '/d/e/f'), stored=None)
    assert await captured_of(backend) == two
    await checkout(backend, current=two, target=one, read_blob=blobs)
    assert await captured_of(backend) == one
    assert await checkout(backend, current=one, target=one, read_blob=blobs) == CheckedOut(
        written=(), removed=(), stored=None
    )


async def test_unversioned_edits_are_refused(local: LocalBackend, tmp_path: Path, blobs: Blobs) -> None:
    one, two = blobs.tree(ONE), blobs.tree(TWO)
    edited = {'/a': 'edited', '/d/c': '1', '/d/e/f': '1', '/mine': 'mine'}  # changed, removed, made
    put(tmp_path, edited)
    with pytest.raises(UnversionedChangesError) as caught:
        await checkout(local, current=one, target=blobs.tree({'/a': '2', '/b': '2'}), read_blob=blobs)
    assert (caught.value.paths, caught.value.can_be_stored) == (('/a', '/b', '/mine'), True)
    with pytest.raises(UnversionedChangesError):
        await checkout(local, current=None, target=two, read_blob=blobs)
    assert files_of(tmp_path) == edited


async def test_edits_are_stored_before_anything_changes(local: LocalBackend, tmp_path: Path, blobs: Blobs) -> None:
    one, two = blobs.tree(ONE), blobs.tree(TWO)
    put(tmp_path, {**ONE, '/mine': 'mine'})
    kept: list[tuple[Captured, dict[str, str]]] = []

    async def keep(captured: Captured) -> None:
        kept.append((captured, files_of(tmp_path)))

    done = await checkout(local, current=one, target=two, read_blob=blobs, keep=keep)
    [(captured, files)] = kept
    assert done.stored == captured.tree == blobs.tree({**ONE, '/mine': 'mine'})
    assert captured.blobs == {digest_of(b'mine'): b'mine'}
    assert files == {**ONE, '/mine': 'mine'}
    assert files_of(tmp_path) == TWO


async def test_nothing_is_stored_if_nothing_would_be_lost(local: LocalBackend, tmp_path: Path, blobs: Blobs) -> None:
    put(tmp_path, ONE)

    async def keep(captured: Captured) -> None:
        raise AssertionError

    done = await checkout(local, current=blobs.tree(ONE), target=blobs.tree(TWO), read_blob=blobs, keep=keep)
    assert done.stored is None


async def test_failure_to_store_edits_changes_nothing(local: LocalBackend, tmp_path: Path, blobs: Blobs) -> None:
    put(tmp_path, ONE)

    async def keep(captured: Captured) -> None:
        raise OSError(errno.ENOSPC, 'No space left')

    with pytest.raises(OSError, match='No space left'):
        await checkout(local, current=None, target=blobs.tree(TWO), read_blob=blobs, keep=keep)
    assert files_of(tmp_path) == ONE


async def test_files_of_a_known_version_are_not_edits(local: LocalBackend, tmp_path: Path, blobs: Blobs) -> None:
    one, two = blobs.tree(ONE), blobs.tree(TWO)
    put(tmp_path, {'/a': '3', '/b': '1'})
    asked: list[Tree] = []

    async def is_known(tree: Tree) -> bool:
        asked.append(tree)
        return True

    await checkout(local, current=None, target=one, read_blob=blobs, known=[blobs.tree({'/a': '3', '/b': '1'})])
    put(tmp_path, {'/a': '4'})
    await checkout(local, current=one, target=two, read_blob=blobs, is_known=is_known)
    assert asked == [blobs.tree({**ONE, '/a': '4'})]
    assert files_of(tmp_path) == TWO


async def test_files_of_an_unknown_version_are_refused(local: LocalBackend, tmp_path: Path, blobs: Blobs) -> None:
    put(tmp_path, {'/a': '3'})

    async def is_known(tree: Tree) -> bool:
        return False

    with pytest.raises(UnversionedChangesError):
        await checkout(local, current=blobs.tree(ONE), target=blobs.tree(TWO), read_blob=blobs, is_known=is_known)


async def test_ignored_and_too_large_files_are_untouched(local: LocalBackend, tmp_path: Path, blobs: Blobs) -> None:
    one, two = {'/.gitignore': '*.log\nbuild/', '/a': '1'}, {'/.gitignore': '*.log', '/b': '2'}
    untouched = {'/x.log': 'x', '/build/deep/y': 'y', '/large': 'x' * 101, '/.git/config': 'git'}
    put(tmp_path, {**one, **untouched})
    for current, target in ((one, two), (two, one), (one, {'/c': '3', '/.gitignore': '*.md'})):
        await checkout(
            local, current=blobs.tree(current), target=blobs.tree(target), read_blob=blobs, max_file_bytes=100
        )
        assert files_of(tmp_path) == {**target, **untouched}


async def test_files_ignored_by_the_target_are_not_removed(local: LocalBackend, tmp_path: Path, blobs: Blobs) -> None:
    one, two = {'/d/a.log': '1', '/a': '1'}, {'/d/.gitignore': '*.log'}
    put(tmp_path, one)
    done = await checkout(local, current=blobs.tree(one), target=blobs.tree(two), read_blob=blobs)
    assert done.removed == ('/a',)
    assert files_of(tmp_path) == {**two, '/d/a.log': '1'}


async def test_ignored_file_in_the_way_is_stored_or_refused(local: LocalBackend, tmp_path: Path, blobs: Blobs) -> None:
    one, two = {'/.gitignore': 'out'}, {'/out': 'of the version'}
    put(tmp_path, {**one, '/out': 'mine'})
    kept: list[Captured] = []

    async def keep(captured: Captured) -> None:
        kept.append(captured)

    arguments: dict[str, Any] = {'current': blobs.tree(one), 'target': blobs.tree(two), 'read_blob': blobs}
    with pytest.raises(UnversionedChangesError) as caught:
        await checkout(local, **arguments)
    assert (caught.value.paths, caught.value.can_be_stored) == (('/out',), True)
    await checkout(local, **arguments, keep=keep)
    assert [captured.tree for captured in kept] == [blobs.tree({**one, '/out': 'mine'})]
    assert kept[0].blobs == {digest_of(b'mine'): b'mine'}
    assert files_of(tmp_path) == two


async def test_ignored_directory_in_the_way_is_stored(local: LocalBackend, tmp_path: Path, blobs: Blobs) -> None:
    one, two = {'/.gitignore': 'out/'}, {'/out': 'of the version'}
    put(tmp_path, {**one, '/out/d/x': 'mine'})

    async def keep(captured: Captured) -> None:
        assert sorted(captured.tree) == ['/.gitignore', '/out/d/x']

    done = await checkout(local, current=blobs.tree(one), target=blobs.tree(two), read_blob=blobs, keep=keep)
    assert done.stored is not None
    assert files_of(tmp_path) == two


def make_link(path: Path) -> None:
    path.symlink_to('elsewhere')


def make_large(path: Path) -> None:
    path.write_text('x' * 101)


@pytest.mark.parametrize('make', [make_link, make_large, os.mkfifo])
async def test_unversionable_file_in_the_way_is_refused(
    local: LocalBackend, tmp_path: Path, blobs: Blobs, make: Callable[[Path], None]
) -> None:
    make(tmp_path / 'out')

    async def keep(captured: Captured) -> None:
        raise AssertionError

    target = blobs.tree({'/out': 'of the version'})
    with pytest.raises(UnversionedChangesError) as caught:
        await checkout(local, current=Tree(), target=target, read_blob=blobs, keep=keep, max_file_bytes=100)
    assert (caught.value.paths, caught.value.can_be_stored) == (('/out',), False)
    assert os.listdir(tmp_path) == ['out']


async def test_missing_contents_change_nothing(local: LocalBackend, tmp_path: Path, blobs: Blobs) -> None:
    put(tmp_path, ONE)
    one, two = blobs.tree(ONE), blobs.tree(TWO)
    del blobs.data[digest_of(b'a file now')]
    with pytest.raises(MissingBlobError, match='/d'):
        await checkout(local, current=one, target=two, read_blob=blobs)
    assert files_of(tmp_path) == ONE


async def test_read_only_and_untracked_backends_are_refused(blobs: Blobs) -> None:
    state = StateBackend(ONE)
    with pytest.raises(ReadOnlyError):
        await checkout(ReadOnlyBackend(state), current=blobs.tree(ONE), target=Tree(), read_blob=blobs)
    assert not (await checkout(ReadOnlyBackend(state), current=None, target=blobs.tree(ONE), read_blob=blobs)).written
    with pytest.raises(UnversionedBackendError, match='OverlayBackend'):
        await checkout(OverlayBackend(state), current=None, target=Tree(), read_blob=blobs)


async def test_gitignore_of_one_mount_does_not_apply_to_another(tmp_path: Path, blobs: Blobs) -> None:
    one, two = {'/x.log': '1', '/m/x.log': '1', '/m/y': '1'}, {'/.gitignore': '*.log'}
    backend = CompositeBackend(LocalBackend(tmp_path), {'/m': StateBackend()})
    await checkout(backend, current=None, target=blobs.tree(one), read_blob=blobs)
    done = await checkout(backend, current=blobs.tree(one), target=blobs.tree(two), read_blob=blobs)
    assert done.removed == ('/m/x.log', '/m/y')
    assert await captured_of(backend) == blobs.tree(two)


# Crashes


class KilledError(BaseException):
    """Simulates the end of the process."""


@pytest.mark.slow
@pytest.mark.parametrize('is_other', [False, True])
async def test_killed_checkout_can_be_repeated_or_replaced_by_another(
    tmp_path: Path, blobs: Blobs, is_other: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {**ONE, '/.gitignore': '*.log\n/e', '/d/e/.gitignore': 'own', '/gone/x': '1', '/was.log2': '1'}
    two = {**TWO, '/.gitignore': '*.log2', '/a.log': 'ignored before', '/e': '2', '/z/.gitignore': 'k'}
    three = {'/a': '3', '/.gitignore': '*.log\n*.log2\nown\n/e', '/q': '3'}
    steps = 0
    for killed_at in range(100):
        directory = tmp_path / str(killed_at)
        directory.mkdir()
        put(directory, {**one, '/mine.log': 'never in a version'})
        left = killed_at

        def step(real: Callable[..., object]) -> Callable[..., object]:
            def call(*args: object, **options: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    raise KilledError
                return real(*args, **options)

            return call

        first, second, third = blobs.tree(one), blobs.tree(two), blobs.tree(three)
        with monkeypatch.context() as patched:
            for name in ('rename', 'unlink', 'rmdir', 'open', 'mkdir'):
                patched.setattr(os, name, step(getattr(os, name)))
            try:
                await checkout(LocalBackend(directory), current=first, target=second, read_blob=blobs)
                is_killed = False
            except KilledError:
                is_killed = True
        steps += is_killed
        target = third if is_other else second
        await checkout(LocalBackend(directory), current=first, target=target, read_blob=blobs, known=[second])
        wanted = three if is_other else two
        found = {path: text for path, text in files_of(directory).items() if '.tmp' not in path}
        left_out = {'/mine.log', '/was.log2', *(('/e', '/a.log') if is_other else ())}  # ignored by the target
        assert {path: text for path, text in found.items() if path not in left_out} == wanted
        assert found['/mine.log'] == 'never in a version'
        if not is_killed:
            break
    assert steps > 30
