"""Commands of the user in the sandbox of the agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from typer.testing import Result

from pydantic_deep.cli.chat._shell import MAX_OUTPUT_CHARS, run_command
from pydantic_deep.cli.chat._verbs import WrongVerbError
from pydantic_deep.testing import ScriptedModel
from pydantic_deep_backends import CommandResult, CommandTimeoutError, LocalBackend, SupportsCommands

Invoke = Callable[..., Result]


class CommandBackend(LocalBackend):
    """A backend whose commands have given results."""

    def __init__(self, root: Path, result: CommandResult | Exception) -> None:
        super().__init__(root)
        self.result = result
        self.commands: list[tuple[object, bool, float | None]] = []

    async def run(
        self,
        command: object,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        self.commands.append((command, shell, timeout))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


async def shown(work: Path, result: CommandResult | Exception) -> str:
    backend = CommandBackend(work, result)
    assert isinstance(backend, SupportsCommands)
    lines = await run_command(backend, 'make')
    assert backend.commands == [('make', True, 120)]
    return '\n'.join(line.plain for line in lines)


@pytest.mark.anyio
async def test_output_and_exit_code_are_shown(work: Path) -> None:
    """Both outputs are shown with control characters escaped, then an exit code other than 0."""
    result = CommandResult(exit_code=2, stdout='a\n\x1b[2Jb\n', stderr='no\n')
    assert await shown(work, result) == 'a\n\\x1b[2Jb\nno\nexit code 2'
    silent = CommandResult(exit_code=0, stdout='', stderr='')
    assert await shown(work, silent) == 'The command has printed nothing.'


@pytest.mark.anyio
async def test_of_a_long_output_the_end_is_shown(work: Path) -> None:
    """A long output is cut at its beginning, and the number of omitted characters is shown."""
    result = CommandResult(exit_code=0, stdout='x' * MAX_OUTPUT_CHARS + 'the end', stderr='')
    text = await shown(work, result)
    assert text.startswith('… 7 characters before this are not shown\nx')
    assert text.endswith('xthe end')


@pytest.mark.anyio
async def test_a_command_that_takes_too_long_is_reported(work: Path) -> None:
    """The time limit of a command is reported as a sentence."""
    with pytest.raises(WrongVerbError, match='took too long'):
        await shown(work, CommandTimeoutError('The command took too long.'))


def test_a_chat_without_a_sandbox_runs_no_command(invoke: Invoke, work: Path) -> None:
    """Without a sandbox, a command is refused; it never runs on the computer itself."""
    result = invoke('chat', model=ScriptedModel('One.'), stdin=f'!touch {work}/made\n!\nOne\n')
    assert result.stderr.startswith(
        'This chat cannot run commands: it has no sandbox. Start it with --sandbox.\nUsage: !COMMAND\n'
    )
    assert result.stdout == 'One.\n'
    assert not (work / 'made').exists()


def test_a_chat_shows_what_a_command_prints(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of the chat runs in the backend of the agent, and the model does not receive its output."""

    async def run(self: LocalBackend, command: str, **options: object) -> CommandResult:
        return CommandResult(exit_code=0, stdout=f'ran {command}\n', stderr='')

    # The isolation of real commands is tested with the sandbox.
    monkeypatch.setattr('pydantic_deep.cli.turn._change_tracker.ChangeTrackingBackend.run', run, raising=False)
    model = ScriptedModel('One.')
    result = invoke('chat', model=model, stdin='!ls\nOne\n')
    assert result.stderr.startswith('ran ls\n')
    assert 'ran ls' not in str(model.requests[0].messages)
