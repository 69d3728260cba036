"""Downloads of version files: a single file, or all files as an archive."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncGenerator
from urllib.parse import quote

import anyio.to_thread

from pydantic_deep.store import Store
from pydantic_deep_backends import Tree


class _Buffer(io.BytesIO):
    """Buffers the bytes written since the last `take`."""

    def take(self) -> bytes:
        """Return the buffered bytes, and empty the buffer."""
        chunk = self.getvalue()
        self.seek(0)
        self.truncate()
        return chunk


async def archive(store: Store, tree: Tree, *, top: str, moment: int) -> AsyncGenerator[bytes]:
    """Yield the files of a tree as a gzipped tar, one file in memory at a time. The same tree gives the same members.

    Args:
        store: The store that contains the file contents.
        tree: The files to archive.
        top: The top-level directory within the archive.
        moment: The modification time of all members, in seconds since 1970.
    """
    buffer = _Buffer()
    with tarfile.open(fileobj=buffer, mode='w|gz', format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(tree):
            version = tree[path]
            data = await store.read_asset(version.digest)
            member = tarfile.TarInfo(f'{top}{path}')
            member.size, member.mode, member.mtime = len(data), version.mode, moment
            await anyio.to_thread.run_sync(tar.addfile, member, io.BytesIO(data))
            yield buffer.take()
    yield buffer.take()


def attachment(name: str) -> str:
    """Return a `Content-Disposition` for saving a file under any name (RFC 6266, RFC 8187)."""
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"
