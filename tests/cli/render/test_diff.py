"""Diffs with styles for their lines."""

from __future__ import annotations

from pydantic_deep.approvals import Preview, view_diff
from tests.cli.conftest import show_call


def diff_of(path: str, old: str | None, new: str) -> Preview:
    return Preview(kind='diff', diff=view_diff(path, old, new))


def test_missing_final_newline_is_shown_in_the_diff() -> None:
    shown = show_call({'content': 'a\nb\nc'}, diff_of('/a', None, 'a\nb\nc'))
    assert shown.endswith('  │ +c\n  │ \\ No newline at end of file\n')
    assert 'content: all of it is in the diff' in shown


def test_argument_spanning_two_hunks_is_shown() -> None:
    middle = ''.join(f'{number}\n' for number in range(20))
    gap = diff_of('/f', f'b\n{middle}e\n', f'c\n{middle}f\n')
    assert '  content: \n  │ c\n  │ 0\n  │ 1\n  │ 2\n  │ 17\n' in show_call({'content': 'c\n0\n1\n2\n17\n'}, gap)
