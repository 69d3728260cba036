"""How versions are named on screen: `HEAD`, and the end of an id."""

from __future__ import annotations

from collections.abc import Collection

HEAD = 'HEAD'
"""The version whose files the directory has; if there is none, the head of the newest conversation of the directory."""

SHORT_ID_CHARS = 8
"""How much of an id is shown: 32 random bits."""


def short_id(id: str, among: Collection[str] = ()) -> str:
    """Return the end of an id, long enough to be unique among the others."""
    length = SHORT_ID_CHARS
    while length < len(id) and any(other != id and other.endswith(id[-length:]) for other in among):
        length += 1
    return id[-length:].lstrip('-')
