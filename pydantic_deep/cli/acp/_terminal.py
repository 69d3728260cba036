"""Commands in the terminals of an editor, which shows them. They have all rights of the editor."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import anyio
from acp import RequestError
from acp.schema import (
    CreateTerminalResponse,
    EnvVariable,
    KillTerminalResponse,
    ReleaseTerminalResponse,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
)

from pydantic_deep_backends.errors import BackendUnavailableError, CommandTimeoutError
from pydantic_deep_backends.protocol import CommandResult

OUTPUT_BYTES: Final = 1_048_576
"""Bytes of output that the editor keeps, from the end: more than a model can read."""

OMITTED: Final = '[The beginning of the output was omitted.]\n'
"""The line before an output that the editor has truncated."""

SHUTDOWN_SECONDS: Final = 5
"""How long to wait for an editor that does not answer when a terminal is released."""


class TerminalClient(Protocol):
    """The methods of an editor for terminals."""

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


@dataclass(frozen=True, kw_only=True)
class EditorTerminal:
    """Runs commands in terminals of an editor, for one session: a `CommandRunner`."""

    client: TerminalClient
    """The editor."""
    session_id: str
    """The session."""

    async def __call__(
        self, directory: str, arguments: Sequence[str], *, env: Mapping[str, str], timeout: float | None
    ) -> CommandResult:
        """Run a command in a new terminal, which is released at the end, and after cancellation too.

        Raises:
            CommandTimeoutError: The command exceeded the timeout, and was killed.
            BackendUnavailableError: The editor refused.
        """
        program, *args = arguments
        variables = [EnvVariable(name=name, value=value) for name, value in env.items()]
        try:
            with anyio.CancelScope(shield=True):  # a terminal without a known id could not be released
                created = await self.client.create_terminal(
                    self.session_id, program, args, variables, directory, OUTPUT_BYTES
                )
            id = created.terminal_id
            try:
                return await self._result(id, timeout)
            finally:
                with anyio.move_on_after(SHUTDOWN_SECONDS, shield=True), suppress(RequestError, ConnectionError):
                    await self.client.release_terminal(self.session_id, id)
        except RequestError as error:
            raise BackendUnavailableError(f'The editor did not run the command: {error}. Ask the user.') from error

    async def _result(self, id: str, timeout: float | None) -> CommandResult:
        try:
            with anyio.fail_after(timeout):
                ended = await self.client.wait_for_terminal_exit(self.session_id, id)
        except TimeoutError:
            await self.client.kill_terminal(self.session_id, id)
            output = await self._output(id)
            raise CommandTimeoutError(
                f'The command took longer than {timeout:g} s and was killed.', stdout=output
            ) from None
        exit_code = ended.exit_code
        if exit_code is None:
            exit_code = -signal.Signals.__members__.get(ended.signal or '', signal.SIGKILL)
        return CommandResult(exit_code=exit_code, stdout=await self._output(id), stderr='')

    async def _output(self, id: str) -> str:
        """Return the output of both streams. At most `OUTPUT_BYTES`, whatever the editor sends."""
        response = await self.client.terminal_output(self.session_id, id)
        kept = response.output[-OUTPUT_BYTES:]
        return f'{OMITTED}{kept}' if response.truncated or len(kept) < len(response.output) else kept
