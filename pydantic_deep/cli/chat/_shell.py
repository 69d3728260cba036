"""`!COMMAND`: a command of the user in the sandbox of the agent, never outside of it."""

from __future__ import annotations

from rich.text import Text

from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep_backends import BackendProtocol, CommandTimeoutError, SupportsCommands

from ._verbs import WrongVerbError

TIMEOUT_SECONDS = 120
"""Time limit of a command in seconds, as for commands of the agent."""

MAX_OUTPUT_CHARS = 20_000
"""Maximum number of characters that are shown of each output: about five screens of 200 columns."""


async def run_command(backend: BackendProtocol, command: str) -> list[Text]:
    """Run a shell command, and return its output and its exit code as lines.

    Raises:
        WrongVerbError: There is no command, or the agent has no sandbox.
    """
    if not command:
        raise WrongVerbError('Usage: !COMMAND')
    if not isinstance(backend, SupportsCommands):
        raise WrongVerbError('This chat cannot run commands: it has no sandbox. Start it with --sandbox.')
    try:
        result = await backend.run(command, shell=True, timeout=TIMEOUT_SECONDS)  # noqa: S604 - in the sandbox
    except CommandTimeoutError as error:
        raise WrongVerbError(str(error)) from None
    lines = [*_output_lines(result.stdout, ''), *_output_lines(result.stderr, 'dim')]
    if result.exit_code:
        lines.append(Text(f'exit code {result.exit_code}', 'red'))
    return lines or [Text('The command has printed nothing.', 'dim')]


def _output_lines(output: str, style: str) -> list[Text]:
    """Return an output; of a long one its end, which has the error or the result."""
    text = output.rstrip('\n')
    if not text:
        return []
    shown = text[-MAX_OUTPUT_CHARS:]
    omitted = len(text) - len(shown)
    notice = [Text(f'… {omitted:,} characters before this are not shown', 'yellow')] if omitted else []
    return [*notice, Text(escape_invisible(shown), style)]
