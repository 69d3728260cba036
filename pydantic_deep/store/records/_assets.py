"""Assets: content that is stored by its digest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NewAsset:
    """Content to store. Equal content is stored once."""

    digest: str
    """Digest of the content, as `digest_of` computes it."""
    data: bytes
    """The content, uncompressed."""
    media_type: str = 'application/octet-stream'
    """The media type of the content."""


@dataclass(frozen=True, kw_only=True)
class AssetRecord:
    """Stored content."""

    digest: str
    """Digest of the content, as `digest_of` computes it."""
    data: bytes
    """The content, uncompressed."""
    media_type: str
    """The media type given by the first commit that stored the content."""
    size_bytes: int
    """Size of the content."""
    created_at: int
    """When the content was first stored."""
