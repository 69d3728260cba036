"""`WindowedBuffer`: text of any length in little memory. Where the rest of it goes is a `Spill`: a file, or assets."""

from __future__ import annotations

import tempfile
import weakref
from typing import BinaryIO, Final, Protocol, cast, runtime_checkable

from pydantic_deep.store import Commit, NewAsset, Store
from pydantic_deep_backends.snapshots import digest_of

WINDOW_BYTES: Final = 256 * 1024
"""How much of a text is in memory unless told otherwise: nearly every answer of a model is shorter."""

_SURROGATES: Final = 'surrogatepass'
"""Half a character, which Python's text may have, goes in and comes out."""


@runtime_checkable
class Spill(Protocol):
    """Where a buffer puts what is no longer in memory. It belongs to one buffer."""

    async def write(self, data: bytes) -> None:
        """Append. If this raises, or is cancelled, nothing was appended."""
        ...

    async def read(self) -> bytes:
        """Return all that was written."""
        ...

    async def aclose(self) -> None:
        """Let go of what is held open; a second call does nothing."""
        ...


class FileSpill:
    """A file that only this process can open: it has no name, and is gone when it is closed, and with this object.

    It reads and writes on the event loop: a piece is a fraction of a window and goes to the page cache. A thread
    would go on with it when its task is cancelled, and the piece would be there twice.
    """

    def __init__(self) -> None:
        """Open the file in the system's directory for temporary ones."""
        self._file = cast(BinaryIO, tempfile.TemporaryFile(buffering=0))  # noqa: SIM115  # the next line closes it
        self._close = weakref.finalize(self, self._file.close)

    async def write(self, data: bytes) -> None:
        """Append."""
        end = self._file.seek(0, 2)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(end)
            raise

    async def read(self) -> bytes:
        """Return all that was written."""
        self._file.seek(0)
        return self._file.read()

    async def aclose(self) -> None:
        """Close the file, which removes it."""
        self._close()


class AssetSpill:
    """Assets of a store, one for each piece: what was written is there for other processes, and after a crash.

    No version refers to them: two collections of garbage that are an hour apart remove them, unless something that is
    kept mentions their digests.
    """

    def __init__(self, store: Store) -> None:
        """Spill to `store`, which stays open as long as this is used."""
        self._store = store
        self.digests: list[str] = []
        """The assets, in order: their contents, one after another, are what was written."""

    async def write(self, data: bytes) -> None:
        """Append, durably."""
        asset = NewAsset(digest=digest_of(data), data=data)
        await self._store.commit(Commit(assets=[asset]))
        self.digests.append(asset.digest)

    async def read(self) -> bytes:
        """Return all that was written."""
        return b''.join([(await self._store.asset(digest)).data for digest in self.digests])

    async def aclose(self) -> None:
        """Do nothing: the assets stay, and the store is the caller's."""


class WindowedBuffer:
    """Text that grows at its end: the last of it is in memory, what is before in a `Spill`.

    `aclose` lets go of the spill early; a file is gone with this object otherwise.
    """

    def __init__(self, *, window_bytes: int = WINDOW_BYTES, spill: Spill | None = None) -> None:
        """Begin empty.

        Args:
            window_bytes: How many bytes of UTF-8 are in memory at most; half of them at least are the last ones.
            spill: Where the rest goes; a `FileSpill`, made when it is needed, unless told otherwise.
        """
        if window_bytes < 1:
            raise ValueError(f'A window cannot have {window_bytes} bytes. Give it at least 1.')
        self._window_bytes = window_bytes
        self._window = bytearray()
        self._spill = spill
        self.spilled_bytes = 0
        """How many bytes are in the spill."""

    @property
    def memory_bytes(self) -> int:
        """How many bytes are in memory."""
        return len(self._window)

    @property
    def size_bytes(self) -> int:
        """How many bytes the whole text has."""
        return self.spilled_bytes + len(self._window)

    async def append(self, text: str) -> None:
        """Add to the end. If spilling fails, its error is raised; nothing is lost, and the next call tries again."""
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
        """Close the spill. What was spilled to a file is gone then."""
        if self._spill is not None:
            await self._spill.aclose()
