"""A directory at a mount point other than `/`, as commands see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pydantic_deep_backends import LocalBackend, OutsideRootError, StateBackend, SupportsSearch

pytestmark = pytest.mark.anyio


@pytest.fixture
async def mounted(tmp_path: Path) -> LocalBackend:
    """A directory with two files, at its real path."""
    root = tmp_path.resolve() / 'a' / 'root'
    (root / 'd').mkdir(parents=True)
    (root / 'f').write_text('needle\n')
    (root / 'd' / 'g').write_text('needle\n')
    (root.parent / 'beside').write_text('needle\n')
    return LocalBackend(root, allow_commands=True)


async def test_only_the_mount_point_is_visible_above_it(mounted: LocalBackend) -> None:
    root = await mounted.working_dir()
    above = root.rpartition('/')[0]
    assert [entry.path for entry in await mounted.list_dir(above)] == [root]
    assert [entry.path for entry in await mounted.list_dir('/')] == ['/' + root.split('/')[1]]
    assert (await mounted.stat(above)).is_dir
    assert await mounted.realpath(above) == above
    assert not await mounted.exists(f'{above}/beside')
    with pytest.raises(FileNotFoundError, match='There is nothing outside of'):
        await mounted.read_bytes(f'{above}/beside')
    with pytest.raises(IsADirectoryError):
        await mounted.read_bytes(above)


async def test_search_from_above_equals_a_search_in_the_directory(mounted: LocalBackend) -> None:
    assert isinstance(mounted, SupportsSearch)
    root = await mounted.working_dir()
    paths = (f'{root}/d/g', f'{root}/f')
    above = root.rpartition('/')[0]
    for start in ('/', above, root):
        assert (await mounted.glob('**', start)).paths == paths
        assert dict((await mounted.grep('needle', start)).counts) == dict.fromkeys(paths, 1)
    assert (await mounted.glob('root/d/*', above)).paths == (f'{root}/d/g',)
    assert (await mounted.glob('beside', above)).paths == ()


async def test_nothing_outside_of_the_mount_point_can_change(mounted: LocalBackend) -> None:
    above = (await mounted.working_dir()).rpartition('/')[0]
    changes: list[Callable[[str], Awaitable[None]]] = [
        lambda path: mounted.write_bytes(path, b'x'),
        lambda path: mounted.compare_and_swap(path, b'x', expected=None),
        mounted.make_dir,
        mounted.remove,
    ]
    for change in changes:
        with pytest.raises(OutsideRootError, match=r'where nothing can be written'):
            await change(f'{above}/beside')
    assert Path(above, 'beside').read_text() == 'needle\n'
    with pytest.raises((ValueError, OSError)):
        await mounted.remove(above)


async def test_snapshot_has_paths_below_the_mount_point(mounted: LocalBackend) -> None:
    files = StateBackend({'/f': 'needle\n', '/d/g': 'needle\n'})
    assert {*await mounted.snapshot()} == {*await files.snapshot()}
