"""`AssetBlobs`: the blobs of one store, which have the contents of large assets.

A blob is uploaded before the transaction that stores its row. Its name is `STORE/ab/abcd…-RANDOM`: the id of the store,
the digest of the contents, and a random suffix. So a blob is named by one row or by none, stores can share a bucket,
and removing a blob without a row never affects a commit in progress, which has a name of its own. Contents that a
row has already are not uploaded again.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final, cast

from ._blob_store import BlobStore
from .engine import Engine
from .errors import StoreCorruptedError, StoreError, StoreUnavailableError
from .operations import _reads
from .records import NewAsset
from .sql._commit_rows import is_large

MAX_STREAM_BYTES: Final = 10_000 * 5 * 2**20
"""Maximum size of content in chunks, 48.8 GiB: the 10,000 parts of an object in S3, of 5 MiB each."""

_CONCURRENT: Final = 8
"""Maximum number of concurrent uploads of one commit."""


class AssetBlobs:
    """The blobs of a store.

    Args:
        engine: The database of the store.
        blobs: The storage.
    """

    def __init__(self, engine: Engine, blobs: BlobStore) -> None:
        self._engine = engine
        self._blobs = blobs
        self._store_id = ''

    async def put_large(self, assets: Sequence[NewAsset]) -> dict[str, str]:
        """Upload the large contents of a commit that no row has; return the names of their blobs by digest."""
        data_by_digest = {asset.digest: asset.data for asset in assets if is_large(asset)}
        if not data_by_digest:
            return {}
        known = await self._engine.read(partial(_reads.has_assets, data_by_digest))
        names = {digest: await self._new_name(digest) for digest in data_by_digest if digest not in known}
        waiting = iter(names.items())
        while batch := list(islice(waiting, _CONCURRENT)):
            uploads = [self._upload(name, data_by_digest[digest]) for digest, name in batch]
            for result in await asyncio.gather(*uploads, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
        return names

    async def put(self, digest: str, chunks: AsyncIterable[bytes]) -> tuple[str, int]:
        """Upload content in chunks; return the name of the blob and its size.

        Raises:
            ValueError: The chunks have another digest; nothing was stored.
        """
        name, size_bytes = await self._new_name(digest), 0
        failure: OSError | None = None

        async def verified() -> AsyncGenerator[bytes]:
            nonlocal size_bytes, failure
            actual = hashlib.sha256()
            try:
                async for chunk in chunks:
                    actual.update(chunk)
                    size_bytes += len(chunk)
                    yield chunk
            except OSError as error:
                failure = error
                raise
            if digest != f'sha256:{actual.hexdigest()}':
                raise ValueError(
                    f'The chunks have the digest sha256:{actual.hexdigest()}, not {digest!r}. Hash them again.'
                )

        try:
            await self._upload(name, verified())
        except StoreUnavailableError:
            if failure is not None:
                raise failure from None  # of the chunks, not of the storage
            raise
        return name, size_bytes

    async def get(self, digest: str, name: str) -> AsyncGenerator[bytes]:
        """Yield the content of a blob. Raises `StoreCorruptedError` if it is missing or has another digest."""
        actual = hashlib.sha256()
        with self._errors('read'):
            chunks = self._blobs.get(name)
            try:
                async for chunk in chunks:
                    actual.update(chunk)
                    yield chunk
            except FileNotFoundError:
                problem = f'its blob {name} is missing from {self._blobs.url}'
                raise StoreCorruptedError('asset', digest, problem) from None
            finally:
                if isinstance(chunks, AsyncGenerator):  # a reader that stops early ends the request now
                    await cast('AsyncGenerator[bytes]', chunks).aclose()
        if digest != f'sha256:{actual.hexdigest()}':
            raise StoreCorruptedError('asset', digest, f'its blob {name} in {self._blobs.url} has another digest')

    async def collect(self, *, before: int) -> tuple[int, int]:
        """Remove blobs that no row names and that are older than a time; return their number and total size."""
        count = freed_bytes = 0
        with self._errors('read'):
            async for page in self._blobs.list(await self._read_store_id()):
                size_by_name = {entry.name: entry.size_bytes for entry in page if entry.modified_at <= before}
                digests = {_digest_in(name) for name in size_by_name}
                for name in await self._engine.read(partial(_reads.blobs_of, digests)):
                    size_by_name.pop(name, None)
                if size_by_name:
                    await self._blobs.delete(list(size_by_name))
                    count += len(size_by_name)
                    freed_bytes += sum(size_by_name.values())
        return count, freed_bytes

    async def _upload(self, name: str, contents: bytes | AsyncIterable[bytes]) -> None:
        with self._errors('written'):
            await self._blobs.put(name, contents)

    async def _new_name(self, digest: str) -> str:
        digits = digest.partition(':')[2]
        return f'{await self._read_store_id()}/{digits[:2]}/{digits}-{secrets.token_hex(8)}'

    async def _read_store_id(self) -> str:
        if not self._store_id:
            self._store_id = await self._engine.read(_reads.store_id)
        return self._store_id

    @contextmanager
    def _errors(self, verb: str) -> Generator[None]:
        """Report an unusable storage as an unavailable store."""
        try:
            yield
        except StoreError:
            raise
        except OSError as error:
            raise StoreUnavailableError(
                f'The object storage of the store cannot be {verb}: {error}. Try again when it is available.'
            ) from error


def _digest_in(name: str) -> str:
    return f'sha256:{name.rpartition("/")[2].partition("-")[0]}'
