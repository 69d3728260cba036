"""Progress of a turn on the console, by event."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO

import pytest
from inline_snapshot import snapshot
from rich.console import Console

from pydantic_deep.cli.terminal._progress import ProgressDisplay
from pydantic_deep.streaming import (
    ApprovalAnswerEvent,
    BudgetEvent,
    EndEvent,
    ErrorEvent,
    FileEvent,
    RetriedEvent,
    StartEvent,
    StreamEvent,
    SummarizedEvent,
    TextEvent,
    ThinkingEvent,
    TodosEvent,
    ToolCallEvent,
    ToolResultEvent,
    TurnWorkspace,
    UsageEvent,
)
from pydantic_deep.testing import FakeClock
from pydantic_deep.todos import Todo
from tests.cli.conftest import screen_of

CALL = ToolCallEvent(id='1', name='grep', args=json.dumps({'pattern': 'a\nb', 'path': '/src', 'output_mode': 'count'}))
RESULT = ToolResultEvent(id='1', name='grep', outcome='success', content='/src/a.py: 3')
ERROR = ErrorEvent(kind='cancelled', message='Interrupted.')
END = EndEvent(finish_reason='error', status='interrupted', usage=UsageEvent(), seconds=1.0)
WORKSPACE = TurnWorkspace(store=None, is_in_directory=True, has_files=True, has_all_changes=True)


def show(*events: StreamEvent, shows_answer: bool = False, heading: str | None = None) -> str:
    stream = StringIO()
    with ProgressDisplay(
        Console(file=stream, width=60), clock=FakeClock().monotonic, shows_answer=shows_answer, heading=heading
    ) as progress:
        for event in events:
            progress.show(event)
    return stream.getvalue()


WRITE = ToolCallEvent(id='2', name='write_file', args=json.dumps({'path': '/a'}))


def test_earlier_answer_of_another_person_is_reported_and_used() -> None:
    answer = ApprovalAnswerEvent(id='2', decision='edit', by='person', args={'path': '/b'}, answered_by='ada')
    done = ToolResultEvent(id='2', name='write_file', outcome='success', content='Created /b.')
    assert show(WRITE, answer, done) == snapshot("""\
ada has already edited the call of write_file; the first answer counts.
✓ write_file /b  Created /b.
""")
    assert show(replace(answer, id='9')) == snapshot('ada has already edited a call; the first answer counts.\n')


def test_output_to_a_pipe_is_not_wrapped() -> None:
    heading = f'given in {"/a" * 60}'
    assert show(StartEvent(), heading=heading) == f'{heading}\n'


def test_error_with_a_command_is_wrapped_between_words() -> None:
    stream = StringIO()
    console = Console(file=stream, width=30, force_terminal=True, color_system=None, _environ={'TERM': 'xterm'})
    message = 'Interrupted. The version 01234567 is still pending: answer with `pydantic-deep resume 01234567`.'
    with ProgressDisplay(console, clock=FakeClock().monotonic, shows_answer=False) as progress:
        progress.show(ErrorEvent(kind='cancelled', message=message))
        progress.show(END)
    *_, first, second, third, command = stream.getvalue().splitlines()
    assert (first, second, third) == ('Interrupted. The version', '01234567 is still pending:', 'answer with')
    assert command == '`pydantic-deep resume 01234567`.'  # the terminal wraps it


def test_answer_to_an_unannounced_call_is_ignored() -> None:
    answer = ApprovalAnswerEvent(id='9', decision='edit', by='person', args={'path': '/a'})
    assert show(answer, END) == show(END)


def test_plan_remains_on_screen_after_the_live_display_ends() -> None:
    stream = StringIO()
    console = Console(file=stream, width=60, force_terminal=True, color_system=None, _environ={'TERM': 'xterm'})
    with ProgressDisplay(console, clock=FakeClock().monotonic, shows_answer=False) as progress:
        progress.show(TodosEvent(todos=(todos := [Todo(content='Write it', status='in_progress')])))
        progress.show(ERROR)
        progress.show(replace(END, todos=todos))
    *_, plan, _, error = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', stream.getvalue()).splitlines()
    assert (plan, error) == ('  ▸ Write it', 'Interrupted.')


def test_unfinished_call_is_shown_at_the_end() -> None:
    assert show(CALL, ERROR, END) == snapshot("""\
· grep a /src
0 requests, 0 tool calls, 0 tokens in, 0 out, 1 s
Interrupted.
""")


def test_result_without_a_call_is_shown() -> None:
    assert show(RESULT) == snapshot('✓ grep  /src/a.py: 3\n')


def test_text_between_calls_is_shown_without_the_answer() -> None:
    done = EndEvent(status='complete', output='Done.', usage=UsageEvent(), seconds=0.0)
    events = [TextEvent(text='I l'), TextEvent(text='ook.\n'), CALL, RESULT, TextEvent(text='Done.'), done]
    assert show(*events) == snapshot("""\
I look.
✓ grep a /src  /src/a.py: 3
0 requests, 0 tool calls, 0 tokens in, 0 out, 0 s
""")
    assert show(StartEvent(), *events, shows_answer=True) == snapshot("""\
I look.
✓ grep a /src  /src/a.py: 3
Done.
0 requests, 0 tool calls, 0 tokens in, 0 out, 0 s
""")


def test_changed_files_are_shown() -> None:
    change = FileEvent(path='/a.md', change='created', added_lines=3, removed_lines=0)
    usage = UsageEvent(requests=1, tool_calls=1, input_tokens=12_345, output_tokens=1_234_567)
    end = EndEvent(status='complete', output='', usage=usage, files=[change], seconds=61.4, workspace=WORKSPACE)
    assert show(change, usage, ThinkingEvent(text='Hm'), end) == snapshot("""\
created /a.md +3 -0
1 request, 1 tool call, 12k tokens in, 1.2M out, 61 s
""")


def test_subagent_calls_are_shown_below_their_task() -> None:
    task = ToolCallEvent(id='t', name='task', args=json.dumps({'subagent': 'researcher'}))
    child = ToolCallEvent(id='t/1', name='grep', path=['researcher'], args=json.dumps({'pattern': 'a'}))
    found = ToolResultEvent(id='t/1', name='grep', path=['researcher'], outcome='success', content='1')
    done = ToolResultEvent(id='t', name='task', outcome='success', content='Found.')
    assert show(task, child, found, child, found, done) == snapshot("""\
· task researcher
  ✓ grep a  1
  ✓ grep a  1
✓ task researcher  Found.
""")


def test_calls_of_parallel_subagents_are_prefixed_with_the_subagent() -> None:
    events: list[StreamEvent] = []
    for name in ('one', 'a name that is much too long'):
        events.append(ToolCallEvent(id=name, name='task', args=json.dumps({'subagent': name})))
        events.append(ToolCallEvent(id=f'{name}/1', name='ls', path=[name], args='{}'))
    for name in ('one', 'a name that is much too long'):
        events.append(ToolResultEvent(id=f'{name}/1', name='ls', path=[name], outcome='success', content='x'))
    events.append(ToolResultEvent(id='one', name='task', outcome='success', content='Done.'))
    events.append(ToolCallEvent(id='a name that is much too long/2', name='ls', path=['two'], args='{}'))
    assert show(*events, ERROR, END) == snapshot("""\
· task one
· task a name that is much too long
  ✓ one ls  x
  ✓ a name that is much… ls  x
✓ task one  Done.
· task a name that is much too long
  · ls
0 requests, 0 tool calls, 0 tokens in, 0 out, 1 s
Interrupted.
""")


def test_unfinished_calls_are_listed_below_their_task() -> None:
    """Calls of subagents arrive after the calls of their parent."""
    events: list[StreamEvent] = [
        ToolCallEvent(id='t', name='task', args=json.dumps({'subagent': 'one'})),
        ToolCallEvent(id='u', name='ls', args='{}'),
        ToolCallEvent(id='t/v', name='task', path=['one'], args=json.dumps({'subagent': 'two'})),
        ToolCallEvent(id='t/w', name='glob', path=['one'], args='{}'),
        ToolCallEvent(id='t/v/1', name='grep', path=['one', 'two'], args='{}'),
    ]
    assert show(*events, ERROR, END) == snapshot("""\
· task one
· task one
  · task two
    · grep
  · glob
· ls
0 requests, 0 tool calls, 0 tokens in, 0 out, 1 s
Interrupted.
""")


def test_answer_with_edited_arguments_before_its_call_is_ignored() -> None:
    edited = ApprovalAnswerEvent(id='1', decision='edit', by='person', args={'pattern': 'b'})
    assert show(edited, CALL, edited, RESULT) == snapshot('✓ grep b  /src/a.py: 3\n')


def test_incomplete_file_list_is_reported_at_the_end() -> None:
    assert 'Commands may have changed more files' in show(
        replace(END, workspace=replace(WORKSPACE, has_all_changes=False)), shows_answer=True
    )


def test_running_calls_are_drawn_below_their_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('TERM', 'xterm')
    stream = StringIO()
    console = Console(file=stream, width=60, force_terminal=True, color_system=None)
    with ProgressDisplay(console, clock=FakeClock().monotonic, shows_answer=False) as progress:
        progress.show(ToolCallEvent(id='t', name='task', args=json.dumps({'subagent': 'one'})))
        progress.show(ToolCallEvent(id='u', name='task', args=json.dumps({'subagent': 'two'})))
        progress.show(ToolCallEvent(id='t/1', name='ls', path=['one'], args='{}'))
        with progress.suspended():
            drawn = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]|\r', '', stream.getvalue())
            assert '· task one\n  · ls\n· task two\n0 requests' in drawn
            console.print('A question')
        assert stream.getvalue().count('\x1b[?25l') == 2


RETRIED = RetriedEvent(attempt=2, attempts=3, reason='rate limited (429)', delay_seconds=2.0, void_text='')
SUMMARIZED = SummarizedEvent(
    reason='tokens', replaced_messages=41, tokens_before=20_100, tokens_after=4300, is_plain=False, error=None
)
BUDGET = BudgetEvent(kind='warning', measure='tokens', limit=2_000_000, used=1_600_500, model=None)


def test_capability_events_print_one_line_each() -> None:
    plain = replace(SUMMARIZED, is_plain=True, error='ModelHTTPError: no\x1b[31m\nmore', path=['researcher', 'reader'])
    cost = replace(BUDGET, kind='last_answer', measure='cost', limit=0.5, used=0.4512)
    unknown = replace(BUDGET, kind='unknown', limit=None, used=None, model='m')
    events = (SUMMARIZED, plain, RETRIED, replace(RETRIED, delay_seconds=0.0), BUDGET, cost, unknown)
    assert show(*events, replace(unknown, model=None)) == snapshot("""\
summarized 41 messages: 20,100 → 4,300 tokens
researcher: reader: summarized 41 messages: 20,100 → 4,300 tokens; no model could write the summary: ModelHTTPError: no\\x1b[31m
attempt 2 of 3 in 2.0 s: rate limited (429)
attempt 2 of 3: rate limited (429)
budget: 1,600,500 of 2,000,000 tokens used
budget: $0.4512 of $0.50 used; one answer left
the tokens of an answer of m are unknown and not counted against the budget
the tokens of an answer are unknown and not counted against the budget
""")


def test_text_of_a_failed_attempt_is_removed_in_a_run() -> None:
    retried = replace(RETRIED, void_text='Half\nan ')
    call = (CALL, RESULT)
    assert show(TextEvent(text='Before. '), TextEvent(text='Half\nan '), retried, TextEvent(text='Now.'), *call) == (
        snapshot("""\
attempt 2 of 3 in 2.0 s: rate limited (429)
Before. Now.
✓ grep a /src  /src/a.py: 3
""")
    )


def test_text_of_a_failed_attempt_is_removed_or_void_in_a_chat() -> None:
    half = replace(RETRIED, void_text='Half an ')
    assert show(TextEvent(text='Half an '), half, TextEvent(text='Whole.'), ERROR, END, shows_answer=True) == snapshot("""\
attempt 2 of 3 in 2.0 s: rate limited (429)
Whole.
0 requests, 0 tool calls, 0 tokens in, 0 out, 1 s
Interrupted.
""")
    lines = replace(RETRIED, void_text='One\nTwo\nThr')
    shown = show(TextEvent(text='One\nTwo\nThr'), lines, TextEvent(text='One.'), ERROR, END, shows_answer=True)
    assert shown == snapshot("""\
One
Two
attempt 2 of 3 in 2.0 s: rate limited (429); the unfinished answer above is void
One.
0 requests, 0 tool calls, 0 tokens in, 0 out, 1 s
Interrupted.
""")


def show_live(*events: StreamEvent) -> str:
    """Return what a terminal has at the end, without the live block."""
    stream = StringIO()
    console = Console(file=stream, width=60, force_terminal=True, color_system=None, _environ={'TERM': 'xterm'})
    with ProgressDisplay(console, clock=FakeClock().monotonic, shows_answer=True) as progress:
        for event in events:
            progress.show(event)
    return '\n'.join(screen_of(stream.getvalue()))


def test_a_terminal_gets_complete_blocks_of_markdown() -> None:
    """Blocks of an answer are printed once they are complete, between calls too, with blank lines around them."""
    shown = show_live(
        TextEvent(text='# Look'), TextEvent(text='\n\nI *look*.'), CALL, RESULT, TextEvent(text='- one\n- two'), END
    )
    assert shown == snapshot("""\

Look

I look.

✓ grep a /src  /src/a.py: 3

 • one
 • two

0 requests, 0 tool calls, 0 tokens in, 0 out, 1 s
""")


@pytest.mark.parametrize(('pieces', 'is_shown'), [(('One', ' two'), False), (('One\n\nt', 'wo'), True)])
def test_void_markdown_is_declared_if_it_was_printed(pieces: tuple[str, ...], is_shown: bool) -> None:
    """A failed attempt of which a block is printed is declared void; otherwise nothing of it is shown."""
    retried = RetriedEvent(attempt=2, attempts=3, delay_seconds=0.0, reason='cut', void_text=''.join(pieces))
    shown = show_live(*(TextEvent(text=piece) for piece in pieces), retried, TextEvent(text='Three'), END)
    assert ('the unfinished answer above is void' in shown) is is_shown
    assert 'Three' in shown


def test_code_of_a_streamed_answer_has_the_colors_of_the_theme() -> None:
    """The unfinished block and the printed one have them."""
    stream = StringIO()
    console = Console(file=stream, width=60, force_terminal=True, color_system='truecolor', _environ={'TERM': 'xterm'})
    with ProgressDisplay(console, clock=FakeClock().monotonic, shows_answer=True, theme='monokai') as progress:
        progress.show(TextEvent(text='```python\nprint(1)\n'))
        console.print(progress._render_block())  # pyright: ignore[reportPrivateUsage] - drawn by a thread otherwise
        unfinished = stream.getvalue()
        progress.show(TextEvent(text='```\n\nDone.'))
        printed = stream.getvalue()[len(unfinished) :]

    assert '\x1b[38;2;' in unfinished
    assert '\x1b[38;2;' in printed
