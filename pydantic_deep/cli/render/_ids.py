"""Names of versions on the screen: `HEAD`, and short ids."""

from __future__ import annotations

from collections.abc import Collection

HEAD = 'HEAD'
"""The version whose files the directory has; if there is none, the head of the newest conversation of the directory."""

SHORT_ID_CHARS = 8
"""Number of characters of a short id: 32 random bits."""


def short_id(id: str, among: Collection[str] = ()) -> str:
    """Return the end of an id, long enough to be unique among the others."""
    length = SHORT_ID_CHARS
    while length < len(id) and any(other != id and other.endswith(id[-length:]) for other in among):
        length += 1
    return id[-length:].lstrip('-')
