"""Snapshots of a composite and their restoration."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    FileVersion,
    LocalBackend,
    MissingBlobError,
    StateBackend,
    SupportsCommands,
    SupportsSnapshots,
    Tree,
    TreeDiff,
    digest_of,
)

from .conftest import shown_elsewhere

pytestmark = pytest.mark.anyio


def capturing(backend: CompositeBackend) -> SupportsSnapshots:
    assert isinstance(backend, SupportsSnapshots)
    return cast('SupportsSnapshots', backend)


def reader(*contents: bytes):
    async def read_blob(digest: str) -> bytes:
        return {digest_of(data): data for data in contents}[digest]

    return read_blob


def version_of(data: bytes) -> FileVersion:
    return FileVersion(digest=digest_of(data), size=len(data))


async def test_snapshot_contains_every_part_under_its_prefix() -> None:
    default = StateBackend({'/a': '1', '/m/hidden': '2', '/up': 'hidden too'})
    backend = CompositeBackend(
        default, {'/m': StateBackend({'/b': '3'}), '/m/deep': StateBackend({'/c': '4'}), '/up/on': StateBackend()}
    )
    tree = await capturing(backend).snapshot()
    assert tree == Tree.of({'/a': version_of(b'1'), '/m/b': version_of(b'3'), '/m/deep/c': version_of(b'4')})


async def test_restore_updates_each_part_and_preserves_hidden_files() -> None:
    default = StateBackend({'/a': '1', '/m/hidden': '2', '/up': 'file', '/p/q': 'file'})
    mem, deep = StateBackend({'/b': '3', '/deep/hidden': '5'}), StateBackend({'/c': '4'})
    mounts = {'/m': mem, '/m/deep': deep, '/up/on/top': StateBackend({'/t': ''}), '/p/q': StateBackend()}
    backend = CompositeBackend(default, mounts)
    before = await capturing(backend).snapshot()
    for path in ('/a', '/m/b', '/m/deep/c', '/m/new', '/x/y'):
        await backend.write_bytes(path, b'changed')
    assert await capturing(backend).changes(before) == TreeDiff(
        added=('/m/new', '/x/y'), changed=('/a', '/m/b', '/m/deep/c')
    )
    await capturing(backend).restore(before)
    assert await capturing(backend).snapshot() == before
    assert list(await mem.snapshot()) == ['/b', '/deep/hidden']
    assert list(await default.snapshot()) == ['/a', '/m/hidden', '/p/q', '/up']


async def test_restored_directory_replaces_a_hidden_file() -> None:
    default = StateBackend({'/up': 'hidden'})
    backend = CompositeBackend(default, {'/up/on': StateBackend()})
    await capturing(backend).restore(Tree.of({'/up/x': version_of(b'1')}), reader(b'1'))
    assert list(await default.snapshot()) == ['/up/x']


async def test_restore_takes_contents_from_another_part(tmp_path: Path) -> None:
    backend = CompositeBackend(StateBackend({'/a': 'text'}), {'/m': LocalBackend(tmp_path)})
    await capturing(backend).restore(Tree.of({'/m/b': version_of(b'text')}))
    assert (tmp_path / 'b').read_bytes() == b'text'
    assert not await backend.exists('/a')


async def test_restore_writes_in_memory_contents_to_a_directory(tmp_path: Path) -> None:
    tree = await StateBackend({'/m/b': 'text'}).snapshot()
    backend = CompositeBackend(StateBackend(), {'/m': LocalBackend(tmp_path)})
    await capturing(backend).restore(tree)
    assert (tmp_path / 'b').read_bytes() == b'text'


class Vanishing(StateBackend):
    """Loses its files between the snapshot and the read."""

    async def read_bytes(self, path: str) -> bytes:
        raise FileNotFoundError(2, 'No such file or directory', path)


async def test_vanished_contents_come_from_the_blob_reader() -> None:
    backend = CompositeBackend(Vanishing({'/a': 'text'}), {'/m': StateBackend()})
    wanted = Tree.of({'/m/b': version_of(b'text')})
    with pytest.raises(MissingBlobError):
        await capturing(backend).restore(wanted)
    await capturing(backend).restore(wanted, reader(b'text'))
    assert await backend.read_bytes('/m/b') == b'text'


class Overwritten(StateBackend):
    """Returns different contents on read than in the snapshot."""

    async def read_bytes(self, path: str) -> bytes:
        return b'somebody else wrote this'


async def test_changed_contents_come_from_the_blob_reader() -> None:
    backend = CompositeBackend(Overwritten({'/a': 'text'}), {'/m': StateBackend()})
    await capturing(backend).restore(Tree.of({'/m/b': version_of(b'text')}), reader(b'text'))
    assert await backend.read_bytes('/m/b') == b'text'


async def test_missing_contents_leave_every_part_unchanged() -> None:
    backend = CompositeBackend(StateBackend({'/a': '1'}), {'/m': StateBackend({'/b': '2'})})
    before = await capturing(backend).snapshot()
    with pytest.raises(MissingBlobError) as caught:
        await capturing(backend).restore(
            Tree.of({'/new': version_of(b'have'), '/m/x': version_of(b'lack')}), reader(b'have')
        )
    assert caught.value.paths == ('/m/x',)
    assert await capturing(backend).snapshot() == before


@pytest.mark.parametrize('path', ['/m', '/m/n'])
async def test_tree_with_a_file_at_a_mount_point_is_refused(path: str) -> None:
    backend = CompositeBackend(StateBackend({'/a': '1'}), {'/m/n': StateBackend()})
    with pytest.raises(ValueError, match='where a backend is mounted'):
        await capturing(backend).restore(Tree.of({path: version_of(b'')}), reader(b''))
    assert await backend.exists('/a')


@pytest.mark.parametrize('mounts', [{}, {'/mnt': StateBackend({'/x': 'mounted'})}])
async def test_backend_shown_elsewhere_has_no_snapshots(tmp_path: Path, mounts: dict[str, BackendProtocol]) -> None:
    (tmp_path / 'mnt').mkdir()
    (tmp_path / 'mnt/x').write_text('own')
    default = shown_elsewhere(tmp_path)
    backend = CompositeBackend(default, mounts)
    assert not isinstance(backend, SupportsSnapshots)
    assert not isinstance(CompositeBackend(StateBackend(), {'/box': default}), SupportsSnapshots)
    assert isinstance(CompositeBackend(LocalBackend(tmp_path), mounts), SupportsSnapshots)
    assert isinstance(backend, SupportsCommands)
    assert await backend.read_bytes(f'{tmp_path}/mnt/x') == b'own'
    assert (await backend.run(['cat', 'mnt/x'])).stdout == 'own'
    if mounts:
        assert await backend.read_bytes('/mnt/x') == b'mounted'
    assert sorted(await default.snapshot()) == ['/mnt/x']
