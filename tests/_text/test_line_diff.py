"""Diffs: applying one to the old text gives the new text; their two forms, and their maximum size."""

from __future__ import annotations

import difflib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pydantic_deep._text import line_diff as _line_diff
from pydantic_deep._text.line_diff import DiffLine, DiffView, render_diff, view_diff
from pydantic_deep_backends.search import split_lines

TEXTS = st.lists(st.sampled_from(['a', 'b', '', 'c\r', 'd\u2028e', '\ud800']), max_size=30).flatmap(
    lambda lines: st.sampled_from(['\n'.join(lines), ''.join(f'{line}\n' for line in lines)])
)


def _apply(old: str, diff: str) -> str:
    """Apply a diff like `patch`. Its removed and unchanged lines must be in the old text."""
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
def test_applying_the_diff_gives_the_new_text(old: str, new: str) -> None:
    assert _apply(old, render_diff('/f', old, new)) == new


def _sides(view: DiffView, old: str) -> tuple[str, str]:
    """Return both texts from the typed lines. Lines between the hunks come from the old text."""
    lines, before, after, done = split_lines(old), list[str](), list[str](), 0
    for hunk in view.hunks:
        numbers = [line.before for line in hunk.lines if line.before is not None]
        start = numbers[0] - 1 if numbers else int(hunk.header.split()[1][1:].split(',')[0])
        before += lines[done:start]
        after += lines[done:start]
        for line in hunk.lines:
            text = ''.join(line.text) + '\n' * line.is_ended
            if line.before is not None:
                before.append(text)
                assert line.before == len(before)
            if line.after is not None:
                after.append(text)
                assert line.after == len(after)
        done = len(before)
    return ''.join(before + lines[done:]), ''.join(after + lines[done:])


PLAIN = st.lists(st.sampled_from(['a', 'b', '', '++ c', '-- d', '@@ -1 +1 @@', '\\']), max_size=30).flatmap(
    lambda lines: st.sampled_from(['\n'.join(lines), ''.join(f'{line}\n' for line in lines)])
)


@given(old=PLAIN, new=PLAIN)
def test_typed_lines_contain_both_texts_with_line_numbers(old: str, new: str) -> None:
    """Every line of both texts has its own number, even if it looks like a diff header."""
    view = view_diff('/f', old, new)
    assert _sides(view, old) == (old, new)
    assert [line for line in str(view).split('\n') if not line.startswith('\\ No')][2:] == [
        text
        for hunk in view.hunks
        for text in (
            hunk.header,
            *({'same': ' ', 'removed': '-', 'added': '+'}[line.kind] + line.text[0] for line in hunk.lines),
        )
    ]


@pytest.mark.parametrize(
    ('old', 'new'),
    [
        ('a\nb\nc\n', 'a\nB\nc\n'),
        ('', 'a\n'),
        ('a\n', ''),
        (''.join(f'{n}\n' for n in range(40)), ''.join(f'{n + 100 * (n in (3, 8, 30))}\n' for n in range(40))),
    ],
)
def test_diff_equals_the_output_of_difflib(old: str, new: str) -> None:
    expected = difflib.unified_diff(split_lines(old), split_lines(new), 'a/f', 'b/f')
    assert render_diff('/f', old, new) == ''.join(expected)


def test_missing_line_end_is_shown_like_in_diff() -> None:
    assert render_diff('/f', 'a\nb', 'a\nb\n') == (
        '--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n'
    )


def test_new_file_is_compared_with_dev_null() -> None:
    assert render_diff('/d/f', None, 'a') == (
        '--- /dev/null\n+++ b/d/f\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n'
    )
    assert render_diff('/f', None, '') == '--- /dev/null\n+++ b/f\n'


def test_distant_changes_of_a_long_file_have_separate_hunks() -> None:
    lines = [f'{number}\n' for number in range(50_000)]
    changed = [f'x{line}' if number in (1, 25_000, 49_998) else line for number, line in enumerate(lines)]
    diff = render_diff('/f', ''.join(lines), ''.join(changed))
    assert diff.count('\n') == 2 + 7 + 9 + 7
    assert _apply(''.join(lines), diff) == ''.join(changed)


def test_diff_view_has_its_kind_and_escaped_path() -> None:
    views = [view_diff('/\u202ef', *texts) for texts in ((None, 'a'), ('a', None), ('a', 'b'))]
    assert [(view.kind, view.path, view.escapes) for view in views] == [
        ('added', ('/', '\\u202e', 'f'), 1),
        ('removed', ('/', '\\u202e', 'f'), 1),
        ('changed', ('/', '\\u202e', 'f'), 1),
    ]
    assert str(views[1]) == '--- a/\\u202ef\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n\\ No newline at end of file'


@pytest.mark.parametrize('limit', ['MAX_DIFF_LINES', 'MAX_DIFF_CHARS'])
def test_diff_that_is_too_long_is_omitted_completely(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_line_diff, limit, 9)  # the real limit would take seconds
    view = view_diff('/f', None, 'line\n' * 10)
    assert (view.hunks, view.hidden_lines, view.added, view.removed) == ((), 10, 10, 0)
    assert str(view).split('\n')[-1] == '[the diff is not shown: it has 10 lines]'


def test_unescaped_typed_lines_are_refused() -> None:
    """A capability that creates typed lines cannot include invisible characters."""
    for text in (('\u202e',), ('a', '\u202e', ''), ('a', '\\u202e'), ()):
        with pytest.raises(ValidationError, match='`view_diff`'):
            DiffLine(kind='added', before=None, after=1, text=text)
