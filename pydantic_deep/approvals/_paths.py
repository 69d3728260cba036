"""Match canonical paths against globs, in the dialect of `pydantic_deep_backends.search`. Pure.

A glob that begins with `/` is anchored at the root; any other matches at any depth. Matching errs on the safe side:
`denies_path` ignores the special role of hidden names and normalizes Unicode, so that neither evades a denial;
`allows_path` matches hidden names only where the glob writes the dot.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from pydantic_deep_backends import search
from pydantic_deep_backends.errors import InvalidPatternError
from pydantic_deep_backends.paths import path_parts

_DOT = '\ue000'
"""Replaces `.` so that hidden names match like any other: a private-use character that no name contains."""


def allows_path(pattern: str, path: str) -> bool:
    """Return whether a path matches as in a search: hidden names match only where the glob writes the dot."""
    return _compile(_anchored(pattern)).matches(path.lstrip('/'))


def denies_path(pattern: str, path: str) -> bool:
    """Return whether a path or one of its parents matches, hidden or not, in any Unicode normalization."""
    anchored = unicodedata.normalize('NFC', _anchored(pattern))
    as_written, unhidden = _compile(anchored), _compile(anchored.replace('.', _DOT))
    parts = path_parts(unicodedata.normalize('NFC', path))
    prefixes = ('/'.join(parts[:count]) for count in range(1, len(parts) + 1))
    return any(as_written.matches(prefix) or unhidden.matches(prefix.replace('.', _DOT)) for prefix in prefixes)


def path_problem(pattern: str, *, denies: bool) -> str | None:
    """Return an error message if a pattern cannot be matched against paths; `None` if it can.

    Args:
        pattern: The pattern as its author wrote it.
        denies: Whether the pattern is used to deny, and must also compile for hidden names.
    """
    try:
        _compile(pattern)  # compile the original first, so that the error quotes it
        _compile(_anchored(pattern))
    except InvalidPatternError as error:
        return str(error)
    try:
        if denies:
            denies_path(pattern, '/')
    except InvalidPatternError:
        return (
            f'{pattern!r} is not a valid pattern for `deny`: a character range begins with a dot. '
            'Write the dot separately from the range: `[.0-9]`.'
        )
    return None


def _anchored(pattern: str) -> str:
    return pattern if pattern.startswith('/') else f'**/{pattern}'


@lru_cache(maxsize=1_024)
def _compile(pattern: str) -> search.Glob:
    return search.compile_glob(pattern)
