"""The terminal for prompts, even if standard input and output are redirected."""

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
"""The controlling terminal of this process (POSIX)."""


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """An interactive terminal."""

    stdin: TextIO
    """The input of the terminal."""
    stdout: TextIO
    """The output of the terminal."""

    @property
    def console(self) -> Console:
        """A console that prints to the terminal, as wide as it is now."""
        columns = os.get_terminal_size(self.stdout.fileno()).columns  # Rich measures only the standard streams
        return Console(file=self.stdout, width=columns or None)

    async def ask(self, prompt: str, *, default: str = '', multiline: bool = False) -> str:
        """Prompt for a text and return it. Input that was typed before the prompt is discarded.

        Args:
            prompt: The text before the input.
            default: The initial text, which can be edited.
            multiline: Whether Enter starts a new line. Escape, then Enter ends the text.

        Raises:
            KeyboardInterrupt: The user pressed Ctrl-C.
            EOFError: The user pressed Ctrl-D, or the terminal was closed.
        """
        self.discard_input()
        with create_app_session(input=self._input, output=create_output(self.stdout)):
            # Passed directly, the prompt would draw on terminals that cannot move their cursor.
            return await PromptSession[str](multiline=multiline, enable_suspend=True).prompt_async(
                prompt, default=default
            )

    def discard_input(self) -> None:
        """Discard input that was typed before the prompt was shown."""
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


def set_echo(*, is_on: bool) -> None:
    """Let the terminal show what is typed, or not. It has no effect in a background process, which this would stop."""
    if sys.platform == 'win32':
        return
    import termios

    try:
        descriptor = sys.stdin.fileno()
        if os.tcgetpgrp(descriptor) != os.getpgrp():
            return
        modes = termios.tcgetattr(descriptor)
        modes[3] = modes[3] | termios.ECHO if is_on else modes[3] & ~termios.ECHO
        termios.tcsetattr(descriptor, termios.TCSANOW, modes)
    except (OSError, ValueError, termios.error):
        pass  # standard input is not the controlling terminal, or is closed


def write_output(text: str) -> None:
    """Write to standard output at once. Errors have its name as their `filename`."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        error.filename = 'standard output'
        raise


@contextmanager
def open_terminal() -> Generator[Terminal | None]:
    """Yield standard input and error if both are terminals, else the controlling terminal, else `None`."""
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
