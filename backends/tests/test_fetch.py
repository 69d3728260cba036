"""Contents for a restore: fetched before the first change and verified by their digests."""

from __future__ import annotations

import pytest

from pydantic_deep_backends import FileVersion, MissingBlobError, StateBackend, Tree, digest_of

pytestmark = pytest.mark.anyio


async def test_snapshot_of_the_same_backend_is_restored_without_a_reader() -> None:
    backend = StateBackend({'/a': '1', '/d/b': '2'})
    before = await backend.snapshot()
    await backend.write_bytes('/a', b'changed')
    await backend.remove('/d')
    await backend.write_bytes('/d', b'a file now')
    await backend.restore(before)
    assert await backend.snapshot() == before
    assert await backend.read_bytes('/d/b') == b'2'


async def test_tree_of_another_instance_carries_its_contents() -> None:
    tree = await StateBackend({'/a': '1'}).snapshot()
    backend = StateBackend()
    await backend.restore(tree)
    assert await backend.read_bytes('/a') == b'1'


async def test_each_content_is_fetched_once() -> None:
    fetched: list[str] = []

    async def read_blob(digest: str) -> bytes:
        fetched.append(digest)
        return b'x'

    version = FileVersion(digest=digest_of(b'x'), size=1)
    await StateBackend().restore(Tree.of({'/a': version, '/b': version}), read_blob)
    assert fetched == [version.digest]


async def test_concurrent_write_during_a_fetch_does_not_corrupt_a_restore() -> None:
    wanted = Tree.of({f'/{text}': FileVersion(digest=digest_of(text.encode()), size=1) for text in 'ab'})
    backend = StateBackend({'/a': 'a'})

    async def read_blob(digest: str) -> bytes:
        if digest == digest_of(b'b'):
            await backend.remove('/a')  # its contents are gone, and must be fetched after all
            return b'b'
        return b'a'

    await backend.restore(wanted, read_blob)
    assert await backend.snapshot() == wanted


async def test_contents_with_a_wrong_digest_are_refused() -> None:
    async def read_blob(digest: str) -> bytes:
        return b'other'

    backend = StateBackend({'/keep': '1'})
    with pytest.raises(MissingBlobError):
        await backend.restore(Tree.of({'/a': FileVersion(digest=digest_of(b'x'), size=1)}), read_blob)
    assert await backend.exists('/keep')
