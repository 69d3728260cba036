"""Downloads of version files: a single file, or all files as an archive."""

from __future__ import annotations

import gzip
import io
import logging
import tarfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote

import anyio.to_thread
from starlette.responses import StreamingResponse
from starlette.types import Send

from pydantic_deep.store import SqlStore, StoreUnavailableError
from pydantic_deep_backends import Tree

_LOGGER = logging.getLogger('pydantic_deep')


class _Buffer(io.BytesIO):
    """Buffers the bytes written since the last `take`."""

    def take(self) -> bytes:
        """Return the buffered bytes, and empty the buffer."""
        chunk = self.getvalue()
        self.seek(0)
        self.truncate()
        return chunk


async def archive(store: SqlStore, tree: Tree, *, top: str, moment: int) -> AsyncGenerator[bytes]:
    """Yield the files of a tree as a gzipped tar, in chunks. The same tree gives the same members.

    Args:
        store: The store that contains the file contents.
        tree: The files to archive.
        top: The top-level directory within the archive.
        moment: The modification time of all members, in seconds since 1970.
    """
    buffer = _Buffer()
    with gzip.GzipFile(fileobj=buffer, mode='wb', mtime=moment) as packed:
        for path, version in tree.items():
            member = tarfile.TarInfo(f'{top}{path}')
            member.size, member.mode, member.mtime = version.size, version.mode, moment
            packed.write(member.tobuf(tarfile.PAX_FORMAT))
            async with aclosing(store.stream_asset(version.digest)) as chunks:
                async for chunk in chunks:
                    await anyio.to_thread.run_sync(packed.write, chunk)
                    yield buffer.take()
            packed.write(b'\0' * (-version.size % tarfile.BLOCKSIZE))
        packed.write(b'\0' * tarfile.BLOCKSIZE * 2)
    yield buffer.take()


async def begun(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Return the same chunks after the first was read, so that an error before it is a response instead of a cut one."""
    first = await anext(chunks)

    async def all_chunks() -> AsyncGenerator[bytes]:
        async with aclosing(chunks):
            yield first
            async for chunk in chunks:
                yield chunk

    return all_chunks()


class Download(StreamingResponse):
    """A download, which a failure of the storage cuts off: without its end, the server closes the connection, so that
    clients do not take it for complete.
    """

    async def stream_response(self, send: Send) -> None:
        """Send the chunks."""
        try:
            await super().stream_response(send)
        except StoreUnavailableError as error:
            _LOGGER.warning('A download was cut off: %s', error)


def attachment(name: str) -> str:
    """Return a `Content-Disposition` for saving a file under any name (RFC 6266, RFC 8187)."""
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"
