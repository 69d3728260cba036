"""Commands in the terminals of an editor, which can show them in their calls. They have all rights of the editor."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio
from acp.schema import CreateTerminalResponse, EnvVariable

from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep_backends.errors import BackendUnavailableError, CommandTimeoutError
from pydantic_deep_backends.protocol import CommandResult

from ._client import FAILURES, Client, describe_refusal

OUTPUT_BYTES: Final = 1_048_576
"""Bytes of output that the editor keeps, from the end: more than a model can read."""

OMITTED: Final = '[The beginning of the output was omitted.]\n'
"""The line before an output that the editor has truncated."""

SHUTDOWN_SECONDS: Final = 5
"""How long a cancelled command waits until the editor has released its terminal."""


@dataclass(kw_only=True)
class EditorTerminal:
    """Runs commands in terminals of an editor, for one session: a `CommandRunner`."""

    client: Client
    """The editor."""
    session_id: str
    """The session."""
    on_created: Callable[[str, str], None] = lambda command, id: None
    """Receives each command, the last argument, and the id of its terminal."""

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
        creating = asyncio.ensure_future(
            self.client.create_terminal(self.session_id, program, args, variables, directory, OUTPUT_BYTES)
        )
        try:
            created = await asyncio.shield(creating)  # a terminal without a known id could not be released
            self.on_created(arguments[-1], created.terminal_id)
            return await self._result(created.terminal_id, timeout)
        except FAILURES as error:
            reason = describe_refusal(error)
            raise BackendUnavailableError(f'The editor did not run the command: {reason}. Ask the user.') from error
        finally:
            releasing = asyncio.ensure_future(self._release(creating))  # continues if the editor answers later
            await run_to_completion(asyncio.wait([releasing], timeout=SHUTDOWN_SECONDS))

    async def _release(self, creating: asyncio.Future[CreateTerminalResponse]) -> None:
        with suppress(*FAILURES, ConnectionError):
            await self.client.release_terminal(self.session_id, (await creating).terminal_id)

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
