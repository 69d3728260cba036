"""Editing a text in the user's editor: `$VISUAL`, else `$EDITOR`."""

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
    """No editor is configured, or it cannot be started."""


class EditingFailedError(DeepAgentError):
    """The editor failed, or the edited file cannot be read. The text is discarded."""


async def edit_text(text: str, *, name: str, terminal: Terminal, variables: Mapping[str, str]) -> str:
    """Open a text in the editor, and return the edited text.

    Args:
        text: The initial text.
        name: The name of the file. Its extension tells the editor the format.
        terminal: The terminal for the editor.
        variables: The environment variables.

    Raises:
        NoEditorError: No editor is configured, or it cannot be started.
        EditingFailedError: The editor failed, or the edited file is not valid UTF-8.
    """
    command = shlex.split(variables.get('VISUAL') or variables.get('EDITOR') or '')
    if not command:
        raise NoEditorError('Neither VISUAL nor EDITOR names an editor.')
    return await anyio.to_thread.run_sync(_edit, command, text, name, terminal)


def _edit(command: list[str], text: str, name: str, terminal: Terminal) -> str:
    with tempfile.TemporaryDirectory(prefix='pydantic-deep-') as directory:  # accessible to this user only
        path = Path(directory) / name
        path.write_text(text, encoding='utf-8')
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command
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
