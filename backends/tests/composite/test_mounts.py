"""Mount points: which backend a path belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from pydantic_deep_backends import CompositeBackend, FileEntry, InvalidPathError, StateBackend

from .conftest import names_in

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize('path', ['', 'mem', '../mem', '/mem/../x', '//mem', '/~'])
def test_malformed_mount_point_is_refused(path: str) -> None:
    with pytest.raises(InvalidPathError):
        CompositeBackend(StateBackend(), {path: StateBackend()})


@pytest.mark.parametrize('mounts', [None, [], StateBackend(), 'x'])
def test_mounts_are_a_mapping(mounts: Any) -> None:
    with pytest.raises(TypeError, match=r'`mounts` is .*\. Pass backends by path'):
        CompositeBackend(StateBackend(), mounts)


def test_root_cannot_be_a_mount_point() -> None:
    with pytest.raises(ValueError, match='Pass that backend as `default`'):
        CompositeBackend(StateBackend(), {'/': StateBackend()})


@pytest.mark.parametrize('other', ['/m\u00e9m/', '/me\u0301m', '/./m\u00e9m'])
def test_mount_point_cannot_be_used_twice(other: str) -> None:
    with pytest.raises(ValueError, match='mounted twice'):
        CompositeBackend(StateBackend(), {'/m\u00e9m': StateBackend(), other: StateBackend()})


async def test_longest_matching_mount_owns_the_path() -> None:
    default, mem, deep = StateBackend(), StateBackend(), StateBackend()
    backend = CompositeBackend(default, {'/mem': mem, '/mem/a/b': deep})
    for path in ('/x', '/memory', '/mem/x', '/mem/a/x', '/mem/a/b/x', '/mem/a/bc'):
        await backend.write_bytes(path, path.encode())
    assert list(await default.snapshot()) == ['/memory', '/x']
    assert list(await mem.snapshot()) == ['/a/bc', '/a/x', '/x']
    assert list(await deep.snapshot()) == ['/x']


async def test_mount_point_matches_every_unicode_spelling() -> None:
    mem = StateBackend()
    backend = CompositeBackend(StateBackend(), {'/m\u00e9m': mem})
    await backend.write_bytes('/me\u0301m/e\u0301', b'x')
    assert list(await mem.snapshot()) == ['/e\u0301']
    assert await names_in(backend, '/') == ['m\u00e9m']
    assert (await backend.stat('/me\u0301m/e\u0301')).path == '/m\u00e9m/e\u0301'


async def test_mount_point_is_listed_in_its_parent() -> None:
    backend = CompositeBackend(StateBackend({'/a': '', '/z/y': ''}), {'/m': StateBackend(), '/z/b/c': StateBackend()})
    assert await backend.list_dir('/') == [
        FileEntry(name='a', path='/a', is_dir=False, size=0),
        FileEntry(name='m', path='/m', is_dir=True, size=None),
        FileEntry(name='z', path='/z', is_dir=True, size=None),
    ]
    assert await names_in(backend, '/z') == ['b', 'y']
    assert await names_in(backend, '/z/b') == ['c']
    assert await names_in(backend, '/z/b/c') == []


@pytest.mark.parametrize('path', ['/m', '/m/n', '/m/n/o'])
async def test_mount_points_and_their_parents_exist_and_cannot_be_removed(path: str) -> None:
    backend = CompositeBackend(StateBackend(), {'/m/n/o': StateBackend({'/keep': ''})})
    assert await backend.exists(path)
    assert await backend.stat(path) == FileEntry(name=path[-1], path=path, is_dir=True, size=None)
    await backend.make_dir(path)
    with pytest.raises(ValueError, match='Remove its contents'):
        await backend.remove(path)
    with pytest.raises(IsADirectoryError):
        await backend.write_bytes(path, b'')
    with pytest.raises(IsADirectoryError):
        await backend.read_bytes(path)
    assert await backend.exists('/m/n/o/keep')
