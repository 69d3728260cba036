"""Escapes for characters that a reader cannot see or distinguish from others: one function for all interfaces. Pure.

Used wherever a person decides based on a displayed text: approvals and diffs. It escapes more than `display_path`,
which formats file names for models: also spaces other than U+0020, and private use and unassigned characters.
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
        raise ValueError(f'{repr(pieces)[:200]} is not escaped text. Create the lines of a diff with `view_diff`.')
    return pieces


EscapedText: TypeAlias = Annotated[tuple[str, ...], AfterValidator(_check)]
r"""A text in pieces: pieces at even positions are shown as they are; pieces at odd positions are escapes of one
character, such as `\u202e`.

Joined, the pieces form one line or text. Two texts have the same pieces only if they are equal: the literal letters
`\u202e` in a text are in a piece at an even position.
"""

_BLANK: Final = frozenset(
    '\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U00013441\U00013442\U00016fe4\U0001d159'
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
"""Characters that `str.isprintable` considers visible and that display nothing: fillers, blanks, variation selectors.

From `Default_Ignorable_Code_Point` and the code charts of Unicode 15. `isprintable` is false for all other invisible
characters: controls, format characters, tags, surrogates, separators and unassigned ones.
"""


_EMOJI: Final = '#*0-9\xa9\xae\u203c\u2049\u2100-\u2bff\u3030\u303d\u3297\u3299' + '\U0001f000-\U0001faff'
"""Emoji, and the characters that a variation selector makes one. The blocks, not each code point."""

_JOINED: Final = '\u0600-\u1cff\ua800-\uabff'
"""The scripts whose letters joiners shape, such as Persian and Hindi."""

SHAPING: Final = (
    f'(?:(?<=[{_EMOJI}])[\ufe0e\ufe0f]|(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])'
    f'|(?<=[{_JOINED}])[\u200c\u200d](?=[{_JOINED}])|[\xa0\u2000-\u200a\u202f\u205f\u3000])'
)
"""A regular expression, for Python and for JavaScript, of the characters that `readable` does not escape."""

_SHAPING: Final = re.compile(f'({SHAPING})')


def escape(text: str, *, one_line: bool = False) -> EscapedText:
    r"""Return the text with all invisible characters escaped: bidirectional, zero-width and control characters, `\r`,
    unusual spaces, tags, variation selectors, lone surrogates.

    Args:
        text: Any text.
        one_line: Whether to escape `\n` and `\t` too.
    """
    return tuple(text.translate(_ONE_LINE if one_line else _LINES).split('\0'))


def visible(text: str, *, one_line: bool = False) -> str:
    """Return the result of `escape`, joined."""
    return ''.join(escape(text, one_line=one_line))


def readable(text: str) -> str:
    r"""Return prose with invisible characters escaped, except those that shape what is seen: the joiners in emoji and in
    words of scripts that have them, and spaces of any width. Not for texts by which a person decides.
    """
    return ''.join(piece if at % 2 else visible(piece) for at, piece in enumerate(_SHAPING.split(text)))


def unseen_ranges() -> list[tuple[int, int]]:
    """Return the first and last code point of each range of characters that `escape` with `one_line` escapes."""
    seen = bytearray(map(str.isprintable, map(chr, range(sys.maxunicode + 1))))
    for char in _BLANK:
        seen[ord(char)] = False
    return [(match.start(), match.end() - 1) for match in re.finditer(rb'\0+', seen)]


def is_blank(text: str) -> bool:
    """Return whether a text displays nothing: it is empty, or consists of spaces, controls and invisible characters."""
    return all(char.isspace() or category(char) in ('Cc', 'Cf') or char in _BLANK for char in text)


def count_escapes(text: EscapedText) -> int:
    """Return the number of escaped characters in a text."""
    return len(text) // 2


class _Table(dict[int, str]):
    """Replacements for `str.translate`: an escape is enclosed in two NULs, which no text contains."""

    def __init__(self, unescaped: str) -> None:
        super().__init__({ord(char): char for char in unescaped})

    def __missing__(self, code: int) -> str:
        char = chr(code)
        is_seen = char.isprintable() and char not in _BLANK
        self[code] = char if is_seen else f'\0{char.encode("unicode_escape").decode()}\0'
        return self[code]


_LINES: Final = _Table('\n\t')
_ONE_LINE: Final = _Table('')
