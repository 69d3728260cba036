"""Escapes: invisible characters are escaped, and escapes are distinguished from the same letters in a text."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep._text.escapes import EscapedText, count_escapes, escape, readable, unseen_ranges, visible


def unescape(text: EscapedText) -> str:
    """Return the original text."""
    return ''.join(piece.encode().decode('unicode_escape') if place % 2 else piece for place, piece in enumerate(text))


@pytest.mark.parametrize(
    ('text', 'pieces'),
    [
        ('plain\n\ttext', ('plain\n\ttext',)),
        ('', ('',)),
        ('a\rb', ('a', '\\r', 'b')),
        ('\0', ('', '\\x00', '')),
        ('exe.\u202egnp', ('exe.', '\\u202e', 'gnp')),
        ('\u200b\ufeff', ('', '\\u200b', '', '\\ufeff', '')),
        ('soft\xadhyphen', ('soft', '\\xad', 'hyphen')),
        ('no\xa0break\u3000wide\u2009thin', ('no', '\\xa0', 'break', '\\u3000', 'wide', '\\u2009', 'thin')),
        ('tag\U000e0041', ('tag', '\\U000e0041', '')),
        ('\u2764\ufe0f\U000e0100', ('\u2764', '\\ufe0f', '', '\\U000e0100', '')),
        ('\ud800', ('', '\\ud800', '')),
        ('\u3164\u115f\u2800\U0001d159', ('', '\\u3164', '', '\\u115f', '', '\\u2800', '', '\\U0001d159', '')),
        ('private\ue000', ('private', '\\ue000', '')),
        ('the letters \\u202e', ('the letters \\u202e',)),
        ('naïve Ω 日本 e\u0301 👩', ('naïve Ω 日本 e\u0301 👩',)),
    ],
)
def test_escape_shows_invisible_characters(text: str, pieces: EscapedText) -> None:
    assert escape(text) == pieces
    assert visible(text) == ''.join(pieces)
    assert count_escapes(escape(text)) == len(pieces) // 2


@pytest.mark.parametrize(
    'text',
    [
        '⚠\ufe0f 1\ufe0f\u20e3 ❤\ufe0f\u200d🔥 👩\u200d👧',
        'می\u200cخواهم',
        'क्\u200dष',
        'Bonjour\xa0! 10\u202f000\u3000日本',
    ],
)
def test_prose_keeps_what_shapes_visible_text(text: str) -> None:
    assert readable(text) == text


@pytest.mark.parametrize(
    'text', ['pass\u200cword', 'a\ufe0f', '⚠\ufe0f\ufe0f', '👩\u200d', '\u200b', 'x\u202ey', '🏴\U000e0067', '\r']
)
def test_prose_escapes_what_could_hide_text(text: str) -> None:
    assert '\\' in readable(text)


def test_one_line_escapes_line_feeds_and_tabs() -> None:
    assert escape('a\n\tb', one_line=True) == ('a', '\\n', '', '\\t', 'b')


@given(st.text(st.characters(codec=None) | st.characters(categories=['Cc', 'Cf', 'Cs', 'Zs', 'Cn'])))
def test_escape_is_lossless_and_hides_nothing(text: str) -> None:
    pieces = escape(text)
    assert unescape(pieces) == text
    shown = set(''.join(pieces)) - set('\n\t ')
    assert {unicodedata.category(char) for char in shown}.isdisjoint({'Cc', 'Cf', 'Cs', 'Co', 'Cn', 'Zs', 'Zl', 'Zp'})


def test_all_ignorable_characters_are_escaped() -> None:
    """Unicode's `Default_Ignorable_Code_Point`, from DerivedCoreProperties.txt 15.0."""
    ignorable = (
        'ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b-200f 202a-202e 2060-206f 3164 fe00-fe0f feff ffa0 fff0-fff8 '
        '1bca0-1bca3 1d173-1d17a e0000-e0fff'
    )
    for part in ignorable.split():
        first, _, last = part.partition('-')
        for code in range(int(first, 16), int(last or first, 16) + 1):
            assert re.fullmatch(r'\\[xuU][0-9a-f]+', visible(chr(code))), hex(code)
    assert visible(chr(sys.maxunicode)) == '\\U0010ffff'


@pytest.mark.slow
def test_unseen_ranges_match_escape() -> None:
    """For clients that escape themselves: each code point of Unicode is in a range or shown unchanged."""
    hidden = {code for first, last in unseen_ranges() for code in range(first, last + 1)}
    assert set(escape(''.join(map(chr, hidden)), one_line=True)[::2]) == {''}
    seen = ''.join(chr(code) for code in range(sys.maxunicode + 1) if code not in hidden)
    assert escape(seen, one_line=True) == (seen,)
