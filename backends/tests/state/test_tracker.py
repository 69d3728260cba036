"""Captures of files in memory."""

from __future__ import annotations

import pytest

from backends.tests.conftest import track
from pydantic_deep_backends import StateBackend, Tree

from .conftest import Blobs, tree_of

pytestmark = pytest.mark.anyio


async def test_unfetched_files_are_captured_without_contents() -> None:
    blobs = Blobs(b'one', b'x')
    before = tree_of({'/a': b'one', '/.gitignore': b'x', '/d/x': b'one'})
    backend = StateBackend.of(before, blobs)
    tracker = track(backend)
    captured = await tracker.capture(before)
    assert (sorted(captured.tree), captured.blobs) == (['/.gitignore', '/a'], {})
    assert (await tracker.capture(Tree())).blobs == {}
    await backend.restore(before)
    assert (await backend.snapshot()) == before
