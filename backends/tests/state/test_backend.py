"""Behavior of `StateBackend` alone: memory, cheap snapshots, empty directories, fetched contents."""

from __future__ import annotations

import pytest

from pydantic_deep_backends import (
    FileVersion,
    InvalidPathError,
    MissingBlobError,
    StateBackend,
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsSearch,
    SupportsSnapshots,
    Tree,
    digest_of,
)
from pydantic_deep_backends.protocol import BackendProtocol, BackendRef

from .conftest import Blobs, tree_of

pytestmark = pytest.mark.anyio


def test_state_backend_has_every_capability_except_commands() -> None:
    backend = StateBackend()
    for protocol in (BackendProtocol, SupportsSearch, SupportsCompareAndSwap, SupportsSnapshots):
        assert isinstance(backend, protocol)
    assert not isinstance(backend, SupportsCommands)


def test_every_instance_has_its_own_ref() -> None:
    one, two = StateBackend(), StateBackend()
    assert isinstance(one.ref, BackendRef)
    assert one.ref == one.ref
    assert one.ref.provider == two.ref.provider == 'state'
    assert one.ref.id != two.ref.id


async def test_text_is_stored_as_utf_8() -> None:
    backend = StateBackend({'/a': 'é', '/d/b': b'\xff'})
    assert await backend.read_bytes('/a') == 'é'.encode()
    assert await backend.read_bytes('/d/b') == b'\xff'


def test_initial_files_are_validated_like_writes() -> None:
    with pytest.raises(InvalidPathError):
        StateBackend({'../a': ''})
    with pytest.raises(NotADirectoryError):
        StateBackend({'/a': '', '/a/b': ''})
    with pytest.raises(IsADirectoryError):
        StateBackend({'/a/b': '', '/a': ''})


async def test_contents_cannot_be_changed_through_the_buffer() -> None:
    backend = StateBackend()
    data = bytearray(b'one')
    await backend.write_bytes('/a', data)  # pyright: ignore[reportArgumentType] - callers without a type checker
    data[:] = b'two'
    assert await backend.read_bytes('/a') == b'one'


def test_repr_shows_counts_and_no_contents() -> None:
    assert repr(StateBackend({'/a': 'secret', '/b': b'x' * 1000})) == '<StateBackend of 2 files, 1,006 bytes>'


async def test_repr_of_a_version_shows_no_contents() -> None:
    tree = await StateBackend({'/a': 'secret'}).snapshot()
    assert repr(tree.get('/a')) == f'FileVersion(digest={digest_of(b"secret")!r}, size=6, mode=0o644)'


# Memory


async def test_snapshot_returns_the_current_tree() -> None:
    backend = StateBackend({'/a': '1'})
    assert await backend.snapshot() is await backend.snapshot()


# Restore


async def test_mode_survives_restore_and_write() -> None:
    backend = StateBackend()
    tree = Tree.of({'/run': FileVersion(digest=digest_of(b'x'), size=1, mode=0o755)})

    async def read_blob(digest: str) -> bytes:
        return {digest_of(b'x'): b'x'}[digest]

    await backend.restore(tree, read_blob)
    assert await backend.snapshot() == tree
    await backend.write_bytes('/run', b'y')
    version = (await backend.snapshot()).get('/run')
    assert version is not None
    assert version.mode == 0o755


# Empty directories


async def names_in(backend: StateBackend, path: str) -> list[str]:
    return [entry.name for entry in await backend.list_dir(path)]


async def test_empty_directory_is_listed_but_not_part_of_the_tree() -> None:
    backend = StateBackend()
    await backend.make_dir('/a/b')
    assert await names_in(backend, '/') == ['a']
    assert await names_in(backend, '/a') == ['b']
    assert await names_in(backend, '/a/b') == []
    assert (await backend.snapshot()) == Tree()


async def test_directory_remains_after_its_last_file_is_removed() -> None:
    backend = StateBackend({'/a/b/c': ''})
    await backend.remove('/a/b/c')
    assert await names_in(backend, '/a') == ['b']
    await backend.remove('/a/b')
    assert await names_in(backend, '/') == ['a']
    await backend.remove('/a')
    assert await names_in(backend, '/') == []


async def test_directory_with_empty_directories_is_removed_completely() -> None:
    backend = StateBackend({'/a/file': ''})
    await backend.make_dir('/a/b/c')
    await backend.make_dir('/a/b/d')
    await backend.remove('/a')
    assert not await backend.exists('/a')
    assert not await backend.exists('/a/b/c')


async def test_empty_directory_can_be_filled() -> None:
    backend = StateBackend()
    await backend.make_dir('/a')
    await backend.write_bytes('/a/b/c', b'')
    await backend.make_dir('/a/b')
    assert await names_in(backend, '/a') == ['b']
    await backend.remove('/a/b')
    assert await names_in(backend, '/') == ['a']


async def test_restored_file_replaces_empty_directories() -> None:
    backend = StateBackend({'/a': '1', '/b/c': '2'})
    before = await backend.snapshot()
    await backend.remove('/a')
    await backend.remove('/b')
    await backend.make_dir('/a/x/y')
    await backend.make_dir('/b')
    await backend.restore(before)
    assert await names_in(backend, '/') == ['a', 'b']
    assert await names_in(backend, '/b') == ['c']
    assert await backend.read_bytes('/a') == b'1'


async def test_directories_emptied_by_a_restore_are_removed() -> None:
    backend = StateBackend()
    await backend.make_dir('/empty')
    before = await backend.snapshot()
    await backend.write_bytes('/a/b/c', b'')
    await backend.restore(before)
    assert await names_in(backend, '/') == ['empty']


# Search


async def test_search_finds_files_in_memory() -> None:
    backend = StateBackend({'/a.py': 'x = 1\n', '/d/b.py': 'x = 2\n', '/d/c.txt': 'x\n'})
    await backend.make_dir('/empty')
    assert (await backend.glob('**/*.py')).paths == ('/a.py', '/d/b.py')
    assert (await backend.glob('**', '/empty')).paths == ()
    assert (await backend.glob('none/*')).paths == ()
    assert (await backend.grep('x', '/', glob='**/*.py')).counts == {'/a.py': 1, '/d/b.py': 1}
    assert (await backend.grep('x', '/d/c.txt')).counts == {'/d/c.txt': 1}


async def test_contents_are_fetched_once_on_first_read() -> None:
    blobs = Blobs(b'one', b'two')
    backend = StateBackend.of(tree_of({'/a': b'one', '/b': b'two', '/c': b'one'}), blobs)
    assert [entry.size for entry in await backend.list_dir('/')] == [3, 3, 3]
    assert blobs.asked == []
    assert [await backend.read_bytes(path) for path in ('/a', '/a', '/c')] == [b'one'] * 3
    assert blobs.asked == [b'one']
    await backend.write_bytes('/b', b'new')
    assert (await backend.grep('n')).counts == {'/a': 1, '/b': 1, '/c': 1}
    assert blobs.asked == [b'one']


async def test_search_fetches_only_the_contents_it_reads() -> None:
    blobs = Blobs(b'one', b'two')
    backend = StateBackend.of(tree_of({'/d/a': b'one', '/d/b': b'two', '/c': b'one'}), blobs)
    assert (await backend.glob('**')).paths == ('/c', '/d/a', '/d/b')
    assert blobs.asked == []
    assert (await backend.grep('w', '/d')).counts == {'/d/b': 1}
    assert blobs.asked == [b'one', b'two']
    assert (await backend.grep('o', '/c')).counts == {'/c': 1}


async def test_missing_contents_raise() -> None:
    backend = StateBackend.of(tree_of({'/a': b'one'}), Blobs())
    with pytest.raises(MissingBlobError):
        await backend.read_bytes('/a')
    with pytest.raises(MissingBlobError):
        await backend.grep('x')


async def test_write_during_a_fetch_is_preserved() -> None:
    async def read_blob(digest: str) -> bytes:
        await backend.write_bytes('/a', b'new')
        return b'one'

    backend = StateBackend.of(tree_of({'/a': b'one'}), read_blob)
    assert await backend.read_bytes('/a') == b'one'
    assert await backend.read_bytes('/a') == b'new'


async def test_tree_with_an_invalid_path_is_refused() -> None:
    with pytest.raises(ValueError, match='is not a valid path'):
        StateBackend.of(tree_of({'/a\nb': b''}), Blobs())
