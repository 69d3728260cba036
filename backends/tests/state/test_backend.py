"""What only `StateBackend` promises: memory, snapshots that cost nothing, contents that live as long as a tree."""

from __future__ import annotations

import gc
import tracemalloc

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

pytestmark = pytest.mark.anyio


def test_it_has_every_capability_but_commands() -> None:
    backend = StateBackend()
    for protocol in (BackendProtocol, SupportsSearch, SupportsCompareAndSwap, SupportsSnapshots):
        assert isinstance(backend, protocol)
    assert not isinstance(backend, SupportsCommands)


def test_every_instance_has_a_ref_of_its_own() -> None:
    one, two = StateBackend(), StateBackend()
    assert isinstance(one.ref, BackendRef)
    assert one.ref == one.ref
    assert one.ref.provider == two.ref.provider == 'state'
    assert one.ref.id != two.ref.id


async def test_text_is_stored_as_utf_8() -> None:
    backend = StateBackend({'/a': 'é', '/d/b': b'\xff'})
    assert await backend.read_bytes('/a') == 'é'.encode()
    assert await backend.read_bytes('/d/b') == b'\xff'


def test_the_first_files_are_checked_like_written_ones() -> None:
    with pytest.raises(InvalidPathError):
        StateBackend({'../a': ''})
    with pytest.raises(NotADirectoryError):
        StateBackend({'/a': '', '/a/b': ''})
    with pytest.raises(IsADirectoryError):
        StateBackend({'/a/b': '', '/a': ''})


async def test_contents_cannot_be_changed_from_outside() -> None:
    backend = StateBackend()
    data = bytearray(b'one')
    await backend.write_bytes('/a', data)  # pyright: ignore[reportArgumentType] - callers without a type checker
    data[:] = b'two'
    assert await backend.read_bytes('/a') == b'one'


def test_the_representation_shows_counts_and_no_contents() -> None:
    assert repr(StateBackend({'/a': 'secret', '/b': b'x' * 1000})) == '<StateBackend of 2 files, 1,006 bytes>'


async def test_a_version_of_a_snapshot_shows_no_contents() -> None:
    tree = await StateBackend({'/a': 'secret'}).snapshot()
    assert repr(tree.get('/a')) == f'FileVersion(digest={digest_of(b"secret")!r}, size=6, mode=0o644)'


# Memory


async def test_a_snapshot_is_the_tree_that_is_there() -> None:
    backend = StateBackend({'/a': '1'})
    assert await backend.snapshot() is await backend.snapshot()


async def test_equal_contents_are_kept_once() -> None:
    backend = StateBackend()
    for number in range(10):
        await backend.write_bytes(f'/{number}', bytes(bytearray(b'same')))
    assert len({id(await backend.read_bytes(f'/{number}')) for number in range(10)}) == 1


@pytest.mark.slow
async def test_memory_is_little_more_than_the_payload() -> None:
    payload = 100 * 10_000
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        backend = StateBackend()
        for number in range(100):
            await backend.write_bytes(f'/src/file-{number}.txt', bytes([number]) * 10_000)
            await backend.snapshot()
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert payload <= used <= 1.2 * payload


async def test_contents_go_when_no_tree_names_them() -> None:
    backend = StateBackend({'/a': 'x' * 1000})
    tree = await backend.snapshot()
    await backend.remove('/a')
    plain = Tree.of({'/a': FileVersion(digest=digest_of(b'x' * 1000), size=1000)})
    await backend.restore(plain)  # the contents are found, because `tree` still holds them
    assert await backend.snapshot() == tree
    await backend.remove('/a')
    del tree
    gc.collect()
    with pytest.raises(MissingBlobError):
        await backend.restore(plain)


# Restore


async def test_an_own_tree_is_restored_without_a_reader() -> None:
    backend = StateBackend({'/a': '1', '/d/b': '2'})
    before = await backend.snapshot()
    await backend.write_bytes('/a', b'changed')
    await backend.remove('/d')
    await backend.write_bytes('/d', b'a file now')
    await backend.restore(before)
    assert await backend.snapshot() == before
    assert await backend.read_bytes('/d/b') == b'2'


async def test_a_tree_of_another_instance_brings_its_contents() -> None:
    tree = await StateBackend({'/a': '1'}).snapshot()
    backend = StateBackend()
    await backend.restore(tree)
    assert await backend.read_bytes('/a') == b'1'


async def test_contents_of_a_file_that_goes_are_those_of_a_file_that_comes() -> None:
    backend = StateBackend({'/a': 'text'})
    wanted = Tree.of({'/b': FileVersion(digest=digest_of(b'text'), size=4)})
    await backend.restore(wanted)
    assert await backend.snapshot() == wanted
    assert await backend.read_bytes('/b') == b'text'


async def test_contents_that_came_with_a_tree_of_another_backend_are_found() -> None:
    backend = StateBackend()
    await backend.restore(await StateBackend({'/a': 'text'}).snapshot())
    wanted = Tree.of({'/b': FileVersion(digest=digest_of(b'text'), size=4)})
    await backend.restore(wanted)
    assert await backend.read_bytes('/b') == b'text'


async def test_a_mode_survives_restore_and_write() -> None:
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


async def test_each_content_is_fetched_once() -> None:
    fetched: list[str] = []

    async def read_blob(digest: str) -> bytes:
        fetched.append(digest)
        return b'x'

    version = FileVersion(digest=digest_of(b'x'), size=1)
    await StateBackend().restore(Tree.of({'/a': version, '/b': version}), read_blob)
    assert fetched == [version.digest]


async def test_a_write_while_contents_are_fetched_does_not_spoil_the_result() -> None:
    wanted = Tree.of({f'/{text}': FileVersion(digest=digest_of(text.encode()), size=1) for text in 'ab'})
    backend = StateBackend({'/a': 'a'})

    async def read_blob(digest: str) -> bytes:
        if digest == digest_of(b'b'):
            await backend.remove('/a')  # its contents are gone now, and must be fetched after all
            return b'b'
        return b'a'

    await backend.restore(wanted, read_blob)
    assert await backend.snapshot() == wanted


async def test_a_reader_that_returns_other_contents_is_not_believed() -> None:
    async def read_blob(digest: str) -> bytes:
        return b'other'

    backend = StateBackend({'/keep': '1'})
    with pytest.raises(MissingBlobError):
        await backend.restore(Tree.of({'/a': FileVersion(digest=digest_of(b'x'), size=1)}), read_blob)
    assert await backend.exists('/keep')


# Empty directories


async def names_in(backend: StateBackend, path: str) -> list[str]:
    return [entry.name for entry in await backend.list_dir(path)]


async def test_an_empty_directory_is_listed_and_not_part_of_the_tree() -> None:
    backend = StateBackend()
    await backend.make_dir('/a/b')
    assert await names_in(backend, '/') == ['a']
    assert await names_in(backend, '/a') == ['b']
    assert await names_in(backend, '/a/b') == []
    assert (await backend.snapshot()) == Tree()


async def test_a_directory_stays_when_its_last_file_is_removed() -> None:
    backend = StateBackend({'/a/b/c': ''})
    await backend.remove('/a/b/c')
    assert await names_in(backend, '/a') == ['b']
    await backend.remove('/a/b')
    assert await names_in(backend, '/') == ['a']
    await backend.remove('/a')
    assert await names_in(backend, '/') == []


async def test_a_directory_with_empty_directories_is_removed_whole() -> None:
    backend = StateBackend({'/a/file': ''})
    await backend.make_dir('/a/b/c')
    await backend.make_dir('/a/b/d')
    await backend.remove('/a')
    assert not await backend.exists('/a')
    assert not await backend.exists('/a/b/c')


async def test_an_empty_directory_can_be_filled() -> None:
    backend = StateBackend()
    await backend.make_dir('/a')
    await backend.write_bytes('/a/b/c', b'')
    await backend.make_dir('/a/b')
    assert await names_in(backend, '/a') == ['b']
    await backend.remove('/a/b')
    assert await names_in(backend, '/') == ['a']


async def test_a_restored_file_takes_the_place_of_empty_directories() -> None:
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


async def test_directories_that_a_restore_empties_are_gone() -> None:
    backend = StateBackend()
    await backend.make_dir('/empty')
    before = await backend.snapshot()
    await backend.write_bytes('/a/b/c', b'')
    await backend.restore(before)
    assert await names_in(backend, '/') == ['empty']


# Search sees one moment


async def test_a_search_reads_bytes_without_a_copy_and_finds_what_is_there() -> None:
    backend = StateBackend({'/a.py': 'x = 1\n', '/d/b.py': 'x = 2\n', '/d/c.txt': 'x\n'})
    await backend.make_dir('/empty')
    assert (await backend.glob('**/*.py')).paths == ('/a.py', '/d/b.py')
    assert (await backend.glob('**', '/empty')).paths == ()
    assert (await backend.glob('none/*')).paths == ()
    assert (await backend.grep('x', '/', glob='**/*.py')).counts == {'/a.py': 1, '/d/b.py': 1}
    assert (await backend.grep('x', '/d/c.txt')).counts == {'/d/c.txt': 1}
