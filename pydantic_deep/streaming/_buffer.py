"""`WindowedBuffer`: text of any length with bounded memory. The excess goes to a `Spill`: a file, or stored assets."""

from __future__ import annotations

import tempfile
import weakref
from typing import BinaryIO, Final, Protocol, cast, runtime_checkable

from pydantic_deep.store import Commit, NewAsset, Store
from pydantic_deep_backends.snapshots import digest_of

WINDOW_BYTES: Final = 256 * 1024
"""Default number of bytes kept in memory. Nearly every model response is shorter."""

_SURROGATES: Final = 'surrogatepass'
"""Error handler that preserves lone surrogates, which Python strings may contain."""


@runtime_checkable
class Spill(Protocol):
    """Storage for the part of a buffer that is no longer in memory. Each spill belongs to one buffer."""

    async def write(self, data: bytes) -> None:
        """Append `data`. If this raises or is cancelled, nothing was appended."""
        ...

    async def read(self) -> bytes:
        """Return everything that was written."""
        ...

    async def aclose(self) -> None:
        """Release open resources. Calling this again has no effect."""
        ...


class FileSpill:
    """An unnamed temporary file that only this process can open. It is removed when closed or garbage-collected.

    Reads and writes block the event loop: each piece is a fraction of a window and goes to the page cache. A thread
    would continue writing after its task is cancelled, and the piece would be written twice.
    """

    def __init__(self) -> None:
        """Open the file in the system's temporary directory."""
        self._file = cast(BinaryIO, tempfile.TemporaryFile(buffering=0))  # noqa: SIM115  # the next line closes it
        self._close = weakref.finalize(self, self._file.close)

    async def write(self, data: bytes) -> None:
        """Append `data`. A failed write is rolled back."""
        end = self._file.seek(0, 2)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(end)
            raise

    async def read(self) -> bytes:
        """Return everything that was written."""
        self._file.seek(0)
        return self._file.read()

    async def aclose(self) -> None:
        """Close and remove the file."""
        self._close()


class AssetSpill:
    """One store asset per piece: the data survives a crash, and other processes can read it.

    No version refers to these assets. Two garbage collections that are an hour apart remove them, unless stored data
    mentions their digests.
    """

    def __init__(self, store: Store) -> None:
        """Spill to `store`, which must stay open while this object is used."""
        self._store = store
        self.digests: list[str] = []
        """Digests of the assets in order. Their concatenated contents are the data that was written."""

    async def write(self, data: bytes) -> None:
        """Append `data` durably."""
        asset = NewAsset(digest=digest_of(data), data=data)
        await self._store.commit(Commit(assets=[asset]))
        self.digests.append(asset.digest)

    async def read(self) -> bytes:
        """Return everything that was written."""
        return b''.join([await self._store.read_asset(digest) for digest in self.digests])

    async def aclose(self) -> None:
        """Do nothing: the assets remain, and the caller owns the store."""


class WindowedBuffer:
    """Append-only text that holds its end in memory and everything before it in a `Spill`.

    `aclose` releases the spill early; otherwise a file is removed when this object is garbage-collected.
    """

    def __init__(self, *, window_bytes: int = WINDOW_BYTES, spill: Spill | None = None) -> None:
        """Create an empty buffer.

        Args:
            window_bytes: Maximum number of UTF-8 bytes in memory. At least half of it holds the end of the text.
            spill: Storage for the rest. By default, a `FileSpill` is created on first use.
        """
        if window_bytes < 1:
            raise ValueError(f'window_bytes={window_bytes} is too small: the window needs at least 1 byte.')
        self._window_bytes = window_bytes
        self._window = bytearray()
        self._spill = spill
        self.spilled_bytes: int = 0
        """Number of bytes in the spill."""

    @property
    def memory_bytes(self) -> int:
        """Number of bytes in memory."""
        return len(self._window)

    @property
    def size_bytes(self) -> int:
        """Size of the whole text in bytes."""
        return self.spilled_bytes + len(self._window)

    async def append(self, text: str) -> None:
        """Append `text`. If spilling fails, its error is raised, no text is lost, and the next call retries."""
        self._window += text.encode(errors=_SURROGATES)
        if len(self._window) > self._window_bytes:
            if self._spill is None:
                self._spill = FileSpill()
            cut = len(self._window) - self._window_bytes // 2
            await self._spill.write(bytes(memoryview(self._window)[:cut]))
            del self._window[:cut]
            self.spilled_bytes += cut

    async def read(self) -> str:
        """Return the whole text."""
        spilled = b'' if self._spill is None else await self._spill.read()
        return (spilled + self._window).decode(errors=_SURROGATES)

    async def aclose(self) -> None:
        """Close the spill, which removes text that was spilled to a file."""
        if self._spill is not None:
            await self._spill.aclose()
