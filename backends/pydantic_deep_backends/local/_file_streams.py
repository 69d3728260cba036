"""Large files in chunks, which never are in memory as a whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import closing
from functools import partial
from typing import Protocol, TypeVar

from pydantic_deep_backends._threads import run_to_completion
from pydantic_deep_backends.errors import MissingBlobError
from pydantic_deep_backends.files._confined_root import OpenRoot
from pydantic_deep_backends.files._directories import Directories
from pydantic_deep_backends.files._operations import open_file, write_all
from pydantic_deep_backends.paths import path_parts
from pydantic_deep_backends.trees._nodes import ALGORITHM

T = TypeVar('T')

_CHUNK_BYTES = 1_048_576
"""Size of a chunk: it takes a millisecond to read or hash."""


class RunAtRoot(Protocol):
    """Runs an operation on a whole directory in a worker thread."""

    def __call__(self, operation: Callable[[OpenRoot], T]) -> Awaitable[T]:
        """Return the result of the operation."""
        ...


def hash_file(descriptor: int, checkpoint: Callable[[], None]) -> tuple[str, int]:
    """Return the digest and the size of an open file. `checkpoint` is called before each chunk, and may raise."""
    digest, size = hashlib.new(ALGORITHM), 0
    checkpoint()
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
        checkpoint()
    return f'{ALGORITHM}:{digest.hexdigest()}', size


async def read_stream(run_at_root: RunAtRoot, path: str, max_bytes: int) -> AsyncGenerator[bytes]:
    """Yield the contents of a file, which is opened again for each chunk. Raises `OSError` if that is not possible."""
    position = 0
    while chunk := await run_at_root(partial(_read_at, path, position, max_bytes)):
        position += len(chunk)
        yield chunk


async def write_stream(
    descriptor: int, chunks: AsyncIterable[bytes], path: str, digest: str, *, is_durable: bool
) -> None:
    """Append chunks to an open file. Raises `MissingBlobError` if they have another digest."""
    actual = hashlib.new(ALGORITHM)
    async for chunk in chunks:
        actual.update(chunk)
        await run_to_completion(partial(write_all, descriptor, chunk))
    if digest != f'{ALGORITHM}:{actual.hexdigest()}':
        raise MissingBlobError((path,))
    if is_durable:
        await run_to_completion(partial(os.fsync, descriptor))


def _read_at(path: str, position: int, max_bytes: int, root: OpenRoot) -> bytes:
    *above, name = path_parts(path)
    with closing(Directories(root)) as directories:
        descriptor, status = open_file(directories.open(tuple(above)), name, max_bytes)
        try:
            root.check_links(status)
            return os.pread(descriptor, _CHUNK_BYTES, position)
        finally:
            os.close(descriptor)
