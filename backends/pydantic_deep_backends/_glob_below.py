"""What a glob means below a directory: the glob that finds there what the whole one finds in it.

So a mounted backend searches by itself for a glob that begins above it. Not every glob has one: alternatives with
a `/` or a `**` in them that are not the whole glob, `src{/a,}/*.py`, are not taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ._glob import compile_glob
from .errors import InvalidPatternError

_SPECIAL_IN_BRACES = {',': '[,]', '}': '[}]'}
"""What stands for itself outside of braces, and how it does so in them."""


def glob_below(pattern: str, names: Sequence[str]) -> str | None:
    """Return the glob that matches `b` where a glob matches `names/b`.

    Args:
        pattern: A valid glob.
        names: The components of a directory.

    Returns:
        A glob; `''` if nothing in the directory matches; `None` if this cannot be said by a glob.
    """
    try:
        found = _alternatives(_normal(pattern))
        if found is None:
            return None
        for name in names:
            found = _unique(rest for components in found for rest in _after(components, name))
        globs = ['/'.join(components) for components in found]
        below = f'{{{",".join(globs)}}}' if len(globs) > 1 else ''.join(globs)
        return below and compile_glob(below).pattern
    except InvalidPatternError:  # all together are too long, or a part is none by itself
        return None


def _after(components: tuple[str, ...], name: str) -> Iterator[tuple[str, ...]]:
    """Yield what is left of a glob once its beginning has matched a directory."""
    first, rest = components[0], components[1:]
    if first == '**':
        if rest:
            yield from _after(rest, name)
        if not name.startswith('.'):
            yield components
    elif rest and compile_glob(first).matches(name):
        yield rest


def _alternatives(text: str) -> list[tuple[str, ...]] | None:
    """Return the components of each glob that a glob stands for; `None` if it cannot be taken apart."""
    pieces = list(_pieces(text))
    if len(pieces) == 1 and text.startswith('{'):
        found: list[tuple[str, ...]] = []
        for branch in _branches(text):
            components = _alternatives(branch) if branch and branch == _normal(branch) else None
            if components is None:
                return None
            found += components
        return _unique(found)
    if any(piece.startswith('{') and ('/' in piece or '**' in piece) for piece in pieces):
        return None
    components = ['']
    for piece in pieces:
        if piece == '/':
            components.append('')
        else:
            components[-1] += _SPECIAL_IN_BRACES.get(piece, piece)
    return [tuple(components)]


def _pieces(text: str) -> Iterator[str]:
    """Yield the characters of a glob, with each class and each outermost pair of braces in one piece."""
    start = at = depth = 0
    while at < len(text):
        char = text[at]
        if char == '[':
            at = text.index(']', at + 3 if text[at + 1] in '!^' else at + 2)
        depth += (char == '{') - (char == '}' and depth > 0)
        at += 1
        if not depth:
            yield text[start:at]
            start = at


def _branches(text: str) -> list[str]:
    """Return the alternatives in a pair of braces."""
    branches = ['']
    for piece in _pieces(text[1:-1]):
        if piece == ',':
            branches.append('')
        else:
            branches[-1] += piece
    return branches


def _normal(text: str) -> str:
    """Return a glob without what changes nothing in it."""
    return re.sub('/(?:[.]?/)+', '/', '/' + text).lstrip('/')


def _unique(globs: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(globs))
