"""Trackers: results and cost of captures, and that a digest always refers to the same bytes."""

from __future__ import annotations

import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    LocalBackend,
    OverlayBackend,
    ReadOnlyBackend,
    SandboxBackend,
    StateBackend,
    SupportsSnapshots,
    Tree,
    digest_of,
)
from pydantic_deep_backends.tracking import OmittedFile, SupportsPatch, SupportsTracking

from .conftest import contents, replaced, track

pytestmark = pytest.mark.anyio


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


# Behavior of every backend


async def test_capture_returns_files_and_new_contents(
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


async def test_ignored_files_are_omitted(backend: StateBackend | LocalBackend | CompositeBackend) -> None:
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


async def test_changed_ignore_file_applies_to_unchanged_files(
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


async def test_oversized_file_is_reported_until_it_is_smaller(
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


async def test_oversized_ignore_file_has_no_effect(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    await backend.write_bytes('/a/.gitignore', b'x' + b' ' * 1000)
    await backend.write_bytes('/a/x', b'x')
    assert sorted((await tracker.capture(Tree())).tree) == ['/a/x']


async def test_capture_against_an_unknown_tree_compares_everything(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    await backend.write_bytes('/a/b', b'one')
    first = await tracker.capture(Tree())
    again = await tracker.capture(Tree())
    assert (again.tree, again.blobs) == (first.tree, first.blobs)


async def test_ignored_file_can_be_requested_explicitly(
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


async def test_directory_can_replace_a_file_and_vice_versa(
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


async def test_compare_and_swap_is_tracked(backend: StateBackend | LocalBackend | CompositeBackend) -> None:
    assert isinstance(backend, SupportsTracking)
    tracker = track(backend)
    await backend.write_bytes('/a/x', b'1')
    first = await tracker.capture(Tree())
    swap: Callable[..., Awaitable[None]] = vars(backend).get('compare_and_swap') or backend.compare_and_swap
    await swap('/a/x', b'2', expected=digest_of(b'1'))
    assert contents(await tracker.capture(first.tree)) == {'/a/x': b'2'}


async def test_patch_and_restore_are_tracked(backend: StateBackend | LocalBackend | CompositeBackend) -> None:
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


# Unreadable and moving files


async def test_ignore_rules_are_removed_with_their_directory(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
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


# Parts


async def test_backends_support_tracking_and_patches_as_listed(tmp_path: Path) -> None:
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


async def test_occupants_are_the_paths_a_file_would_replace(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsPatch)
    for path in ('/a/file', '/a/d/x', '/a/d/e/y', '/a/beside'):
        await backend.write_bytes(path, b'')
    found = await backend.occupants(['/a/file/below/it', '/a/d', '/a/missing', '/a/e/missing'])
    assert [occupant.path for occupant in found] == ['/a/d/e/y', '/a/d/x', '/a/file']
    assert all(occupant.is_file for occupant in found)


async def test_patch_exchanges_files_and_directories(
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


async def test_patched_file_replaces_a_directory(
    backend: StateBackend | LocalBackend | CompositeBackend,
) -> None:
    assert isinstance(backend, SupportsTracking)
    assert isinstance(backend, SupportsPatch)
    await backend.write_bytes('/a/d/x', b'1')
    wanted = await StateBackend({'/a/d': b'2'}).snapshot()
    await backend.patch(wanted, ['/a/d'], {digest_of(b'2'): b'2'})
    assert (await track(backend).capture(Tree())).tree == wanted


async def test_patch_without_contents_changes_nothing(
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
