"""The prompt of a chat: keys, history and completion."""

from __future__ import annotations

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console
from rich.text import Text

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.render._terminal_text import escape_invisible

CONTINUATION = '  '
"""The text before further lines of the input."""

COMPLETION_ROWS = 6
"""Rows below the prompt that are reserved for completions."""


def create_prompt(history: History, completer: Completer) -> PromptSession[str]:
    """Return the prompt of a chat: Enter sends, Alt-Enter or a backslash before Enter starts a line."""
    return PromptSession(
        history=history,
        completer=completer,
        complete_while_typing=True,
        reserve_space_for_menu=COMPLETION_ROWS,
        multiline=True,
        key_bindings=_key_bindings(),
        prompt_continuation=CONTINUATION,
        enable_open_in_editor=True,
        enable_suspend=True,
    )


async def ask(question: str) -> str:
    """Read the answer to a question; an empty one after Ctrl-C."""
    return await read_line(PromptSession[str](enable_suspend=True), question)


async def read_line(session: PromptSession[str], message: str) -> str:
    """Read an input. Ctrl-C discards it."""
    try:
        return await session.prompt_async(message)
    except KeyboardInterrupt:
        return ''


def open_history(environment: Environment, console: Console) -> History:
    """Return the prompt history; one in memory, with a warning, if the file cannot be written."""
    path = environment.state_directory / 'chat_history'
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError as error:
        console.print(Text(escape_invisible(f'Prompts are not stored: {error}'), 'yellow'))
        return InMemoryHistory()
    return FileHistory(str(path))


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add('enter')
    def _send(event: KeyPressEvent) -> None:
        """Send the input; after a backslash, start a line; with a selected completion, accept that."""
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif buffer.document.char_before_cursor == '\\':
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @bindings.add('escape', 'enter')
    def _start_line(event: KeyPressEvent) -> None:
        """Start a line."""
        event.current_buffer.newline(copy_margin=False)

    return bindings
