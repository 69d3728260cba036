"""Diffs with styles for their lines."""

from __future__ import annotations

from io import StringIO

from pydantic import JsonValue
from rich.console import Console

from pydantic_deep.approvals import Preview, view_approval, view_diff
from pydantic_deep.cli.approvals._call_view import CallView


def diff_of(path: str, old: str | None, new: str) -> Preview:
    return Preview(kind='diff', diff=view_diff(path, old, new))


def show(
    args: dict[str, JsonValue],
    preview: Preview | None = None,
    *,
    path: tuple[str, ...] = (),
    width: int = 60,
    count: int = 1,
) -> str:
    stream = StringIO()
    console = Console(file=stream, width=width)
    view = view_approval(id='1', path=path, tool='edit_file', arguments=args, preview=preview)
    question = CallView(view=view, number=1, count=count)
    console.print(question.title)
    console.print(question, end='')
    return stream.getvalue()


def test_missing_final_newline_is_shown_in_the_diff() -> None:
    shown = show({'content': 'a\nb\nc'}, diff_of('/a', None, 'a\nb\nc'))
    assert shown.endswith('  │ +c\n  │ \\ No newline at end of file\n')
    assert 'content: all of it is in the diff' in shown


def test_argument_spanning_two_hunks_is_shown() -> None:
    middle = ''.join(f'{number}\n' for number in range(20))
    gap = diff_of('/f', f'b\n{middle}e\n', f'c\n{middle}f\n')
    assert '  content: \n  │ c\n  │ 0\n  │ 1\n  │ 2\n  │ 17\n' in show({'content': 'c\n0\n1\n2\n17\n'}, gap)
