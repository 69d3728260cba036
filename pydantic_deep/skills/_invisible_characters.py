"""Detect and remove characters that are invisible to people but visible to models. Pure."""

from __future__ import annotations

import re

_INVISIBLE = re.compile(
    '['
    '\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f'  # controls, including terminal escapes
    '\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f'  # soft hyphen, joiners, fillers
    '\u200b-\u200f\u202a-\u202e\u2060-\u206f'  # zero width, bidirectional
    '\u3164\ufeff\uffa0\ufff0-\ufffb'  # fillers, byte order mark, annotations
    '\U0001d173-\U0001d17a\U000e0000-\U000e0fff'  # tags, and variation selectors, which can encode bytes
    '\ud800-\udfff'  # lone surrogates, which break a request
    ']'
    '|(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]'  # a repeated selector; a single one is valid in emoji
)


def strip_invisible(text: str) -> str:
    """Return the text without invisible characters."""
    return text if text.isascii() and text.isprintable() else _INVISIBLE.sub('', text)


def find_invisible(text: str) -> int | None:
    """Return the position of the first invisible character; `None` if there is none."""
    match = _INVISIBLE.search(text)
    return None if match is None else match.start()
