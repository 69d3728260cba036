"""Short representations of values, for errors. Pure."""

from __future__ import annotations

_SHOWN_CHARS = 200
"""How much of a wrong value an error shows."""


def short_repr(value: object) -> str:
    """Return a value for an error, and no more of it than helps."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f'{text[:_SHOWN_CHARS]}…'
