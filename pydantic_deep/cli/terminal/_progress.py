"""The progress display of a turn: permanent lines, and on a terminal a live block below them with the current state."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.text import Text

from pydantic_deep.cli.render._event_lines import (
    render_budget,
    render_call,
    render_changed_approval,
    render_end,
    render_error,
    render_pause,
    render_prior_answer,
    render_retried,
    render_summarized,
    render_todos,
    render_usage,
)
from pydantic_deep.cli.render._markdown import AnswerMarkdown, markdown_blocks, split_blocks, tail_lines
from pydantic_deep.cli.render._terminal_text import escape_invisible, escape_prose
from pydantic_deep.cli.render._wrapping import print_truncated, print_wrapped
from pydantic_deep.cli.terminal._live_block import LiveBlock
from pydantic_deep.cli.terminal._terminal import set_echo, write_output
from pydantic_deep.streaming import (
    Approval,
    ApprovalAnswerEvent,
    ApprovalRequiredEvent,
    BudgetEvent,
    EndEvent,
    ErrorEvent,
    RetriedEvent,
    StartEvent,
    StreamEvent,
    SummarizedEvent,
    TextEvent,
    TodosEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from pydantic_deep.todos import Todo


class ProgressDisplay:
    """Shows the events of one turn. Use it as a context manager, and pass each event to `show`."""

    def __init__(
        self,
        console: Console,
        *,
        clock: Callable[[], float],
        shows_answer: bool,
        heading: str | None = None,
        theme: str | None = None,
    ) -> None:
        """Create the display of one turn.

        Args:
            console: The output. The block is drawn only on a terminal that can move its cursor.
            clock: A monotonic clock in seconds.
            shows_answer: Whether to print the answer, as in a chat. Otherwise only text between tool calls is printed,
                because the answer is printed elsewhere.
            heading: The line to begin with.
            theme: The colors of code.
        """
        self._console = console
        self._clock = clock
        self._shows_answer = shows_answer
        self._heading = heading
        self._theme = theme
        self._started = clock()
        self._calls: dict[str, ToolCallEvent] = {}
        self._text = ''
        self._has_block = False
        self._todos: list[Todo] = []
        self._usage = UsageEvent()
        self._successful_calls = 0
        self._approvals: list[Approval] = []
        self._error: ErrorEvent | None = None
        self._shown_tasks: set[str] = set()
        self._is_live = console.is_terminal and not console.is_dumb_terminal
        self._live: LiveBlock | None = None

    def __enter__(self) -> Self:
        """Start to draw the block."""
        if self._is_live:
            set_echo(is_on=False)  # typed text would displace the block, and stay among the lines
            self._live = LiveBlock(self._console, self._render_block)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the block. The lines remain."""
        self._stop_drawing()

    @contextmanager
    def suspended(self) -> Generator[None]:
        """Suspend the display, so that a prompt can use the screen."""
        self._stop_drawing()
        try:
            yield
        finally:
            self.__enter__()  # a new block: the old one would overwrite lines that were printed since

    def notify(self, sentence: str) -> None:
        """Print a notice of the command line."""
        self._line(Text(sentence, 'yellow'))

    def _stop_drawing(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            set_echo(is_on=True)

    def show(self, event: StreamEvent) -> None:
        """Update the display with an event."""
        match event:
            case StartEvent():
                if self._heading is not None:
                    print_truncated(self._console, Text(escape_invisible(self._heading), 'dim'))
            case TextEvent(path=[]):
                self._append_text(event.text)
            case ToolCallEvent():
                self._flush_text()
                self._show_task(event)
                self._calls[event.id] = event
            case ToolResultEvent():
                call = self._calls.pop(event.id, None)
                call = call or ToolCallEvent(id=event.id, name=event.name, path=event.path, args='')
                self._call_line(call, event)
                self._shown_tasks.discard(event.id)
                self._successful_calls += event.outcome == 'success'
            case TodosEvent():
                self._todos = event.todos
                if not self._is_live:
                    self._line(render_todos(event.todos))
            case ApprovalAnswerEvent():
                self._show_prior_answer(event)
            case ApprovalRequiredEvent():
                self._approvals = event.approvals
                for approval in event.approvals:
                    if approval.has_changed:
                        self._line(render_changed_approval(approval))
            case UsageEvent():
                self._usage = event
            case SummarizedEvent():
                self._line(render_summarized(event))
            case RetriedEvent():
                self._discard_void_text(event)
            case BudgetEvent():
                self._line(render_budget(event))
            case ErrorEvent():
                self._error = event
            case EndEvent():
                self._finish(event)
            case _:
                pass  # files are listed at the end of the turn; thoughts are not shown

    def _append_text(self, text: str) -> None:
        """Append a piece of the answer. In a chat, print what more text cannot change: blocks of Markdown, or lines."""
        starts_line = self._text.endswith('\n')  # which may start a block, and thereby end the one before it
        self._text += text
        if not self._shows_answer or not (starts_line or '\n' in text):
            return
        if self._is_live:
            blocks, self._text = split_blocks(self._text)
            for block in blocks:
                self._print_block(block)
        else:
            *lines, self._text = self._text.split('\n')
            for line in lines:
                self._line(Text(escape_prose(line)))

    def _discard_void_text(self, event: RetriedEvent) -> None:
        """Discard the text of a failed attempt. In a chat, printed text remains and is declared void."""
        void = '' if event.path else event.void_text  # text of subagents is not shown
        is_shown = not self._text.endswith(void)
        self._text = '' if is_shown else self._text.removesuffix(void)
        self._line(render_retried(event, is_shown=is_shown))

    def _show_prior_answer(self, event: ApprovalAnswerEvent) -> None:
        """Show an answer that was given elsewhere first, and update edited arguments."""
        call = self._calls.get(event.id)
        if event.answered_by is not None:
            self._line(render_prior_answer(event, None if call is None else call.name))
        if call is not None and event.args is not None:
            self._calls[event.id] = replace(call, args=json.dumps(event.args))

    def _flush_text(self) -> None:
        """Print the rest of a text, which a call or the end of the turn completes."""
        if self._is_live:
            for block in markdown_blocks(self._text):
                self._print_block(block)
            if self._has_block:
                self._console.print()
            self._has_block = False
        elif self._text.strip():
            self._line(Text(escape_prose(self._text.strip('\n')), '' if self._shows_answer else 'italic'))
        self._text = ''

    def _print_block(self, block: str) -> None:
        """Print a block of Markdown after a blank line."""
        self._has_block = True
        self._console.print()
        self._console.print(AnswerMarkdown(block, theme=self._theme), crop=False)

    def _finish(self, end: EndEvent) -> None:
        self._stop_drawing()
        if self._shows_answer or end.output is None:
            self._flush_text()
        for call in self._running_calls():
            self._call_line(call)
        if self._is_live and end.todos:
            self._line(render_todos(end.todos))
        self._line(render_end(end, names_store=not self._shows_answer))
        if end.status == 'awaiting_approval':
            self._line(render_pause(self._approvals, end))
        elif self._error is not None:
            self._line(render_error(self._error, end))

    def _show_task(self, call: ToolCallEvent) -> None:
        """Show the call that started a subagent before the first call of the subagent."""
        task = next((task for id, task in self._calls.items() if call.id.startswith(f'{id}/')), None)
        if task is not None and task.id not in self._shown_tasks:
            self._shown_tasks.add(task.id)
            self._call_line(task)

    def _call_line(self, call: ToolCallEvent, result: ToolResultEvent | None = None) -> None:
        """Print a call, with the name of its subagent if several run."""
        print_truncated(self._console, render_call(call, result, is_named=len(self._shown_tasks) > 1))

    def _running_calls(self) -> list[ToolCallEvent]:
        """Return the running calls, each followed by those of its subagent."""
        calls = list(self._calls.values())  # a copy: another thread draws the block
        position = {call.id: number for number, call in enumerate(calls)}

        def places(call: ToolCallEvent) -> list[int]:
            return [position.get(id, -1) for id in accumulate(call.id.split('/'), '{}/{}'.format)]

        return sorted(calls, key=places)

    def _line(self, text: Text) -> None:
        """Print permanent text, wrapped on a terminal and unchanged elsewhere."""
        print_wrapped(self._console, text)

    def _render_block(self) -> Group:
        """Return the live block: the unfinished line, running calls, the plan and the usage."""
        # A usage event follows each response only, so calls that succeeded since are counted here.
        usage = replace(self._usage, tool_calls=max(self._usage.tool_calls, self._successful_calls))
        rows = [
            *map(render_call, self._running_calls()),
            *([render_todos(self._todos)] if self._todos else []),
            render_usage(usage, self._clock() - self._started),
        ]
        height = self._console.height - sum(len(row.wrap(self._console, self._console.width)) for row in rows)
        # A block that is higher than the terminal would scroll away and be drawn again below.
        text = (
            [Text(), tail_lines(self._console, self._text, max(height - 2, 1), theme=self._theme)]
            if self._text.strip()
            else []
        )
        return Group(*text, *rows)


def print_answer(output: str, *, theme: str | None = None) -> None:
    """Print the answer of the model, ending with a newline. On a terminal, control characters are escaped."""
    console = Console()
    if console.is_terminal:
        for block in markdown_blocks(output):
            console.print()
            console.print(AnswerMarkdown(block, theme=theme), crop=False)
    else:
        write_output(output if output.endswith('\n') else f'{output}\n')
