"""Translation of a glob for a subdirectory: the result finds there the files that the whole glob finds below it.

With it, a mounted backend can run its own search for a glob that starts above it. Alternatives that contain `/` or
`**`, such as `src{/a,}/*.py`, are expanded into one glob each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from pydantic_deep_backends.errors import InvalidPatternError

from ._glob import compile_glob
from ._glob_syntax import Node, parse_glob

MAX_GLOBS = 200
"""Maximum number of expanded globs: together they are no longer than the maximum length of a glob."""

_SPECIAL_IN_BRACES = {',': '[,]', '}': '[}]'}
"""Characters that are literal outside of braces, and their form inside of braces."""


class _TooManyError(Exception):
    """A glob expands into too many globs."""


def subtree_glob(pattern: str, names: Sequence[str]) -> str | None:
    """Return the glob that matches `b` if `pattern` matches `names/b`.

    Args:
        pattern: A valid glob.
        names: The components of a directory.

    Returns:
        A glob; `''` if nothing in the directory can match; `None` if the glob would be too long.
    """
    try:
        parsed = _unique(components for nodes in _expanded(parse_glob(pattern)) for components in _components(nodes))
        for name in names:
            parsed = _unique(rest for components in parsed for rest in _after(components, name))
        globs = ['/'.join(components) for components in parsed]
        below = f'{{{",".join(globs)}}}' if len(globs) > 1 else ''.join(globs)
        return below and compile_glob(below).pattern
    except (InvalidPatternError, _TooManyError):
        return None


def _after(components: tuple[str, ...], name: str) -> Iterator[tuple[str, ...]]:
    """Yield the rest of a glob after its beginning has matched a directory."""
    first, rest = components[0], components[1:]
    if first == '**':
        if rest:
            yield from _after(rest, name)
        if not name.startswith('.'):
            yield components
    elif rest and compile_glob(first).matches(name):
        yield rest


def _expanded(nodes: list[Node]) -> list[list[Node]]:
    """Return all expansions of a sequence, in which no alternatives begin or end components."""
    ways: list[list[list[Node]]] = []
    count = 1
    for node in nodes:
        if node.kind == '{' and _has_components([node]):
            ways.append([expansion for branch in node.branches for expansion in _expanded(branch)])
        else:
            ways.append([[node]])
        count *= len(ways[-1])
        if count > MAX_GLOBS:
            raise _TooManyError
    return [[node for part in parts for node in part] for parts in product(*ways)]


def _has_components(nodes: list[Node]) -> bool:
    return any(node.kind in '/R' or any(map(_has_components, node.branches)) for node in nodes)


def _components(nodes: list[Node]) -> Iterator[tuple[str, ...]]:
    """Yield the components of a sequence, unless it cannot match: no file has an empty name, `.` or `..`."""
    components: list[list[Node]] = [[]]
    for node in nodes:
        if node.kind == '/':
            components.append([])
        else:
            components[-1].append(node)
    texts = tuple(map(_text, components))
    if {'', '.', '..'}.isdisjoint(texts):
        yield texts


def _text(nodes: list[Node]) -> str:
    """Return the source of nodes as a glob inside of braces."""
    text = ''
    before = ''
    for node in nodes:
        match node.kind:
            case 'R':
                text += '**'
            case '{':
                text += f'{{{",".join(map(_text, node.branches))}}}'
            case '[':
                text += node.source
            case 'c':
                text += _SPECIAL_IN_BRACES.get(node.text, node.text)
            case _ if node.kind != before or node.kind != '*':  # an accidental `**` would change the meaning
                text += node.kind
            case _:
                pass
        before = node.kind
    return text


def _unique(globs: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(globs))
