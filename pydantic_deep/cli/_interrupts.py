"""Ctrl-C that stops a turn and not the program."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

from pydantic_ai import CancellationToken

SHOW_CURSOR = '\x1b[?25h'
"""Makes a terminal show its cursor, which the progress hides."""


@contextmanager
def stop_on_interrupt() -> Generator[CancellationToken]:
    """Yield a token that the first Ctrl-C cancels. A second one kills the process: for a turn that does not stop.

    It must be entered in the main thread, inside the event loop.
    """
    token = CancellationToken()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # an exception would wait for what does not stop
        if sys.stderr.isatty():
            print(SHOW_CURSOR, end='', file=sys.stderr, flush=True)  # noqa: T201
        token.cancel()

    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield token
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)
