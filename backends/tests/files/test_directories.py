"""Walks over deep directories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backends.tests.conftest import deep_directory, open_descriptors
from pydantic_deep_backends.errors import ScanLimitError
from pydantic_deep_backends.files._confined_root import ConfinedRoot
from pydantic_deep_backends.files._directories import Directories
from pydantic_deep_backends.local import LocalBackend

pytestmark = pytest.mark.anyio


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path)


@pytest.mark.parametrize('levels', [31, 32, 33, 34, 200])
async def test_directory_tree_of_any_depth_can_be_removed(backend: LocalBackend, tmp_path: Path, levels: int) -> None:
    deep_directory(tmp_path, 'd', levels)
    await backend.remove('/d')
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('levels', [31, 32, 33, 34, 100])
async def test_deep_tree_is_searched_and_captured(backend: LocalBackend, tmp_path: Path, levels: int) -> None:
    deep_directory(tmp_path, 'd', levels)
    deep_directory(tmp_path, 'e', 2)
    paths = (f'/{"d/" * levels}f', '/e/e/f')
    assert (await backend.glob('**/f')).paths == paths
    assert tuple((await backend.grep('canary')).counts) == paths
    assert tuple(await backend.snapshot()) == paths


async def test_directories_too_deep_for_a_path_are_reported(backend: LocalBackend, tmp_path: Path) -> None:
    deep_directory(tmp_path, 'd' * 250, 20)
    (tmp_path / 'f').write_text('canary')
    found = await backend.grep('canary')
    assert (tuple(found.counts), len(found.problems)) == (('/f',), 1)
    with pytest.raises(ScanLimitError, match='4,096'):
        await backend.snapshot()
    await backend.remove('/' + 'd' * 250)
    assert tuple(await backend.snapshot()) == ('/f',)


@pytest.mark.slow
def test_directories_are_opened_relative_to_the_last_one_or_the_root(tmp_path: Path) -> None:
    deep_directory(tmp_path, 'd', 40)
    (tmp_path / 'd' / 'e').mkdir()
    before = open_descriptors()
    with ConfinedRoot(path=str(tmp_path)).open() as root:
        directories = Directories(root)
        for parts in (('d',) * 40, ('d',) * 39, ('d',) * 40, ('d', 'e'), (), ('d', 'd')):
            expected = (tmp_path / '/'.join(parts)).stat().st_ino
            assert os.fstat(directories.open(parts)).st_ino == expected
        with pytest.raises(FileNotFoundError):
            directories.open(('d',) * 40 + ('no',))
        directories.close()
    assert open_descriptors() == before
