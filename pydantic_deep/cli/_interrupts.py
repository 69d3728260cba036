"""Ctrl-C that stops a turn and not the program."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager

from pydantic_ai import CancellationToken


@contextmanager
def stop_on_interrupt() -> Generator[CancellationToken]:
    """Yield a token that the first Ctrl-C cancels; a second one is `KeyboardInterrupt`, for a turn that hangs.

    It must be entered in the main thread, inside the event loop.
    """
    token = CancellationToken()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        token.cancel()

    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield token
    finally:
        loop.remove_signal_handler(signal.SIGINT)
