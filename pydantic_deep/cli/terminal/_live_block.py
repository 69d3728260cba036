"""`LiveBlock`: the lines below the permanent ones, which are drawn again and again, also in a window that gets narrower."""

from __future__ import annotations

import os
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment, SegmentLines

REFRESH_PER_SECOND = 4
"""Refresh rate of the block, high enough for its count of seconds."""

_UNWRAPPED = ('XTERM_VERSION', 'STY')
"""Variables that xterm and GNU screen set, which cut lines at a narrower window. tmux and all others wrap them again."""


class LiveBlock(RenderHook):
    """Draws a block until `stop`. Its lines are erased even if the terminal has made more rows of them.

    `Live` erases as many rows as it has drawn lines.
    """

    def __init__(self, console: Console, render: Callable[[], RenderableType]) -> None:
        """Draw a block.

        Args:
            console: A terminal.
            render: Returns the block as it is now.
        """
        self._console = console
        self._render = render
        self._lengths: list[int] = []
        self._live = Live(
            self,
            console=console,
            transient=True,
            refresh_per_second=REFRESH_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        console.push_render_hook(self)  # before that of `Live`, which therefore moves the cursor first
        self._live.start(refresh=True)

    def stop(self) -> None:
        """Remove the block."""
        self._live.stop()
        self._console.pop_render_hook()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, and note their lengths."""
        lines = console.render_lines(self._render(), options, pad=False)
        self._lengths = [Segment.get_line_length(line) for line in lines]
        yield SegmentLines(lines, new_lines=True)

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Erase the rows that the lines have in addition since the window is narrower."""
        width = self._console.width
        rows = sum((max(length, 1) - 1) // width for length in self._lengths) if _wraps_again() else 0
        return [Control(*((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)) * rows), *renderables]


def _wraps_again() -> bool:
    return 'TMUX' in os.environ or not any(name in os.environ for name in _UNWRAPPED)
