"""Contents in memory: stored once, as long as a tree refers to them."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from pydantic_deep_backends import FileVersion, MissingBlobError, StateBackend, Tree, digest_of

pytestmark = pytest.mark.anyio


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
