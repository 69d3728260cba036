"""The unified diff: the law that it leads from the old text to the new one, its form, and its bound."""

from __future__ import annotations

import difflib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep.filesystem._diff import render_diff
from pydantic_deep_backends.search import split_lines

TEXTS = st.lists(st.sampled_from(['a', 'b', '', 'c\r', 'd\u2028e', '\ud800']), max_size=30).flatmap(
    lambda lines: st.sampled_from(['\n'.join(lines), ''.join(f'{line}\n' for line in lines)])
)


def _apply(old: str, diff: str) -> str:
    """Apply a diff as `patch` does; what it takes away and what it keeps must be there."""
    lines, result, done = split_lines(old), list[str](), 0
    body = split_lines(diff)[2:]
    for number, line in enumerate(body):
        if line.startswith('\\'):
            continue
        if line.startswith('@@'):
            found = re.fullmatch(r'@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@\n', line)
            assert found is not None
            start = int(found[1]) - (found[2] != '0')
            result += lines[done:start]
            done = start
            continue
        is_last = number + 1 < len(body) and body[number + 1].startswith('\\')
        text = line[1:-1] if is_last else line[1:]
        if line[0] in ' -':
            assert lines[done] == text
            done += 1
        if line[0] in ' +':
            result.append(text)
    return ''.join(result + lines[done:])


@given(old=TEXTS, new=TEXTS)
def test_the_diff_leads_from_the_old_text_to_the_new(old: str, new: str) -> None:
    assert _apply(old, render_diff('/f', old, new)) == new


@pytest.mark.parametrize(
    ('old', 'new'),
    [
        ('a\nb\nc\n', 'a\nB\nc\n'),
        ('', 'a\n'),
        ('a\n', ''),
        (''.join(f'{n}\n' for n in range(40)), ''.join(f'{n + 100 * (n in (3, 8, 30))}\n' for n in range(40))),
    ],
)
def test_it_is_what_difflib_writes(old: str, new: str) -> None:
    expected = difflib.unified_diff(split_lines(old), split_lines(new), 'a/f', 'b/f')
    assert render_diff('/f', old, new) == ''.join(expected)


def test_a_missing_end_of_line_is_shown_as_diff_does() -> None:
    assert render_diff('/f', 'a\nb', 'a\nb\n') == (
        '--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n'
    )


def test_a_new_file_comes_from_nowhere() -> None:
    assert render_diff('/d/f', None, 'a') == (
        '--- /dev/null\n+++ b/d/f\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n'
    )
    assert render_diff('/f', None, '') == '--- /dev/null\n+++ b/f\n'


def test_far_changes_of_a_long_file_are_shown_alone() -> None:
    lines = [f'{number}\n' for number in range(50_000)]
    changed = [f'x{line}' if number in (1, 25_000, 49_998) else line for number, line in enumerate(lines)]
    diff = render_diff('/f', ''.join(lines), ''.join(changed))
    assert diff.count('\n') == 2 + 7 + 9 + 7
    assert _apply(''.join(lines), diff) == ''.join(changed)


def test_what_is_cut_is_counted() -> None:
    whole = render_diff('/f', None, 'line\n' * 10)
    diff = render_diff('/f', None, 'line\n' * 10, max_chars=len(whole) - 12)
    assert diff == whole[:-12] + '\n[cut here: 12 more characters of the diff, on 2 lines, are not shown]\n'
    assert render_diff('/f', None, 'line\n' * 10, max_chars=len(whole)) == whole
