"""Escapes for characters that a reader cannot see or cannot tell from others: the one function for every face. Pure.

Used where somebody decides by what is shown: an approval, a diff. It escapes more than `display_path` does, which names
files for models: spaces other than U+0020, private use and unassigned characters too.
"""

from __future__ import annotations

import re
import sys
from typing import Annotated, Final, TypeAlias
from unicodedata import category

from pydantic import AfterValidator


def _check(pieces: tuple[str, ...]) -> tuple[str, ...]:
    is_escaped = len(pieces) % 2 and all(escape(piece) == (piece,) for piece in pieces[::2])
    if not is_escaped or not all(piece.isascii() and piece.isprintable() for piece in pieces[1::2]):
        raise ValueError(f'{repr(pieces)[:200]} is not escaped text. Make lines of a diff with `view_diff`.')
    return pieces


EscapedText: TypeAlias = Annotated[tuple[str, ...], AfterValidator(_check)]
r"""A text in pieces: at even places what is shown as it is, at odd places an escape, such as `\u202e`, of one character.

Joined, the pieces read as one line or text. Two texts have the same pieces only if they are the same: the letters
`\u202e` in a text are in a piece at an even place.
"""

_BLANK: Final = frozenset(
    '\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U00013441\U00013442\U00016fe4\U0001d159'
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
"""Characters that `str.isprintable` takes for visible and that show nothing: fillers, blanks, variation selectors.

From `Default_Ignorable_Code_Point` and the code charts of Unicode 15. `isprintable` is false for all other invisible
ones: controls, format characters, tags, surrogates, separators and what is unassigned.
"""


def escape(text: str, *, one_line: bool = False) -> EscapedText:
    r"""Return the text with all that cannot be seen written out: bidirectional, zero-width and control characters,
    `\r`, unusual spaces, tags, variation selectors, lone surrogates.

    Args:
        text: Any text.
        one_line: Whether `\n` and `\t` are written out too; otherwise they stay.
    """
    return tuple(text.translate(_ONE_LINE if one_line else _LINES).split('\0'))


def visible(text: str, *, one_line: bool = False) -> str:
    """Return what `escape` does, joined."""
    return ''.join(escape(text, one_line=one_line))


def unseen_ranges() -> list[tuple[int, int]]:
    """Return the first and the last code point of each range that `escape` writes out on one line."""
    seen = bytearray(map(str.isprintable, map(chr, range(sys.maxunicode + 1))))
    for char in _BLANK:
        seen[ord(char)] = False
    return [(found.start(), found.end() - 1) for found in re.finditer(rb'\0+', seen)]


def is_blank(text: str) -> bool:
    """Return whether a text shows nothing: it is empty, or all of it is spaces, controls and invisible characters."""
    return all(char.isspace() or category(char) in ('Cc', 'Cf') or char in _BLANK for char in text)


def count_escapes(text: EscapedText) -> int:
    """Return how many characters of a text are written out."""
    return len(text) // 2


class _Table(dict[int, str]):
    """What each character becomes, as `str.translate` asks: an escape stands between two NULs, which no text keeps."""

    def __init__(self, kept: str) -> None:
        super().__init__({ord(char): char for char in kept})

    def __missing__(self, code: int) -> str:
        char = chr(code)
        is_seen = char.isprintable() and char not in _BLANK
        self[code] = char if is_seen else f'\0{char.encode("unicode_escape").decode()}\0'
        return self[code]


_LINES: Final = _Table('\n\t')
_ONE_LINE: Final = _Table('')
