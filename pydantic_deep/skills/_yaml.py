"""Parse the YAML of a frontmatter with limits and line numbers; recover invalid YAML key by key. Pure.

Scalars retain their text in the file, such as `1.10` and `yes`, with a flag for whether YAML would convert it. PyYAML
is imported on first use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias, cast

MAX_DEPTH = 16
"""Maximum nesting depth. The standard has two levels; libyaml's composer recurses in C without a limit."""

MAX_KEYS = 200
"""Maximum number of keys to recover, about ten times as many as the largest known frontmatter has."""

_SUSPICIOUS = re.compile(r'[\[{&*]|^ {8}|(?:^|[-?:]) *[-?][ \t]+[-?](?:\s|$)', re.MULTILINE)
"""Matches texts that may contain an alias or deep nesting. Only for these, YAML events are counted."""

_KEY = re.compile(r'^(?P<quote>["\']?)(?P<key>[\w.-]+)(?P=quote)[ \t]*:(?=\s|\Z)', re.MULTILINE)
"""Matches a key at the start of a line."""

_BLOCK = re.compile(r'[|>][-+0-9]*')
"""Matches the header of a block scalar."""


_COMMENT = re.compile(r'[ \t]+#')
"""Matches a comment after a value."""


@dataclass(frozen=True)
class Scalar:
    """A scalar value."""

    text: str
    """The text in the file, without quotes."""
    line: int
    """The line number, from 0."""
    is_string: bool = True
    """Whether YAML also treats it as a string, and not as a number, date, boolean or null."""
    is_cut: bool = False
    """Whether more follows on its line, which YAML treats as a comment, or an anchor precedes it."""


@dataclass(frozen=True)
class Items:
    """A sequence value."""

    values: tuple[Value, ...]
    line: int
    """The line number of its start, from 0."""


@dataclass(frozen=True)
class Pairs:
    """A mapping, which may contain duplicate keys."""

    pairs: tuple[tuple[Scalar, Value], ...]
    line: int
    """The line number of its start, from 0."""


Value: TypeAlias = Scalar | Items | Pairs


class UnusableYamlError(ValueError):
    """The text is not valid YAML, or exceeds the limits for a frontmatter.

    Attributes:
        line: The line number, from 0.
    """

    def __init__(self, reason: str, line: int) -> None:
        self.line = line
        super().__init__(reason)


def parse_yaml(text: str) -> Value | None:
    """Return the value of a text; `None` if it is empty.

    Raises:
        UnusableYamlError: The text is not valid YAML, has an alias, or is nested deeper than `MAX_DEPTH`.
    """
    yaml, loader = yaml_library()
    try:
        if _SUSPICIOUS.search(text):
            _check_bounds(text)
        node = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, 'problem_mark', None)
        reason = getattr(error, 'problem', None) or getattr(error, 'reason', None) or 'it cannot be read'
        raise UnusableYamlError(str(reason), 0 if mark is None else mark.line) from None
    return None if node is None else _value(node, text)


def recover_pairs(text: str) -> Pairs:
    """Return the top-level keys of invalid YAML, each parsed separately, with its raw text if that fails."""
    keys = list(_KEY.finditer(text))[:MAX_KEYS]
    borders = [*(key.start() for key in keys), len(text)]
    pairs: list[tuple[Scalar, Value]] = []
    for key, (start, end) in zip(keys, pairwise(borders), strict=True):
        line = text.count('\n', 0, start)
        pairs.append((Scalar(key['key'], line), _recover(text[start:end], text[key.end() : end], line)))
    return Pairs(tuple(pairs), 0)


def _recover(whole: str, raw: str, line: int) -> Value:
    """Return the value of one key. `whole` is the text with the key, `raw` the text after the colon."""
    try:
        parsed = parse_yaml(whole)
    except UnusableYamlError:
        return Scalar(_raw_text(raw), line)
    pairs = parsed.pairs if isinstance(parsed, Pairs) else ()
    return _shifted(pairs[0][1], line) if len(pairs) == 1 else Scalar(_raw_text(raw), line)


def _raw_text(raw: str) -> str:
    lines = [line.strip() for line in raw.strip().split('\n')]
    joint = ' '
    if _BLOCK.fullmatch(lines[0]):
        joint = '\n' if lines[0].startswith('|') else ' '
        lines = lines[1:]
    return joint.join(lines).strip()


def _shifted(value: Value, lines: int) -> Value:
    line = value.line + lines
    if isinstance(value, Scalar):
        return replace(value, line=line)
    if isinstance(value, Items):
        return Items(tuple(_shifted(item, lines) for item in value.values), line)
    pairs = tuple((Scalar(key.text, key.line + lines), _shifted(item, lines)) for key, item in value.pairs)
    return Pairs(pairs, line)


def _check_bounds(text: str) -> None:
    """Iterate over events, which does not recurse, and raise at the first one that exceeds a limit."""
    yaml, loader = yaml_library()
    depth = 0
    for event in cast('Sequence[Any]', yaml.parse(text, Loader=loader)):
        if isinstance(event, yaml.AliasEvent):
            raise UnusableYamlError('it has an alias (`*name`), which is not supported', event.start_mark.line)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise UnusableYamlError(f'it is nested deeper than {MAX_DEPTH} levels', event.start_mark.line)


def _value(node: Any, source: str) -> Value:
    line: int = node.start_mark.line
    match node.id:
        case 'scalar':
            is_cut = not node.style and (
                _COMMENT.match(source, node.end_mark.index) is not None or source.startswith('&', node.start_mark.index)
            )
            return Scalar(node.value, line, node.tag == 'tag:yaml.org,2002:str', is_cut)
        case 'sequence':
            return Items(tuple([_value(item, source) for item in node.value]), line)
        case _:
            return Pairs(tuple([(_key(key), _value(item, source)) for key, item in node.value]), line)


def _key(node: Any) -> Scalar:
    """Return a key. A key that is not a scalar gets a name that no field has."""
    return Scalar(node.value if node.id == 'scalar' else '?', node.start_mark.line)


@cache
def yaml_library() -> tuple[Any, Any]:
    """Return PyYAML and its safe loader, in C if available."""
    import yaml

    return yaml, getattr(yaml, 'CSafeLoader', yaml.SafeLoader)
