"""Contents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NewAsset:
    """Contents to be kept, once however often they come."""

    digest: str
    """`digest_of` the contents."""
    data: bytes
    """The contents."""
    media_type: str = 'application/octet-stream'
    """What they are."""


@dataclass(frozen=True, kw_only=True)
class AssetRecord:
    """Contents that are kept."""

    digest: str
    """`digest_of` the contents."""
    data: bytes
    """The contents."""
    media_type: str
    """What they are, as whoever stored them first said."""
    size_bytes: int
    """How many bytes the contents have."""
    created_at: int
    """When they were stored first."""
