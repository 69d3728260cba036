"""Changed paths are recorded for every tracker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from backends.tests.conftest import contents, track
from pydantic_deep_backends import LocalBackend, Tree

pytestmark = pytest.mark.anyio


async def test_change_through_a_link_is_recorded_at_its_target(local: LocalBackend, tmp_path: Path) -> None:
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


async def test_changes_by_commands_are_captured(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path, allow_commands=True)
    run: Callable[..., Awaitable[object]] = vars(backend)['run']
    await backend.write_bytes(f'{tmp_path}/x', b'1')
    tracker = track(backend)
    first = await tracker.capture(Tree())
    await run('echo made > y && chmod +x x', shell=True)
    second = await tracker.capture(first.tree)
    assert contents(second, first.blobs) == {'/x': b'1', '/y': b'made\n'}
    assert second.tree['/x'].mode == 0o755


async def test_closing_a_tracker_does_not_affect_others(local: LocalBackend) -> None:
    closed, open_ = track(local), track(local)
    before = (await open_.capture(Tree())).tree
    closed.close()
    await local.write_bytes('/x', b'x')
    assert sorted((await open_.capture(before)).tree.diff(before).removed) == ['/x']
