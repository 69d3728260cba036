"""In-memory contents: stored once, for as long as a tree refers to them."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from pydantic_deep_backends import FileVersion, MissingBlobError, StateBackend, Tree, digest_of

pytestmark = pytest.mark.anyio


async def test_equal_contents_are_stored_once() -> None:
    backend = StateBackend()
    for number in range(10):
        await backend.write_bytes(f'/{number}', bytes(bytearray(b'same')))
    assert len({id(await backend.read_bytes(f'/{number}')) for number in range(10)}) == 1


@pytest.mark.slow
async def test_memory_use_is_close_to_the_payload() -> None:
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


async def test_contents_are_released_with_the_last_tree() -> None:
    backend = StateBackend({'/a': 'x' * 1000})
    tree = await backend.snapshot()
    await backend.remove('/a')
    plain = Tree.of({'/a': FileVersion(digest=digest_of(b'x' * 1000), size=1000)})
    await backend.restore(plain)  # the contents are available, because `tree` still holds them
    assert await backend.snapshot() == tree
    await backend.remove('/a')
    del tree
    gc.collect()
    with pytest.raises(MissingBlobError):
        await backend.restore(plain)


async def test_restore_takes_contents_from_a_removed_file() -> None:
    backend = StateBackend({'/a': 'text'})
    wanted = Tree.of({'/b': FileVersion(digest=digest_of(b'text'), size=4)})
    await backend.restore(wanted)
    assert await backend.snapshot() == wanted
    assert await backend.read_bytes('/b') == b'text'


async def test_contents_restored_from_another_backend_are_available() -> None:
    backend = StateBackend()
    await backend.restore(await StateBackend({'/a': 'text'}).snapshot())
    wanted = Tree.of({'/b': FileVersion(digest=digest_of(b'text'), size=4)})
    await backend.restore(wanted)
    assert await backend.read_bytes('/b') == b'text'
