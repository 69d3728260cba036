"""A text in the person's own editor: `$VISUAL`, else `$EDITOR`."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread

from pydantic_deep.errors import DeepAgentError

from ._terminal import Terminal


class NoEditorError(DeepAgentError):
    """There is no editor, or it cannot be started."""


class EditingFailedError(DeepAgentError):
    """The editor ended with an error: whatever it wrote is not wanted."""


async def edit_text(text: str, *, name: str, terminal: Terminal, variables: Mapping[str, str]) -> str:
    """Return the text as the person leaves it.

    Args:
        text: What the editor begins with.
        name: The name of the file: its end tells the editor what it is.
        terminal: Where the editor appears.
        variables: The environment variables.

    Raises:
        NoEditorError: There is none.
        EditingFailedError: It ended with an error, or what it left is no UTF-8.
    """
    command = shlex.split(variables.get('VISUAL') or variables.get('EDITOR') or '')
    if not command:
        raise NoEditorError('Neither VISUAL nor EDITOR names an editor.')
    return await anyio.to_thread.run_sync(_edit, command, text, name, terminal)


def _edit(command: list[str], text: str, name: str, terminal: Terminal) -> str:
    with tempfile.TemporaryDirectory(prefix='pydantic-deep-') as directory:  # which only this user can enter
        path = Path(directory) / name
        path.write_text(text, encoding='utf-8')
        try:
            done = subprocess.run(  # noqa: S603 - the person's own command
                [*command, str(path)], stdin=terminal.stdin, stdout=terminal.stdout, stderr=terminal.stdout
            )
        except OSError as error:
            raise NoEditorError(f'{command[0]!r} cannot be started: {error.strerror}.') from error
        if done.returncode != 0:
            raise EditingFailedError(f'The editor exited with code {done.returncode}; nothing was changed.')
        try:
            return path.read_text(encoding='utf-8')
        except (OSError, UnicodeDecodeError) as error:
            raise EditingFailedError(f'The edited file cannot be read: {error}') from error
