"""The agent of the command line: its sandbox, and its skills."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import Result

from pydantic_deep.cli.turn._runtime import AgentRuntime, check_runtime
from pydantic_deep.testing import ScriptedModel
from pydantic_deep_backends import LocalBackend, SandboxBackend
from pydantic_deep_backends.protocol import Command, CommandResult

pytestmark = pytest.mark.anyio


async def test_check_runtime_runs_one_command(
    make_runtime: Callable[..., AgentRuntime], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Command] = []

    async def run(self: SandboxBackend, command: Command) -> CommandResult:
        tried.append(command)
        return CommandResult(exit_code=0, stdout='', stderr='')

    monkeypatch.setattr(SandboxBackend, 'working_dir', LocalBackend.working_dir)
    monkeypatch.setattr(SandboxBackend, 'run', run)
    await check_runtime(make_runtime(ScriptedModel(), sandbox=True))
    assert tried == [['true']]


Invoke = Callable[..., Result]


@pytest.mark.parametrize('command', [('run', 'Go'), ('chat',)])
def test_run_refuses_to_start_when_commands_cannot_be_isolated(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv('PATH', '')
    result = invoke(*command, '--sandbox', model=ScriptedModel(), stdin='Go\n')
    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr.startswith('There is no `bwrap` on the PATH.')
