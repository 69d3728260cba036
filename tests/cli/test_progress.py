"""What a person sees of a turn, event by event."""

from __future__ import annotations

from io import StringIO

import pytest
from inline_snapshot import snapshot
from rich.console import Console

from pydantic_deep.cli._events import (
    Event,
    FileChange,
    FileEvent,
    ResultEvent,
    StartEvent,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
    Usage,
    UsageEvent,
)
from pydantic_deep.cli._progress import Progress
from pydantic_deep.cli._render import render_answer, render_call, render_file, render_usage, summarize_result
from pydantic_deep.testing import FakeClock

CALL = ToolCallEvent(id='1', tool='grep', args={'pattern': 'a\nb', 'path': '/src', 'output_mode': 'count'})
RESULT = ToolResultEvent(id='1', tool='grep', outcome='success', text='/src/a.py: 3')
END = ResultEvent(
    status='interrupted', output=None, error='Interrupted.', usage=Usage(), files=[], todos=[], seconds=1.0
)


def show(*events: Event, keeps_answer: bool = False) -> str:
    stream = StringIO()
    with Progress(Console(file=stream, width=60), clock=FakeClock().monotonic, keeps_answer=keeps_answer) as progress:
        for event in events:
            progress.show(event)
    return stream.getvalue()


def test_a_call_that_never_ended_is_shown_at_the_end() -> None:
    assert show(CALL, END) == snapshot("""\
· grep a /src
0 requests, 0 tool calls, 0 tokens in, 0 out, 1 s
Interrupted.
""")


def test_a_result_without_its_call_is_shown() -> None:
    assert show(RESULT) == snapshot('✓ grep  /src/a.py: 3\n')


def test_what_the_model_says_between_calls_is_shown_and_the_answer_is_left_to_others() -> None:
    done = ResultEvent(status='done', output='Done.', error=None, usage=Usage(), files=[], todos=[], seconds=0.0)
    events = [TextEvent(text='I l'), TextEvent(text='ook.\n'), CALL, RESULT, TextEvent(text='Done.'), done]
    assert show(*events) == snapshot("""\
I look.
✓ grep a /src  /src/a.py: 3
0 requests, 0 tool calls, 0 tokens in, 0 out, 0 s
""")
    assert show(StartEvent(task='t', directory='d', model='m'), *events, keeps_answer=True) == snapshot("""\
I look.
✓ grep a /src  /src/a.py: 3
Done.
0 requests, 0 tool calls, 0 tokens in, 0 out, 0 s
""")


def test_the_files_are_named_at_the_end() -> None:
    change = FileChange(path='/a.md', change='created', added_lines=3, removed_lines=0)
    usage = Usage(requests=1, tool_calls=1, input_tokens=12_345, output_tokens=1_234_567)
    end = ResultEvent(status='done', output='', error=None, usage=usage, files=[change], todos=[], seconds=61.4)
    assert show(FileEvent(file=change), UsageEvent(usage=usage), end) == snapshot("""\
created /a.md +3 -0
1 request, 1 tool call, 12k tokens in, 1.2M out, 61 s
""")


@pytest.mark.parametrize(
    ('args', 'line'),
    [
        ({}, '· t'),
        ({'limit': 3}, '· t'),
        ({'limit': 3, 'query': 'x', 'other': 'y'}, '· t x'),
        ({'path': '/a', 'content': 'long'}, '· t /a'),
        ({'path': '/a', 'pattern': 'x'}, '· t x /a'),
        ({'path': 3, 'content': 'long'}, '· t'),
        ({'command': '[red]x[/red]'}, '· t [red]x[/red]'),
    ],
)
def test_a_call_says_what_it_is_about(args: dict[str, str | int], line: str) -> None:
    assert render_call(ToolCallEvent(id='1', tool='t', args=dict(args))).plain == line


@pytest.mark.parametrize(
    ('text', 'summary'), [('', ''), ('one\n', 'one'), ('a\nb\n', '2 lines'), ('x' * 300, 'x' * 199 + '…')]
)
def test_a_long_result_is_a_count(text: str, summary: str) -> None:
    assert summarize_result(text) == summary


def test_a_file_name_with_a_newline_stays_on_its_line() -> None:
    change = FileChange(path='/a\nb', change='changed', added_lines=1, removed_lines=2)
    assert render_file(change).plain == 'changed /a\\nb +1 -2'


@pytest.mark.parametrize(
    ('tokens', 'shown'), [(0, '0'), (9_999, '9999'), (10_000, '10k'), (999_499, '999k'), (1_250_000, '1.2M')]
)
def test_tokens_are_short(tokens: int, shown: str) -> None:
    assert f', {shown} tokens in, ' in render_usage(Usage(input_tokens=tokens), 0).plain


def test_where_a_link_leads_is_shown() -> None:
    stream = StringIO()
    Console(file=stream, width=60, force_terminal=True).print(render_answer('[here](http://evil.example) \x1b]0;t\x07'))
    assert 'http://evil.example' in stream.getvalue()
    assert '\x1b]' not in stream.getvalue()
