"""The window of a text that is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pydantic_deep.filesystem._types import Position
from pydantic_deep.filesystem._window import MAX_LINE_CHARS, OffsetError, parse_offset, render_window
from pydantic_deep_backends.search import split_lines


def show(text: str, offset: int | str = 1, limit: int = 2000, max_chars: int = 40_000) -> str:
    return render_window(text, parse_offset(offset), limit=limit, max_chars=max_chars)


@pytest.mark.parametrize(
    ('offset', 'position'),
    [
        (1, Position(line=1)),
        (0, Position(line=1)),
        ('7', Position(line=7)),
        ('7:2001', Position(line=7, char=2001)),
        ('7:0', Position(line=7)),
    ],
)
def test_offset_is_a_line_or_a_line_and_character(offset: int | str, position: Position) -> None:
    assert parse_offset(offset) == position


@pytest.mark.parametrize('offset', [-1, '', 'x', '1:', ':1', '1:2:3', '1.5', '9' * 13])
def test_invalid_offset_is_refused(offset: int | str) -> None:
    with pytest.raises(OffsetError, match='is not a line number from 1'):
        parse_offset(offset)


def test_lines_are_numbered() -> None:
    assert show('one\n\nthree\n') == '1→one\n2→\n3→three'


def test_last_line_without_a_line_end_is_a_line() -> None:
    assert show('one\ntwo') == '1→one\n2→two'


def test_only_lf_ends_a_line_and_a_preceding_cr_is_hidden() -> None:
    assert show('a\fb\u2028c\x85d\re\r\nf\r') == '1→a\fb\u2028c\x85d\re\n2→f\r'


def test_notice_reports_omitted_lines_and_the_next_offset() -> None:
    text = ''.join(f'line {number}\n' for number in range(1, 5001))
    assert show(text, 2, 2) == snapshot("""\
2→line 2
3→line 3
[lines 2 to 3 of 5,000; go on with offset 4]\
""")
    assert show(text, 4999) == '4999→line 4999\n5000→line 5000'


def test_window_ends_at_the_character_limit() -> None:
    assert show('aaaa\nbbbb\ncccc\n', max_chars=14) == snapshot("""\
1→aaaa
2→bbbb
[lines 1 to 2 of 3; go on with offset 3]\
""")


def test_limit_below_one_shows_one_line() -> None:
    assert show('a\nb\n', limit=0) == snapshot("""\
1→a
[lines 1 to 1 of 2; go on with offset 2]\
""")


def test_offset_past_the_end_is_refused() -> None:
    with pytest.raises(OffsetError, match='It ends at line 2; offset 3 is past that'):
        show('a\nb\n', 3)
    with pytest.raises(OffsetError, match='Line 1 has 1 characters; 2 is past its end'):
        show('a\nb\n', '1:2')


def test_long_line_is_truncated_with_the_offset_of_the_rest() -> None:
    text = 'a\n' + 'x' * 5000 + '\nb\n'
    assert show(text).replace('x' * MAX_LINE_CHARS, '<2000 x>') == snapshot("""\
1→a
2→<2000 x>… [line of 5,000 characters; go on with offset "2:2001"]
3→b\
""")


def test_rest_of_a_long_line_is_shown_up_to_the_limit() -> None:
    text = 'x' * 5000 + '\nb\n'
    assert show(text, '1:2001').replace('x' * 3000, '<3000 x>') == snapshot("""\
1→<3000 x>
2→b\
""")
    assert show(text, '1:2001', max_chars=2500).replace('x' * 2500, '<2500 x>') == snapshot("""\
1→<2500 x>… [line of 5,000 characters; go on with offset "1:4501"]
[lines 1 to 1 of 2; go on with offset 2]\
""")


def test_paging_through_a_long_line_returns_all_of_it() -> None:
    line = ''.join(chr(ord('a') + number % 26) for number in range(10_000))
    seen, offset = '', '1:1'
    while offset:
        shown = show(line, offset, max_chars=2100)
        part, _, notice = shown.removeprefix('1→').partition('… [')
        seen += part
        offset = notice.partition('offset "')[2].partition('"')[0]
    assert seen == line


def test_line_numbers_count_towards_the_character_limit() -> None:
    shown = show('\n' * 1_000_000, 999_000, limit=10_000, max_chars=800)
    assert shown.count('\n') == 100
    assert shown.endswith('[lines 999,000 to 999,099 of 1,000,000; go on with offset 999100]')


@given(st.text('a\r\n\f\u2028', min_size=1, max_size=40))
def test_lines_are_split_like_in_grep(text: str) -> None:
    lines = [line.removesuffix('\n').removesuffix('\r') if line.endswith('\n') else line for line in split_lines(text)]
    assert show(text) == '\n'.join(f'{number}→{line}' for number, line in enumerate(lines, 1))
    assert show(text, len(lines)) == f'{len(lines)}→{lines[-1]}'


def test_distant_line_is_found() -> None:
    text = ''.join(f'{number}\n' for number in range(1, 50_001))
    assert show(text, 43_210, 1).split('\n')[0] == '43210→43210'


@given(st.lists(st.text(st.characters(exclude_characters='\n'), max_size=5)), st.integers(1, 4), st.integers(8, 20))
def test_paging_returns_each_line_once(lines: list[str], limit: int, max_chars: int) -> None:
    text = ''.join(f'{line}\n' for line in lines)
    seen: list[str] = []
    while len(seen) < len(lines):
        shown = show(text, len(seen) + 1, limit, max_chars).split('\n')
        seen += [line.partition('→')[2] for line in shown if not line.startswith('[lines')]
    assert seen == [line.removesuffix('\r') for line in lines]
