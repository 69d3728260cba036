"""The contents of a `StateBackend`: stored once each, as long as a version in some tree references them.

A `StoredVersion` carries its contents, so the files of a tree can be restored as long as the tree exists, and contents
are freed with the last tree that has them. The table of equal contents holds weak references.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakValueDictionary

from ._nodes import FileVersion, digest_of


class Blob:
    """Contents and their digest. This class exists because `bytes` does not support weak references."""

    __slots__ = ('__weakref__', 'data', 'digest')

    def __init__(self, data: bytes, digest: str) -> None:
        self.data = data
        """The contents."""
        self.digest = digest
        """`digest_of` the contents."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class StoredVersion(FileVersion):
    """A version that carries its contents; equal to a plain version with the same digest, size and mode."""

    blob: Blob
    """The contents of the file."""

    def __repr__(self) -> str:
        return f'FileVersion(digest={self.digest!r}, size={self.size}, mode={self.mode:#o})'


class BlobStore:
    """Contents by digest, stored as long as some tree references them."""

    def __init__(self) -> None:
        self._blob_by_digest: WeakValueDictionary[str, Blob] = WeakValueDictionary()

    def find(self, digest: str) -> Blob | None:
        """Return the contents with this digest, if they are still in memory."""
        return self._blob_by_digest.get(digest)

    def keep(self, data: bytes) -> Blob:
        """Return the shared blob with these contents, which lives as long as it is referenced."""
        return self.adopt(Blob(data, digest_of(data)))

    def adopt(self, blob: Blob) -> Blob:
        """Return the shared blob with the same contents as this one, which may come from another backend."""
        return self._blob_by_digest.setdefault(blob.digest, blob)


def stored(blob: Blob, mode: int) -> StoredVersion:
    """Return the version of a file with these contents."""
    return StoredVersion(digest=blob.digest, size=len(blob.data), mode=mode, blob=blob)
