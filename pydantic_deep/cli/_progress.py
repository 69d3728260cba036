"""What a person sees while a turn runs: lines that stay, and on a terminal a block below them that follows the work."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pydantic_deep.todos import Todo

from ._events import (
    Event,
    FileEvent,
    ResultEvent,
    StartEvent,
    TextEvent,
    TodosEvent,
    ToolCallEvent,
    ToolResultEvent,
    Usage,
    UsageEvent,
)
from ._printable import printable
from ._render import render_call, render_result, render_todos, render_usage

REFRESH_PER_SECOND = 4
"""How often the block is drawn anew: the seconds in it must not jump."""


class Progress:
    """Shows the events of one turn. Use it as a context manager; `show` takes the events."""

    def __init__(self, console: Console, *, clock: Callable[[], float], keeps_answer: bool) -> None:
        """Prepare to show a turn.

        Args:
            console: Where to. The block is drawn if it is a terminal that can move its cursor.
            clock: Seconds that never go back.
            keeps_answer: Whether the last thing the model says stays on the screen, as in a chat. Else only what it
                says between its tool calls does, because the answer is printed elsewhere.
        """
        self._console = console
        self._clock = clock
        self._keeps_answer = keeps_answer
        self._started = clock()
        self._calls: dict[str, ToolCallEvent] = {}
        self._said = ''
        self._todos: list[Todo] = []
        self._usage = Usage()
        self._is_live = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(
            console=console,
            get_renderable=self._block,
            transient=True,
            refresh_per_second=REFRESH_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        """Begin to draw."""
        if self._is_live:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the screen with nothing but lines on it."""
        self._live.stop()

    def show(self, event: Event) -> None:
        """Show an event."""
        match event:
            case StartEvent():
                if not self._keeps_answer:
                    self._cut_line(Text(printable(f'{event.model} in {event.directory}'), 'dim'))
            case TextEvent():
                self._say(event.text)
            case ToolCallEvent():
                self._finish_saying()
                self._calls[event.id] = event
            case ToolResultEvent():
                call = self._calls.pop(event.id, ToolCallEvent(id=event.id, tool=event.tool, args={}))
                self._cut_line(render_call(call, event))
            case TodosEvent():
                self._todos = event.todos
                if not self._is_live:
                    self._line(render_todos(event.todos))
            case FileEvent():
                pass  # in the line of the tool that changed it, and at the end
            case UsageEvent():
                self._usage = event.usage
            case _:
                self._end(event)

    def _say(self, text: str) -> None:
        """Show whole lines as soon as they are whole: what stands above the block cannot be continued."""
        self._said += text
        if self._keeps_answer:
            *lines, self._said = self._said.split('\n')
            for line in lines:
                self._line(Text(printable(line)))

    def _finish_saying(self) -> None:
        if self._said.strip():
            self._line(Text(printable(self._said.strip('\n')), '' if self._keeps_answer else 'italic'))
        self._said = ''

    def _end(self, result: ResultEvent) -> None:
        self._live.stop()
        if self._keeps_answer or result.output is None:
            self._finish_saying()
        for call in self._calls.values():
            self._cut_line(render_call(call))
        if self._is_live and result.todos:
            self._line(render_todos(result.todos))
        self._line(render_result(result))

    def _line(self, text: Text) -> None:
        """Print text that stays: folded on a terminal, and left as it is where another program reads it."""
        self._console.print(text, soft_wrap=not self._console.is_terminal)

    def _cut_line(self, text: Text) -> None:
        """Print a line that a terminal shows as one line, however narrow it is."""
        is_terminal = self._console.is_terminal
        self._console.print(text, soft_wrap=not is_terminal, no_wrap=is_terminal, overflow='ellipsis')

    def _block(self) -> Group:
        """Return what is going on now: unfinished words, running calls, the plan, what was used."""
        saying = [Text(printable(self._said.rsplit('\n', 1)[-1]))] if self._said else []
        running = [render_call(call) for call in list(self._calls.values())]
        plan = [render_todos(self._todos)] if self._todos else []
        return Group(*saying, *running, *plan, render_usage(self._usage, self._clock() - self._started))
