"""Messages of an edit without a match."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from pydantic_deep.filesystem import _match_failures
from pydantic_deep.filesystem._match_failures import MAX_CANDIDATES

NEW = 'a text that is not in the file'

CODE = 'def area(width, height):\n    return width * height\n\n\nprint(area(2, 3))\n'


def explain_no_match(text: str, old: str, new: str = NEW) -> str:
    return _match_failures.explain_no_match(text, old, new)


@pytest.mark.parametrize('separator', ['→', '\t'])
def test_line_numbers_of_read_file_are_recognized(separator: str) -> None:
    old = f'1{separator}def area(width, height):\n2{separator}    return width * height'
    assert explain_no_match(CODE, old) == snapshot(
        'It holds the line numbers of read_file. Leave out each number and the character after it.'
    )


def test_whitespace_difference_is_reported_with_the_exact_line() -> None:
    assert explain_no_match(CODE, 'return  width*height') == snapshot(
        "The closest is line 2: '    return width * height'. Read the file and copy exactly."
    )
    assert explain_no_match(CODE, '\treturn width * height') == snapshot(
        "Only its whitespace differs from line 2: '    return width * height'. Copy it exactly."
    )


def test_other_quotes_are_reported_with_the_exact_line() -> None:
    assert explain_no_match('A = 1\nVERSION = "1.0"\n', "VERSION = '1.0'") == (
        'Only its quotes differ from line 2: \'VERSION = "1.0"\'. Copy it exactly.'
    )


def test_closest_line_is_shown() -> None:
    assert explain_no_match(CODE, 'def area(width, heigth):') == snapshot(
        "The closest is line 1: 'def area(width, height):'. Read the file and copy exactly."
    )


def test_edit_that_was_made_before_is_reported() -> None:
    """A model that repeats an edit learns that the file has the new text, instead of searching for the old one."""
    made = (
        "new_string already is, in line 2: 'DEBUG = False'. If it is missing elsewhere, read the file and copy exactly."
    )
    assert explain_no_match('A = 1\r\nDEBUG = False\r\n', 'DEBUG = True', 'DEBUG = False') == made
    assert explain_no_match('A = 1\nDEBUG = False\n', 'DEBUG = True\r\n', 'DEBUG = False\r\n') == made
    assert explain_no_match('A = 1\nDEBUG = False\n', 'zebra', '\nDEBUG') == made
    assert 'closest is line 1' in explain_no_match('value = 10\nport = 5\n', 'value = 11', '5')
    assert 'Nothing in the file' in explain_no_match('Hi and Hi', 'Hello', 'Hi')
    assert 'Nothing in the file' in explain_no_match('f()', 'g', ')')
    assert 'Nothing in the file' in explain_no_match('f()', 'g', '')
    assert 'Only its whitespace' in explain_no_match('a = 1\nb = 2\n', 'a  = 1', 'b = 2')


def test_text_without_similar_lines_is_reported() -> None:
    assert explain_no_match(CODE, 'class Zebra: ...') == snapshot(
        'Nothing in the file is like it. Read the file and copy exactly.'
    )
    assert explain_no_match('', '-') == snapshot('Nothing in the file is like it. Read the file and copy exactly.')


def test_long_line_is_truncated() -> None:
    text = 'value = ' + 'x' * 500
    assert explain_no_match(text, 'value  =') == snapshot(
        "Only its whitespace differs from line 1: 'value = xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'. Copy it exactly."
    )


def test_number_of_compared_lines_is_limited() -> None:
    text = ''.join(f'value {number:04}\n' for number in range(MAX_CANDIDATES)) + 'value last\n'
    assert 'last' not in explain_no_match(text, 'value lost')


def test_line_ends_do_not_count_as_differences() -> None:
    assert explain_no_match('one  two\r\nthree\r\n', 'one two\nthree') == snapshot(
        "Only its whitespace differs from line 1: 'one  two'. Copy it exactly."
    )


def test_long_repetition_is_compared_quickly() -> None:
    assert 'Nothing in the file is like it' in explain_no_match('a ' * 200_000, 'a ' * 1_000 + 'b')


def test_match_within_a_line_is_found() -> None:
    assert explain_no_match('x\n\nprint(area(2,  3))\n', 'area(2, 3)') == snapshot(
        "Only its whitespace differs from line 3: 'print(area(2,  3))'. Copy it exactly."
    )
