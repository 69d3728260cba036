"""Large contents of a store in S3, Google Cloud Storage, Azure, a directory or memory. Requires the extra `blobs`.

One implementation of `BlobStore` for all, on `obstore`. Importing `pydantic_deep.store` does not import this module;
`open_store` does if it is called with a URL for `blobs`.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterable, AsyncIterator, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

try:
    import obstore.store
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        'Contents in object storage need `obstore`, which is not installed. Install the extra: '
        "`pip install 'versioned-deep-agents[blobs]'`.",
        name=_error.name,
    ) from _error

from obstore.exceptions import BaseError

from ._blob_store import BlobEntry
from .errors import StoreUnavailableError

_CHUNK_BYTES: Final = 1024 * 1024
"""Size of the chunks that are read: hashing one takes a millisecond."""

_MAX_CHUNK_BYTES: Final = 4 * _CHUNK_BYTES

_PART_BYTES: Final = 5 * 1024 * 1024
"""Size of the parts of an upload, the minimum of S3."""

_MAX_PARTS: Final = 3
"""Maximum number of parts in memory at once. More would be faster, and take more memory than a small file."""

_PAGE: Final = 1000
"""Number of objects in a page of a list."""

_FORMS: Final = (
    'Write "s3://bucket/prefix", "gs://bucket/prefix", "az://container/prefix", "file:///srv/blobs" for a directory, '
    'or "memory:".'
)


class ObjectStorage:
    """A `BlobStore` on a store of `obstore`.

    Args:
        store: The store, such as `obstore.store.S3Store('bucket', prefix='agents', endpoint=…)`.
        url: Its location, for errors; by default its `repr`.
    """

    def __init__(self, store: obstore.store.ObjectStore, *, url: str | None = None) -> None:
        self._store = store
        self._url = repr(store) if url is None else url

    @classmethod
    def open(cls, url: str) -> ObjectStorage:
        """Open the storage at a URL.

        Credentials and other settings are those of the environment: `AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`,
        `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME` and so on, or the identity of the machine.

        Args:
            url: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///srv/blobs` or `memory:`.
                A directory is created if it is missing.

        Raises:
            ValueError: The URL has none of these forms, or settings are missing.
            StoreUnavailableError: The directory cannot be created.
        """
        scheme, colon, rest = url.partition(':')
        if url == 'memory:':
            return cls(obstore.store.MemoryStore(), url=url)
        if scheme == 'file' and rest.startswith('///') and len(rest) > 3:
            try:
                return _Directory(Path(unquote(rest[2:])), url=url)
            except OSError as error:
                raise StoreUnavailableError(
                    f'The object storage at {url!r} cannot be used: {_first_line(error)}. Name a directory that can be '
                    'written.'
                ) from error
        if not colon or scheme not in ('s3', 'gs', 'az') or not rest.startswith('//'):
            raise ValueError(f'There is no object storage at {_without_secrets(url)!r}. {_FORMS}')
        if _without_secrets(url) != url:
            raise ValueError(
                f'The URL of the object storage {_without_secrets(url)!r} has credentials or options. Set them in the '
                'environment, such as AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL.'
            )
        try:
            return cls(obstore.store.from_url(url), url=url)
        except BaseError as error:
            raise ValueError(f'The object storage at {url!r} cannot be used: {_first_line(error)}. {_FORMS}') from None

    @property
    def url(self) -> str:
        """The location, for errors."""
        return self._url

    async def put(self, name: str, contents: bytes | AsyncIterable[bytes]) -> None:
        """Store contents; chunks are uploaded in parts."""
        with self._errors():
            await obstore.put_async(self._store, name, contents, chunk_size=_PART_BYTES, max_concurrency=_MAX_PARTS)

    async def get(self, name: str) -> AsyncIterator[bytes]:
        """Yield the contents in chunks."""
        with self._errors():
            async for chunk in (await obstore.get_async(self._store, name)).stream(min_chunk_size=_CHUNK_BYTES):
                for start in range(0, len(chunk), _MAX_CHUNK_BYTES):  # memory has contents in one piece
                    yield chunk[start : start + _MAX_CHUNK_BYTES]

    async def list(self, prefix: str) -> AsyncIterator[Sequence[BlobEntry]]:
        """Yield pages of all blobs below a prefix."""
        with self._errors():
            pages = obstore.list(self._store, prefix, chunk_size=_PAGE)  # pyright: ignore[reportUnknownMemberType] - another overload needs arrow
            async for page in pages:
                yield [
                    BlobEntry(each['path'], each['size'], int(each['last_modified'].timestamp() * 1_000_000))
                    for each in page
                ]

    async def delete(self, names: Sequence[str]) -> None:
        """Remove blobs."""
        with self._errors():
            try:
                await obstore.delete_async(self._store, names)
            except FileNotFoundError:  # the rest was not removed
                for name in names:
                    with suppress(FileNotFoundError):
                        await obstore.delete_async(self._store, name)

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f'{self._url}: {_first_line(error)}') from None
        except BaseError as error:
            raise OSError(f'{self._url}: {_first_line(error)}') from None  # its text may contain a password


class _Directory(ObjectStorage):
    """A directory. Files survive a power loss: `obstore` does not synchronize them with the disk."""

    def __init__(self, path: Path, *, url: str) -> None:
        super().__init__(obstore.store.LocalStore(path, mkdir=True), url=url)
        self._path = path

    async def put(self, name: str, contents: bytes | AsyncIterable[bytes]) -> None:
        """Store contents, and synchronize the file and its directories with the disk."""
        await super().put(name, contents)
        await asyncio.to_thread(self._synchronize, self._path / name)

    def _synchronize(self, file: Path) -> None:
        paths = [file] if sys.platform == 'win32' else [file, *file.relative_to(self._path).parents]
        for path in paths:
            descriptor = os.open(self._path / path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _first_line(error: Exception) -> str:
    """Return the message of an error of `obstore`, without its debugging details and the password of an endpoint."""
    return re.sub(r'(?<=://)[^/\s@]+@', '', str(error).partition('\n')[0])


def _without_secrets(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    return re.sub(r'(?<=://)[^/]*@', '', re.split('[?#]', url, maxsplit=1)[0])
