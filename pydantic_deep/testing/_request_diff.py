"""Two canonical requests side by side, for a person to read: long texts by lines, and only the part that differs."""

from __future__ import annotations

import difflib
import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict

from pydantic import JsonValue

from pydantic_deep._requests.canonical_request import CanonicalRequest

LIMIT_LINES = 60
"""Lines of a difference that are shown; the first difference is the one to look at."""

LINE_CHARS = 110
"""Where long lines are folded, so that a changed word in a long description can be seen."""


def diff_requests(recorded: CanonicalRequest, actual: CanonicalRequest) -> str:
    """Return a unified diff from the recorded request to the actual one; empty when they are the same."""
    lines = list(
        difflib.unified_diff(render_request(recorded), render_request(actual), 'recorded', 'actual', n=2, lineterm='')
    )
    if len(lines) <= LIMIT_LINES:
        return '\n'.join(lines)
    return '\n'.join([*lines[:LIMIT_LINES], f'… {len(lines) - LIMIT_LINES} more lines differ'])


def render_request(request: CanonicalRequest) -> list[str]:
    """Return the request as lines."""
    return list(_render('', asdict(request)))


def _render(indent: str, value: JsonValue) -> Iterator[str]:
    """Yield a value as indented lines, a little like YAML."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _render_item(f'{indent}{key}:', indent, item)
    elif isinstance(value, list):
        for item in value:
            yield from _render_item(f'{indent}-', indent, item)
    else:
        yield from _render_text(indent, value if isinstance(value, str) else json.dumps(value))


def _render_item(label: str, indent: str, item: JsonValue) -> Iterator[str]:
    """Yield a labelled value: on the label's line where it is short."""
    inner = list(_render(f'{indent}  ', item))
    if len(inner) == 1 and not isinstance(item, (dict, list)):
        yield f'{label} {inner[0].strip()}'
    else:
        yield label
        yield from inner


def _render_text(indent: str, text: str) -> Iterator[str]:
    """Yield the lines of a text, long ones folded."""
    for line in text.split('\n'):
        folded = textwrap.wrap(line, LINE_CHARS, drop_whitespace=False, replace_whitespace=False, expand_tabs=False)
        for piece in folded or ['']:
            # What no terminal shows must not make two lines look the same.
            yield indent + piece if piece.isprintable() else indent + repr(piece)
