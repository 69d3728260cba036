"""The syntax of globs: parsing into nodes, and rendering nodes as RE2 expressions.

The size of a rendered expression is linear in the pattern: alternatives stay alternatives and are not expanded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from pydantic_deep_backends.errors import InvalidPatternError

MAX_GLOB_CHARS = 1_000
"""Maximum length of a glob. One that a person or a model writes has tens of characters."""

_NAME_CHAR = r'[^/\x00]'
_COMPONENT = rf'{_NAME_CHAR}+'
_LITERAL_DOT = r'[.\x00]'
_NOTHING = r'[^\x00-\x{10FFFF}]'
_MAX_DEPTH = 50
_SEPARATORS = (0x00, 0x2F)


@dataclass(frozen=True, kw_only=True)
class Node:
    """One element of a glob."""

    kind: Literal['c', '/', '*', '?', '[', '{', 'R']
    """A character, a slash, one of three wildcards, alternatives, or the recursive `**`."""
    text: str = ''
    """The character, or the RE2 form of a class."""
    branches: tuple[list[Node], ...] = field(default=())
    """The nodes of each alternative."""
    source: str = ''
    """The source of a class."""


def parse_glob(pattern: str) -> list[Node]:
    """Return the nodes of a glob.

    Raises:
        InvalidPatternError: The glob is malformed.
    """
    _check(pattern)
    text = re.sub('/(?:[.]?/)+', '/', '/' + pattern).lstrip('/')
    nodes = _Parser(pattern, text).parse()
    return _with_recursion(nodes, starts=True, ends=True)


def render_files(nodes: list[Node]) -> str:
    """Return the expression that matches files."""
    return _render(nodes, 0, at_start=True)


def render_directories(nodes: list[Node]) -> str:
    """Return the expression that matches parent directories of possible matches, except the start itself."""
    prefixes = _render_prefixes(nodes, at_start=True)
    return _NOTHING if prefixes is None else prefixes


def _check(pattern: str) -> None:
    if len(pattern) > MAX_GLOB_CHARS:
        raise InvalidPatternError(pattern, f'it is longer than {MAX_GLOB_CHARS:,} characters. Use several globs.')
    if '\\' in pattern:
        raise InvalidPatternError(
            pattern, 'it contains a backslash. Write `/` between directories, and `[*]` for a literal `*`.'
        )
    if '\0' in pattern:
        raise InvalidPatternError(pattern, 'it contains a NUL character. Remove it.')
    if '..' in pattern.split('/'):
        raise InvalidPatternError(pattern, 'it contains `..`. Search in another directory by `path` instead.')
    if pattern.rpartition('/')[2] in ('', '.'):
        below = f'{pattern.rstrip("/.")}/**'.lstrip('/')
        raise InvalidPatternError(pattern, f'it names no file, and only files are found. Use `{below}`.')


class _Parser:
    """A cursor over the text of a glob."""

    def __init__(self, pattern: str, text: str) -> None:
        self._pattern = pattern
        self._text = text
        self._at = 0

    def parse(self) -> list[Node]:
        return self._sequence(depth=0)

    def _sequence(self, *, depth: int) -> list[Node]:
        nodes: list[Node] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if depth and char in ',}':
                break
            self._at += 1
            match char:
                case '/' | '*' | '?':
                    nodes.append(Node(kind=char))
                case '[':
                    start = self._at - 1
                    nodes.append(Node(kind='[', text=self._class(), source=self._text[start : self._at]))
                case '{':
                    nodes.append(Node(kind='{', branches=self._branches(depth=depth + 1)))
                case _:
                    nodes.append(Node(kind='c', text=char))
        return nodes

    def _branches(self, *, depth: int) -> tuple[list[Node], ...]:
        if depth > _MAX_DEPTH:
            raise self._error(f'braces are nested more than {_MAX_DEPTH} deep. Use several globs.')
        branches: list[list[Node]] = []
        while True:
            branches.append(self._sequence(depth=depth))
            if self._at == len(self._text):
                raise self._error('a `{` is not closed. Add `}`, or write `[{]` for the character.')
            self._at += 1
            if self._text[self._at - 1] == '}':
                return tuple(branches)

    def _class(self) -> str:
        negated = self._text[self._at : self._at + 1] in ('!', '^')
        self._at += negated
        end = self._text.find(']', self._at + 1)
        if end < 0:
            raise self._error('a `[` is not closed. Add `]`, or write `[[]` for the character.')
        members = self._text[self._at : end]
        if '[:' in members:
            raise self._error('classes such as `[:alpha:]` are not supported. Write the range: `[a-zA-Z]`.')
        self._at = end + 1
        return _render_class(self._ranges(members), negated=negated)

    def _ranges(self, members: str) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        at = 0
        while at < len(members):
            low = high = ord(members[at])
            if members[at + 1 : at + 2] == '-' and at + 2 < len(members):
                high = ord(members[at + 2])
                at += 2
            if low > high:
                raise self._error(f'the range `{chr(low)}-{chr(high)}` is backwards. Write `{chr(high)}-{chr(low)}`.')
            ranges.append((low, high))
            at += 1
        return ranges

    def _error(self, reason: str) -> InvalidPatternError:
        return InvalidPatternError(self._pattern, reason)


def _render_class(ranges: list[tuple[int, int]], *, negated: bool) -> str:
    """Return an RE2 class that matches neither `/` nor NUL, the mark of hidden names."""
    if negated:
        ranges = [*ranges, *((char, char) for char in _SEPARATORS)]
    else:
        for char in _SEPARATORS:
            ranges = [part for low, high in ranges for part in _without(low, high, char)]
    if not ranges:
        return _NOTHING
    body = ''.join(rf'\x{{{low:X}}}-\x{{{high:X}}}' for low, high in ranges)
    return f'[^{body}]' if negated else f'[{body}]'


def _without(low: int, high: int, char: int) -> list[tuple[int, int]]:
    if not low <= char <= high:
        return [(low, high)]
    return [part for part in ((low, char - 1), (char + 1, high)) if part[0] <= part[1]]


def _with_recursion(nodes: list[Node], *, starts: bool, ends: bool) -> list[Node]:
    """Return the nodes with each `**` that is a whole component made recursive, and other runs of `*` merged into one.

    Args:
        nodes: A sequence.
        starts: Whether the sequence starts at the beginning of a component.
        ends: Whether the sequence ends at the end of a component.
    """
    result: list[Node] = []
    index = 0
    while index < len(nodes):
        node = nodes[index]
        after = index + 1
        while node.kind == '*' and after < len(nodes) and nodes[after].kind == '*':
            after += 1
        opens = starts if index == 0 else nodes[index - 1].kind == '/'
        closes = ends if after == len(nodes) else nodes[after].kind == '/'
        if node.kind == '*' and after - index == 2 and opens and closes:
            result.append(Node(kind='R'))
        elif node.kind == '{':
            result.append(_alternatives(node, opens=opens, closes=closes))
            if _ends_recursive(result[-1]) and after < len(nodes):
                # `{**,a}/b`: if `**` matches no directory, the slash must vanish too, so each branch includes it.
                result[-1] = _with_slash(result[-1])
                after += 1
        else:
            result.append(node)
        index = after
    return result


def _alternatives(node: Node, *, opens: bool, closes: bool) -> Node:
    branches = tuple(_with_recursion(branch, starts=opens, ends=closes) for branch in node.branches)
    return Node(kind='{', branches=branches)


def _ends_recursive(node: Node) -> bool:
    return node.kind == 'R' or any(bool(branch) and _ends_recursive(branch[-1]) for branch in node.branches)


def _with_slash(node: Node) -> Node:
    """Return the alternatives with the following slash added to each."""
    slash = Node(kind='/')
    branches: list[list[Node]] = []
    for branch in node.branches:
        if branch and branch[-1].kind == '{' and _ends_recursive(branch[-1]):
            branches.append([*branch[:-1], _with_slash(branch[-1])])
        else:
            branches.append([*branch, slash])
    return Node(kind='{', branches=tuple(branches))


def _render(nodes: list[Node], index: int, *, at_start: bool) -> str:
    """Return the expression for the nodes from `index` on."""
    parts: list[str] = []
    while index < len(nodes):
        node = nodes[index]
        if node.kind == 'R' and index + 1 < len(nodes):
            parts.append(f'(?:{_COMPONENT}/)*')
            index += 1
            at_start = True
        else:
            parts.append(_render_node(node, at_start=at_start))
            at_start = _may_start(node, at_start=at_start)
        index += 1
    return ''.join(parts)


def _render_node(node: Node, *, at_start: bool) -> str:
    match node.kind:
        case 'c':
            return _LITERAL_DOT if node.text == '.' and at_start else re.escape(node.text)
        case '/':
            return '/'
        case '*':
            return f'{_NAME_CHAR}*'
        case '?':
            return _NAME_CHAR
        case '[':
            return node.text
        case '{':
            return '(?:' + '|'.join(_render(branch, 0, at_start=at_start) for branch in node.branches) + ')'
        case _:  # a `**` at the end
            return f'{_COMPONENT}(?:/{_COMPONENT})*'


def _may_start(node: Node, *, at_start: bool) -> bool:
    """Return whether the node can end at the start of a component."""
    if node.kind == '{':
        return any(_may_start_after(branch, at_start=at_start) for branch in node.branches)
    return node.kind == '/'


def _may_start_after(nodes: list[Node], *, at_start: bool) -> bool:
    for node in nodes:
        at_start = _may_start(node, at_start=at_start)
    return at_start


def _render_prefixes(nodes: list[Node], *, at_start: bool) -> str | None:
    """Return the expression for the part of a match before a `/`; `None` if the sequence has no `/`."""
    starts = [at_start]
    for node in nodes:
        starts.append(_may_start(node, at_start=starts[-1]))
    rest: str | None = None
    for index in reversed(range(len(nodes))):
        node = nodes[index]
        match node.kind:
            case 'R':
                below = '' if rest is None else f'|(?:{_COMPONENT}/)*{rest}'
                rest = f'(?:{_COMPONENT}(?:/{_COMPONENT})*{below})'
            case '/' if index and nodes[index - 1].kind == 'R':
                pass  # part of the `**`
            case '/':
                rest = '' if rest is None else f'(?:|/{rest})'
            case '{':
                inner = [_render_prefixes(branch, at_start=starts[index]) for branch in node.branches]
                ways = [way for way in inner if way is not None]
                if rest is not None:
                    ways.append(_render_node(node, at_start=starts[index]) + rest)
                rest = f'(?:{"|".join(ways)})' if ways else None
            case _:
                rest = None if rest is None else _render_node(node, at_start=starts[index]) + rest
    return rest
