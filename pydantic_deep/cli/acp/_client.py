"""The methods of an editor that the agent calls."""

from __future__ import annotations

from typing import Final, Protocol

from acp import RequestError
from acp.schema import (
    CreateTerminalResponse,
    EnvVariable,
    KillTerminalResponse,
    PermissionOption,
    ReadTextFileResponse,
    ReleaseTerminalResponse,
    RequestPermissionResponse,
    TerminalOutputResponse,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)
from pydantic import ValidationError

from ._updates import Update

FAILURES: Final = (RequestError, ValidationError)
"""The errors of all methods: the editor refused the request, or its response is not that of the protocol."""


def describe_refusal(error: Exception) -> str:
    """Return why one of these methods failed, as the end of a sentence."""
    return 'its response is invalid' if isinstance(error, ValidationError) else str(error)


class Client(Protocol):
    """An editor. It has the methods for files and terminals if it has declared these capabilities."""

    async def session_update(self, session_id: str, update: Update) -> None:
        """Show an update."""
        ...

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption]
    ) -> RequestPermissionResponse:
        """Ask a person about a call."""
        ...

    async def read_text_file(self, session_id: str, path: str) -> ReadTextFileResponse:
        """Return the text of a file, saved or not."""
        ...

    async def write_text_file(self, session_id: str, path: str, content: str) -> WriteTextFileResponse | None:
        """Replace the text of a file, and save it."""
        ...

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
    ) -> CreateTerminalResponse:
        """Start a command."""
        ...

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str) -> WaitForTerminalExitResponse:
        """Wait for the end of a command."""
        ...

    async def terminal_output(self, session_id: str, terminal_id: str) -> TerminalOutputResponse:
        """Return the output so far."""
        ...

    async def kill_terminal(self, session_id: str, terminal_id: str) -> KillTerminalResponse | None:
        """Kill a command. Its output remains."""
        ...

    async def release_terminal(self, session_id: str, terminal_id: str) -> ReleaseTerminalResponse | None:
        """Kill a command that still runs, and forget its output."""
        ...
