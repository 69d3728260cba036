"""Search over an overlay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pydantic_deep_backends import GrepResult, LocalBackend, OverlayBackend, StateBackend
from pydantic_deep_backends.search import MAX_FILE_BYTES, glob_backend, grep_backend

pytestmark = pytest.mark.anyio


async def _searched(overlay: OverlayBackend, path: str = '/', limit: int = 1000) -> tuple[GrepResult, GrepResult]:
    """Return the search results of the overlay and of a walk over its files."""
    return (
        await overlay.grep('x', path, limit=limit),
        await grep_backend(overlay, 'x', path, limit=limit),
    )


@pytest.mark.parametrize('limit', [0, 1, 3, 5, 100])
async def test_search_equals_a_walk_over_the_same_files(limit: int) -> None:
    files = {f'/d/{number}': 'x\n' * 3 for number in range(6)}
    base = StateBackend({**files, '/binary': 'x\0', '/e/1': 'x', '/e/.hidden': 'x', '/f': 'x'})
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/d/0', b'none')
    await overlay.write_bytes('/d/2', b'x\nx\n')
    await overlay.write_bytes('/d/3', b'binary\0x')
    await overlay.write_bytes('/binary', b'x now text')
    await overlay.write_bytes('/new/a', b'x')
    await overlay.remove('/e')
    await overlay.remove('/f')
    await overlay.write_bytes('/f/g', b'x')
    for path in ('/', '/d', '/new', '/f', '/d/2', '/d/4'):
        found, expected = await _searched(overlay, path, limit)
        assert found == expected
    for pattern in ('**', '**/*', 'd/*', '*', '**/.*'):
        assert await overlay.glob(pattern) == await glob_backend(overlay, pattern)
    for path in ('/e', '/e/1', '/none'):
        with pytest.raises(FileNotFoundError):
            await overlay.grep('x', path)
        with pytest.raises(FileNotFoundError):
            await overlay.glob('x', path)


async def test_problems_of_hidden_files_are_not_reported(tmp_path: Path) -> None:
    for name in ('a', 'b'):
        (tmp_path / name).write_bytes(b'')
        os.truncate(tmp_path / name, MAX_FILE_BYTES + 1)
    overlay = OverlayBackend(LocalBackend(tmp_path))
    await overlay.write_bytes('/a', b'x')
    found = await overlay.grep('x')
    assert (found.counts, [problem.path for problem in found.problems]) == ({'/a': 1}, ['/b'])
