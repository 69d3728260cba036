"""Tracking of a composite: one tracker per part, one tree of all parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.tests.conftest import contents, track
from pydantic_deep_backends import (
    CompositeBackend,
    LocalBackend,
    ReadOnlyBackend,
    SandboxBackend,
    StateBackend,
    Tree,
    digest_of,
)
from pydantic_deep_backends.tracking import Occupant, SupportsPatch, SupportsTracking

pytestmark = pytest.mark.anyio


async def test_hidden_files_are_not_tracked(tmp_path: Path) -> None:
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


async def test_split_assigns_files_to_their_parts(tmp_path: Path) -> None:
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


async def test_path_outside_every_part_is_refused(tmp_path: Path) -> None:
    backend = CompositeBackend(SandboxBackend(tmp_path), {'/m': StateBackend()})
    assert isinstance(backend, SupportsPatch)
    for path in ('/beside', '/m', '/workspace'):
        with pytest.raises(ValueError, match='No part of the composite'):
            await backend.occupants([path])


async def test_read_only_part_is_captured_but_never_patched() -> None:
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
