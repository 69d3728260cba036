"""The terminal that a person can be asked at, whatever standard input and output are."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.output import create_output
from rich.console import Console

TTY = Path('/dev/tty')
"""The terminal that controls this process (POSIX)."""


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """Where a person reads and types."""

    stdin: TextIO
    """What the person types comes from it."""
    stdout: TextIO
    """What the person reads goes to it."""

    @cached_property
    def console(self) -> Console:
        """Where lines are printed."""
        columns = os.get_terminal_size(self.stdout.fileno()).columns  # Rich looks at the standard streams only
        return Console(file=self.stdout, width=columns or None)

    async def ask(self, prompt: str, *, default: str = '', multiline: bool = False) -> str:
        """Return what the person types now; what was typed before the question was there is dropped.

        Args:
            prompt: What stands before what is typed.
            default: What stands there to be changed.
            multiline: Whether Enter begins a line; Escape and Enter end the text.

        Raises:
            KeyboardInterrupt: The person pressed Ctrl-C.
            EOFError: The person pressed Ctrl-D, or the terminal is gone.
        """
        self.discard_input()
        with create_app_session(input=self._input, output=create_output(self.stdout)):
            # Not handed to the prompt itself, which then would draw on terminals that cannot move their cursor.
            return await PromptSession[str](multiline=multiline).prompt_async(prompt, default=default)

    def discard_input(self) -> None:
        """Discard typed input that was not read yet: it was typed before the question was shown."""
        if sys.platform == 'win32':
            import msvcrt

            while msvcrt.kbhit():
                msvcrt.getwch()
        else:
            import termios

            termios.tcflush(self.stdin.fileno(), termios.TCIFLUSH)
        clear_typeahead(self._input)

    @cached_property
    def _input(self) -> Input:
        return create_input(self.stdin)


@contextmanager
def open_terminal() -> Generator[Terminal | None]:
    """Yield the terminal: standard input and error if both are one, else that which controls this process, if any."""
    with ExitStack() as stack:
        terminal: Terminal | None
        if sys.stdin.isatty() and sys.stderr.isatty():
            terminal = Terminal(stdin=sys.stdin, stdout=sys.stderr)
        else:
            try:
                stdin = stack.enter_context(TTY.open(encoding='utf-8'))
                stdout = stack.enter_context(TTY.open('w', encoding='utf-8'))
                terminal = Terminal(stdin=stdin, stdout=stdout)
            except OSError:
                terminal = None
        yield terminal
