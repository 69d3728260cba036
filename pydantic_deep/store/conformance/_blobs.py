"""`BlobStoreSuite`: the rules for implementations of `BlobStore`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from pydantic_deep.store._blob_store import BlobEntry, BlobStore

_CHUNK = bytes(range(256)) * 4096
"""One mebibyte."""

_CLOCK_SECONDS = 60
"""Maximum difference between the clocks of the storage and of the test."""


async def _chunks(count: int, failure: BaseException | None = None) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield _CHUNK
    if failure is not None:
        raise failure


class BlobStoreSuite:
    """The contract of `BlobStore` as a test suite. Requires pytest and anyio's pytest plugin.

    Subclass it in a test module and provide a fixture `blobs`: storage that is empty for each test.
    """

    # Coverage loses lines of a test that follow a call of obstore, not always the same ones.

    pytestmark: ClassVar[list[pytest.MarkDecorator]] = [pytest.mark.anyio]

    async def test_contents_are_read_unchanged(self, blobs: BlobStore) -> None:  # pragma: no cover
        for number, data in enumerate((b'', b'x', _CHUNK * 6)):
            await blobs.put(f's/aa/{number}', data)
            assert await self.read(blobs, f's/aa/{number}') == data

    async def test_chunks_are_stored_as_one(self, blobs: BlobStore) -> None:  # pragma: no cover
        await blobs.put('s/aa/many', _chunks(12))
        await blobs.put('s/aa/none', _chunks(0))
        assert await self.read(blobs, 's/aa/many') == _CHUNK * 12
        assert await self.read(blobs, 's/aa/none') == b''

    async def test_large_contents_are_read_in_chunks(self, blobs: BlobStore) -> None:  # pragma: no cover
        await blobs.put('s/aa/large', _chunks(12))
        assert max([len(chunk) async for chunk in blobs.get('s/aa/large')]) <= 8 * len(_CHUNK)

    async def test_failed_chunks_store_nothing_and_raise_their_error(
        self, blobs: BlobStore
    ) -> None:  # pragma: no cover
        with pytest.raises(ValueError, match='the chunks failed'):
            await blobs.put('s/aa/failed', _chunks(12, ValueError('the chunks failed')))
        assert await self.entries(blobs, 's') == []

    async def test_cancelled_upload_stores_nothing(self, blobs: BlobStore) -> None:  # pragma: no cover
        started = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield _CHUNK
                started.set()
                await asyncio.sleep(0.01)

        upload = asyncio.ensure_future(blobs.put('s/aa/cancelled', endless()))
        await started.wait()
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert await self.entries(blobs, 's') == []

    async def test_missing_blob_is_not_found(self, blobs: BlobStore) -> None:  # pragma: no cover
        with pytest.raises(FileNotFoundError):
            await self.read(blobs, 's/aa/missing')

    async def test_blobs_below_a_prefix_are_listed_with_size_and_time(
        self, blobs: BlobStore
    ) -> None:  # pragma: no cover
        before = time.time()
        for name in ('s/aa/1', 's/bb/2', 'st/aa/3', 't/s/4'):
            await blobs.put(name, b'x' * 10)
        entries = await self.entries(blobs, 's')
        assert [(entry.name, entry.size_bytes) for entry in entries] == [('s/aa/1', 10), ('s/bb/2', 10)]
        assert all(abs(entry.modified_at / 1e6 - before) < _CLOCK_SECONDS for entry in entries)
        assert await self.entries(blobs, 'other') == []

    async def test_concurrent_uploads_are_all_stored(self, blobs: BlobStore) -> None:  # pragma: no cover
        await asyncio.gather(*(blobs.put(f's/{number % 7}/{number}', b'%d' % number) for number in range(100)))
        assert len(await self.entries(blobs, 's')) == 100
        assert await self.read(blobs, 's/1/50') == b'50'

    async def test_deleted_blobs_are_gone_and_missing_ones_are_ignored(
        self, blobs: BlobStore
    ) -> None:  # pragma: no cover
        for name in ('s/aa/1', 's/aa/2', 's/aa/3'):
            await blobs.put(name, b'x')
        await blobs.delete(['s/aa/missing', 's/aa/1', 's/aa/3'])
        await blobs.delete(['s/aa/1'])
        assert [entry.name for entry in await self.entries(blobs, 's')] == ['s/aa/2']

    @staticmethod
    async def read(blobs: BlobStore, name: str) -> bytes:
        """Return the contents of a blob."""
        return b''.join([chunk async for chunk in blobs.get(name)])

    @staticmethod
    async def entries(blobs: BlobStore, prefix: str) -> list[BlobEntry]:
        """Return all blobs below a prefix, sorted by name."""
        return sorted([entry async for page in blobs.list(prefix) for entry in page])
