"""`BlobStore`: the protocol of storage for large contents outside of the database.

A blob has a name that is used once: the names of two uploads never collide, so nothing is overwritten, and removing a
blob that no row names never removes the contents of a commit in progress.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class BlobEntry(NamedTuple):
    """A blob in a list."""

    name: str
    """The name, as passed to `put`."""
    size_bytes: int
    """Size of the contents."""
    modified_at: int
    """When the upload ended, in microseconds since 1970, by the clock of the storage."""


@runtime_checkable
class BlobStore(Protocol):
    """Storage of contents by name, for one process and event loop. Test an implementation with
    `conformance.BlobStoreSuite`.

    A name has components of letters, digits and `-`, separated by `/`. Every method raises `OSError` if the storage is
    unreachable or refuses.
    """

    @property
    def url(self) -> str:
        """The location, for errors; without credentials."""
        ...

    async def put(self, name: str, contents: bytes | AsyncIterable[bytes]) -> None:
        """Store contents durably. They appear under the name as a whole, or not at all.

        Args:
            name: A name that was not used before.
            contents: The contents, or their chunks. An exception that the chunks raise is raised here, and nothing is
                stored.
        """
        ...

    def get(self, name: str) -> AsyncIterator[bytes]:
        """Yield the contents in chunks of a few mebibytes at most. Raises `FileNotFoundError`."""
        ...

    def list(self, prefix: str) -> AsyncIterator[Sequence[BlobEntry]]:
        """Yield pages of all blobs below a prefix, which is a sequence of whole components."""
        ...

    async def delete(self, names: Sequence[str]) -> None:
        """Remove blobs. Names that do not exist are ignored."""
        ...
