"""Escaping of untrusted text for a terminal."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep.cli.render._terminal_text import (
    describe_error,
    escape_invisible,
    escape_prose,
    first_line,
    first_line_of_prose,
)


@pytest.mark.parametrize(
    ('text', 'shown'),
    [
        ('a\tb\nc', 'a\tb\nc'),
        ('a\r\nb', 'a\nb'),
        ('a\rb', 'a\\rb'),
        ('\x1b]0;owned\x07', '\\x1b]0;owned\\x07'),
        ('\x9b31m', '\\x9b31m'),
        ('\x7f\x00', '\\x7f\\x00'),
        ('exe.\u202egnp', 'exe.\\u202egnp'),
        ('a\u2028b', 'a\\u2028b'),
        ('caf\udce9', 'caf\\udce9'),
        ('👩\u200d🔬 naïve Ω', '👩\\u200d🔬 naïve Ω'),
        ('zero\u200bwidth \ufe0f\U000e0041\xad', 'zero\\u200bwidth \\ufe0f\\U000e0041\\xad'),
        ("it's", "it's"),
    ],
)
def test_invisible_and_control_characters_are_escaped(text: str, shown: str) -> None:
    assert escape_invisible(text) == shown


@pytest.mark.parametrize('escaped', [escape_prose, partial(first_line_of_prose, max_chars=80)])
def test_prose_keeps_emoji_and_spaces(escaped: Callable[[str], str]) -> None:
    """File names, tools and calls do not: there, a joiner may make one name look like another."""
    assert escaped('👩\u200d🔬 10\u202f000\x1b') == '👩\u200d🔬 10\u202f000\\x1b'
    assert first_line('👩\u200d🔬 10\u202f000', 80) == '👩\\u200d🔬 10\\u202f000'


@given(st.text())
def test_escaped_text_has_no_control_characters(text: str) -> None:
    shown = escape_invisible(text)
    assert all(ord(c) >= 32 or c in '\n\t' for c in shown)
    assert '\x7f' not in shown
    assert escape_invisible(shown) == shown


@pytest.mark.parametrize(
    ('text', 'line'),
    [('', ''), ('\n\n  two words \nmore', 'two words'), ('a\tb', 'a b'), ('12345', '12345'), ('123456', '1234…')],
)
def test_first_line_is_truncated_to_one_line(text: str, line: str) -> None:
    assert first_line(text, 5 if text.startswith('1') else 20) == line


@pytest.mark.parametrize(
    ('error', 'sentence'),
    [
        (ValueError('It is empty.'), 'It is empty.'),
        (OSError(errno.ENOSPC, 'No space left on device'), 'No space left on device.'),
        (FileNotFoundError(errno.ENOENT, 'No such file or directory', '/a'), '/a: No such file or directory.'),
        (ConnectionError('The editor has gone.'), 'The editor has gone.'),
    ],
)
def test_error_of_the_operating_system_has_its_file_and_no_number(error: Exception, sentence: str) -> None:
    assert describe_error(error) == sentence
