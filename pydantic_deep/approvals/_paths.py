"""Canonical paths against globs, in the dialect of `pydantic_deep_backends.search`. Pure.

A glob that begins with `/` is matched from the root, any other at any depth. Two things differ by purpose: what
refuses a call must not be dodged by a hidden name or by another spelling of the same characters, what lets it run
must not reach further than it was written.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from pydantic_deep_backends import search
from pydantic_deep_backends.errors import InvalidPatternError
from pydantic_deep_backends.paths import path_parts

_DOT = '\ue000'
"""Stands for `.` where hidden names are to be like others: a character of private use, which no name has."""


def allows_path(pattern: str, path: str) -> bool:
    """Return whether a path matches, as a search would find it: hidden names only where the glob writes the dot."""
    return _compile(_anchored(pattern)).matches(path.lstrip('/'))


def denies_path(pattern: str, path: str) -> bool:
    """Return whether a path or a directory above it matches, hidden or not, and however its characters are composed."""
    anchored = unicodedata.normalize('NFC', _anchored(pattern))
    as_written, unhidden = _compile(anchored), _compile(anchored.replace('.', _DOT))
    parts = path_parts(unicodedata.normalize('NFC', path))
    above = ('/'.join(parts[:count]) for count in range(1, len(parts) + 1))
    return any(as_written.matches(each) or unhidden.matches(each.replace('.', _DOT)) for each in above)


def path_problem(pattern: str, *, denies: bool) -> str | None:
    """Return why a pattern cannot be matched against paths, as a sentence that names it; `None` if it can.

    Args:
        pattern: The pattern as its author wrote it.
        denies: Whether it is to refuse by, and so must be readable with hidden names too.
    """
    try:
        _compile(pattern)  # as it was written first, so that the error says it like that
        _compile(_anchored(pattern))
    except InvalidPatternError as error:
        return str(error)
    try:
        if denies:
            denies_path(pattern, '/')
    except InvalidPatternError:
        return (
            f'{pattern!r} is not a valid pattern to deny by: a range of characters begins with a dot. '
            'Write the dot by itself, and the range without it: `[.0-9]`.'
        )
    return None


def _anchored(pattern: str) -> str:
    return pattern if pattern.startswith('/') else f'**/{pattern}'


@lru_cache(maxsize=1_024)
def _compile(pattern: str) -> search.Glob:
    return search.compile_glob(pattern)
