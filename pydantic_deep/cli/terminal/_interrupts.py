"""Handling of Ctrl-C: it stops a turn, not the program."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from pydantic_ai import CancellationToken

from pydantic_deep.cli.terminal._terminal import set_echo

SHOW_CURSOR = '\x1b[?25h'
"""The escape sequence that shows the cursor, which the progress display hides."""


class Interrupts:
    """The handling of Ctrl-C during a turn."""

    def __init__(self) -> None:
        """Install the handler. Call this in the main thread, inside the event loop."""
        self.stop = CancellationToken()
        self.on_stop: Callable[[], object] = lambda: None
        """Called after `stop` is cancelled. It cancels work that takes no token."""
        self._loop = asyncio.get_running_loop()
        self._is_taken = False
        self._stop_on_signal()

    @contextmanager
    def suspended(self) -> Generator[None]:
        """Let prompts handle Ctrl-C. Between two prompts it has no effect."""
        self._is_taken = False
        # Not SIG_IGN, which child processes such as an editor would inherit.
        signal.signal(signal.SIGINT, lambda number, frame: None)
        try:
            yield
        finally:
            self._stop_on_signal()

    def restore_default(self) -> None:
        """Restore the default: Ctrl-C ends the program."""
        self._is_taken = False
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _stop_on_signal(self) -> None:
        """Handle the signal in the event loop. Windows lacks `loop.add_signal_handler`."""
        self._is_taken = True
        signal.signal(signal.SIGINT, lambda number, frame: self._loop.call_soon_threadsafe(self._stop))

    def _stop(self) -> None:
        if not self._is_taken:  # a signal from before `suspended` or `restore_default`, which the loop handles only now
            return
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # KeyboardInterrupt would not end a turn that ignores cancellation
        if sys.stderr.isatty():
            print(SHOW_CURSOR, end='', file=sys.stderr, flush=True)  # noqa: T201
        set_echo(is_on=True)  # as the display cannot, if a second signal kills the process
        self.stop.cancel()
        self.on_stop()


@contextmanager
def stop_on_interrupt() -> Generator[Interrupts]:
    """Let the first Ctrl-C cancel the token `stop`, and a second one kill the process, in case the turn does not stop.

    Enter it in the main thread, inside the event loop.
    """
    interrupts = Interrupts()
    try:
        yield interrupts
    finally:
        interrupts.restore_default()
