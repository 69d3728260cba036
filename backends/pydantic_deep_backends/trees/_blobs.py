"""Where a `StateBackend` keeps bytes: in the versions of its trees, each contents once, as long as a tree names them.

A `StoredVersion` holds its contents itself, so whoever holds a tree can have its files restored, and when the last
tree with some contents is gone, they are gone too. The table that finds equal contents holds them weakly.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakValueDictionary

from ._nodes import FileVersion, digest_of


class Blob:
    """Contents and their digest. It exists because `bytes` cannot be referred to weakly."""

    __slots__ = ('__weakref__', 'data', 'digest')

    def __init__(self, data: bytes, digest: str) -> None:
        self.data = data
        """The contents."""
        self.digest = digest
        """`digest_of` the contents."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class StoredVersion(FileVersion):
    """A version that has its contents with it; equal to a plain one with the same digest, size and mode."""

    blob: Blob
    """The contents."""

    def __repr__(self) -> str:
        return f'FileVersion(digest={self.digest!r}, size={self.size}, mode={self.mode:#o})'


class BlobStore:
    """Contents by digest, stored as long as some tree names them."""

    def __init__(self) -> None:
        self._blob_by_digest: WeakValueDictionary[str, Blob] = WeakValueDictionary()

    def find(self, digest: str) -> Blob | None:
        """Return the contents with this digest, if anybody holds them."""
        return self._blob_by_digest.get(digest)

    def keep(self, data: bytes) -> Blob:
        """Return the one blob with these contents; they live as long as somebody holds it."""
        return self.adopt(Blob(data, digest_of(data)))

    def adopt(self, blob: Blob) -> Blob:
        """Return the one blob with the contents of this one, which may be that of another backend."""
        return self._blob_by_digest.setdefault(blob.digest, blob)


def stored(blob: Blob, mode: int) -> StoredVersion:
    """Return the version of a file with these contents."""
    return StoredVersion(digest=blob.digest, size=len(blob.data), mode=mode, blob=blob)
