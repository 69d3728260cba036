"""Compare two canonical requests, for people: long texts line by line, and only the parts that differ."""

from __future__ import annotations

import difflib
import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict

from pydantic import JsonValue

from pydantic_deep._requests.canonical_request import CanonicalRequest

LIMIT_LINES = 60
"""Maximum number of lines of a diff. The first difference is usually the relevant one."""

LINE_CHARS = 110
"""Maximum length of a line, in characters. Longer lines are wrapped, so that a changed word is easy to find."""


def diff_requests(recorded: CanonicalRequest, actual: CanonicalRequest) -> str:
    """Return a unified diff from the recorded request to the actual one; empty if they are equal."""
    lines = list(
        difflib.unified_diff(render_request(recorded), render_request(actual), 'recorded', 'actual', n=2, lineterm='')
    )
    if len(lines) <= LIMIT_LINES:
        return '\n'.join(lines)
    return '\n'.join([*lines[:LIMIT_LINES], f'… {len(lines) - LIMIT_LINES} more lines differ'])


def render_request(request: CanonicalRequest) -> list[str]:
    """Return the request as lines of text."""
    return list(_render('', asdict(request)))


def _render(indent: str, value: JsonValue) -> Iterator[str]:
    """Yield a value as indented lines, in a form similar to YAML."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _render_item(f'{indent}{key}:', indent, item)
    elif isinstance(value, list):
        for item in value:
            yield from _render_item(f'{indent}-', indent, item)
    else:
        yield from _render_text(indent, value if isinstance(value, str) else json.dumps(value))


def _render_item(label: str, indent: str, item: JsonValue) -> Iterator[str]:
    """Yield a labelled value, on the line of its label if it is short."""
    inner = list(_render(f'{indent}  ', item))
    if len(inner) == 1 and not isinstance(item, (dict, list)):
        yield f'{label} {inner[0].strip()}'
    else:
        yield label
        yield from inner


def _render_text(indent: str, text: str) -> Iterator[str]:
    """Yield the lines of a text, with long ones wrapped."""
    for line in text.split('\n'):
        folded = textwrap.wrap(line, LINE_CHARS, drop_whitespace=False, replace_whitespace=False, expand_tabs=False)
        for piece in folded or ['']:
            # Otherwise, two lines that differ in invisible characters would look the same.
            yield indent + piece if piece.isprintable() else indent + repr(piece)
