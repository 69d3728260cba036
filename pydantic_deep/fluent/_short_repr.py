"""Short representations of values, for errors. Pure."""

from __future__ import annotations

_SHOWN_CHARS = 200
"""Maximum number of characters of a value in an error."""


def short_repr(value: object) -> str:
    """Return the `repr` of a value, shortened for an error message."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f'{text[:_SHOWN_CHARS]}…'
