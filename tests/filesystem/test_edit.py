"""Editing text by exact match."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pydantic_deep.filesystem._edit import (
    MAX_LINES_NAMED,
    NoMatchError,
    SeveralMatchesError,
    apply_edit,
    is_same,
)

ANY_ENDS = st.text('ab\r\né\f\u2028', max_size=30)
"""Texts with line ends of every kind, and characters that resemble them."""

ONE_KIND = st.text('ab\né\f\u2028', max_size=30)


def test_single_match_is_replaced_and_its_line_returned() -> None:
    edited = apply_edit('one\ntwo\nthree\n', 'two', 'zwei')
    assert (edited.text, edited.count, edited.line_numbers) == ('one\nzwei\nthree\n', 1, (2,))


def test_missing_match_is_refused() -> None:
    with pytest.raises(NoMatchError):
        apply_edit('one', 'two', 'three')


def test_several_matches_are_refused_with_count_and_lines() -> None:
    with pytest.raises(SeveralMatchesError) as caught:
        apply_edit('x = 1\ny\nx = 1\n', 'x = 1', 'x = 2')
    assert (caught.value.count, caught.value.line_numbers) == (2, (1, 3))


def test_overlapping_matches_count_as_several() -> None:
    with pytest.raises(SeveralMatchesError) as caught:
        apply_edit('aaa', 'aa', 'b')
    assert (caught.value.count, caught.value.line_numbers) == (2, (1,))


def test_reported_lines_of_many_matches_are_limited() -> None:
    edited = apply_edit('x\n' * 1000, 'x', 'y', replace_all=True)
    assert edited.count == 1000
    assert edited.line_numbers == tuple(range(1, MAX_LINES_NAMED + 1))


def test_replace_all_replaces_every_match_from_the_left() -> None:
    assert apply_edit('aaa b aa', 'aa', 'c', replace_all=True).text == 'ca b c'


@pytest.mark.parametrize('end', ['\n', '\r\n'])
def test_inserted_line_ends_match_the_file(end: str) -> None:
    assert apply_edit(f'one{end}two{end}', 'two', 'two\nthree').text == f'one{end}two{end}three{end}'


def test_lf_matches_crlf() -> None:
    assert apply_edit('one\r\ntwo\r\nthree', 'one\ntwo', 'one\n1.5\ntwo').text == 'one\r\n1.5\r\ntwo\r\nthree'


def test_crlf_matches_lf() -> None:
    assert apply_edit('one\ntwo\n', 'one\r\ntwo', 'eins\r\nzwei').text == 'eins\nzwei\n'


def test_other_lines_of_a_mixed_file_keep_their_line_ends() -> None:
    assert apply_edit('a\r\nb\nc\r\nd\ne', 'b\nc\nd', 'b\nC\nd').text == 'a\r\nb\nC\r\nd\ne'


def test_new_lines_in_a_mixed_file_end_like_the_replaced_lines() -> None:
    text = 'a\n' * 5 + 'x\r\ny\r\nz\n'
    assert apply_edit(text, 'x\ny', '1\n2\n3').text == 'a\n' * 5 + '1\r\n2\r\n3\r\nz\n'


def test_new_line_within_a_line_ends_like_most_of_the_file() -> None:
    assert apply_edit('a\r\nb\r\nc\n', 'b', 'b1\nb2').text == 'a\r\nb1\r\nb2\r\nc\n'


def test_new_line_ends_are_preserved_in_a_file_without_any() -> None:
    assert apply_edit('one', 'one', '1\r\n2').text == '1\r\n2'
    assert apply_edit('one', 'one', '1\n2').text == '1\n2'


def test_lone_cr_is_a_character() -> None:
    assert apply_edit('a\rb\r\nc\rd', 'b', 'B').text == 'a\rB\r\nc\rd'
    assert apply_edit('a\rb', 'a\rb', 'c').text == 'c'


def test_strings_that_differ_only_in_line_ends_are_the_same() -> None:
    assert is_same('a\r\nb', 'a\nb')
    assert not is_same('a\rb', 'a\nb')


@given(before=ANY_ENDS, old=ANY_ENDS, after=ANY_ENDS, new=ANY_ENDS)
def test_text_outside_the_match_never_changes(before: str, old: str, after: str, new: str) -> None:
    assume(old)
    assume(not (before.endswith('\r') and old.startswith('\n')))  # would split a line end
    assume(not (old.endswith('\r') and after.startswith('\n')))
    assume('\r\r\n' not in new)  # with LF as the line end, it reads as one CRLF
    try:
        text = apply_edit(before + old + after, old, new).text
    except SeveralMatchesError:
        assume(False)
    else:
        assert text.startswith(before)
        assert text.endswith(after)
        assert text[len(before) : len(text) - len(after)].replace('\r\n', '\n') == new.replace('\r\n', '\n')


@given(text=ANY_ENDS)
def test_positions_are_correct_for_any_line_ends(text: str) -> None:
    assume('a' in text)
    edited = apply_edit(text, 'a', 'bb', replace_all=True)
    assert edited.text == text.replace('a', 'bb')
    assert edited.count == text.count('a')
    assert edited.line_numbers[0] == text[: text.index('a')].count('\n') + 1


@pytest.mark.slow
@given(before=ONE_KIND, old=ONE_KIND, after=ONE_KIND, new=ONE_KIND, end=st.sampled_from(['\n', '\r\n']))
def test_inverse_edit_restores_the_text(before: str, old: str, after: str, new: str, end: str) -> None:
    assume(old and new)
    assume('\n' in before + after or '\n' not in old + new)
    text = (before + old + after).replace('\n', end)
    try:
        there = apply_edit(text, old, new).text
        back = apply_edit(there, new, old).text
    except SeveralMatchesError:
        assume(False)
    else:
        assert back == text
