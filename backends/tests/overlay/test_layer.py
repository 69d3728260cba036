"""Which files an overlay shows above and below the paths that it changed."""

from __future__ import annotations

import pytest

from pydantic_deep_backends import OverlayBackend, StateBackend

pytestmark = pytest.mark.anyio


async def test_writing_back_the_original_contents_is_no_change() -> None:
    overlay = OverlayBackend(StateBackend({'/a': '1'}))
    await overlay.write_bytes('/a', b'2')
    await overlay.write_bytes('/a', b'1')
    assert overlay.changed_paths == ()


async def test_recreated_directory_hides_the_removed_one() -> None:
    base = StateBackend({'/d/old/x': '1', '/f': 'file'})
    overlay = OverlayBackend(base)
    await overlay.remove('/d')
    await overlay.write_bytes('/d/new', b'2')
    await base.write_bytes('/d/late', b'3')
    assert [entry.name for entry in await overlay.list_dir('/d')] == ['new']
    assert not await overlay.exists('/d/late')
    with pytest.raises(FileNotFoundError):
        await overlay.list_dir('/d/old')
    await overlay.remove('/f')
    await overlay.make_dir('/f/g')
    assert [entry.path for entry in await overlay.list_dir('/f')] == ['/f/g']
    await overlay.remove('/f')
    assert not await overlay.exists('/f/g')


async def test_directory_with_changes_stays_visible_when_the_base_removes_it() -> None:
    base = StateBackend({'/d/a': '1', '/d/b': '2'})
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/d/a', b'new')
    await base.remove('/d')
    assert await overlay.exists('/d')
    assert (await overlay.stat('/d')).is_dir
    assert [entry.name for entry in await overlay.list_dir('/d')] == ['a']
    assert (await overlay.glob('**')).paths == ('/d/a',)
    assert (await overlay.glob('**', '/d')).paths == ('/d/a',)
    with pytest.raises(IsADirectoryError):
        await overlay.read_bytes('/d')
    with pytest.raises(IsADirectoryError):
        await overlay.write_bytes('/d', b'')
    await overlay.make_dir('/d')
    await overlay.write_bytes('/d/c', b'c')
    await overlay.remove('/d')
    assert not await overlay.exists('/d')


async def test_created_directory_shows_files_added_to_the_base() -> None:
    base = StateBackend()
    overlay = OverlayBackend(base)
    await overlay.make_dir('/d')
    assert await overlay.list_dir('/d') == []
    await base.write_bytes('/d/theirs', b'1')
    assert [entry.name for entry in await overlay.list_dir('/d')] == ['theirs']
    await overlay.remove('/d')
    assert not await overlay.exists('/d/theirs')


async def test_overlay_file_has_no_children() -> None:
    overlay = OverlayBackend(StateBackend())
    await overlay.write_bytes('/f', b'1')
    for operation in (overlay.read_bytes, overlay.list_dir, overlay.stat, overlay.remove, overlay.make_dir):
        with pytest.raises(NotADirectoryError):
            await operation('/f/x')
    with pytest.raises(NotADirectoryError):
        await overlay.write_bytes('/f/x', b'')
    with pytest.raises(NotADirectoryError):
        await overlay.list_dir('/f')
    assert not await overlay.exists('/f/x')


async def test_directory_with_removed_descendants_stays_visible() -> None:
    overlay = OverlayBackend(StateBackend({'/d/e/f': '1'}))
    await overlay.remove('/d/e/f')
    assert [entry.path for entry in await overlay.list_dir('/')] == ['/d']
    assert (await overlay.glob('**')).paths == ()


async def test_created_directory_is_searched_and_removed_with_its_base_files() -> None:
    base = StateBackend()
    overlay = OverlayBackend(base)
    await overlay.make_dir('/d/e')
    assert (await overlay.glob('**', '/d')).paths == ()
    await base.write_bytes('/d/e/f', b'x')
    assert (await overlay.glob('**', '/d')).paths == ('/d/e/f',)
    await overlay.remove('/d')
    assert not await overlay.exists('/d/e/f')
