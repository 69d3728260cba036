"""The agent of the command line: its sandbox, and its skills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from pydantic_deep.cli.turn._runtime import AgentRuntime, check_runtime
from pydantic_deep.testing import ScriptedModel
from pydantic_deep_backends import LocalBackend, SandboxBackend
from pydantic_deep_backends.protocol import Command, CommandResult
from tests._messages.notices import notices_in

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


@pytest.mark.parametrize(('options', 'expected'), [((), ['AGENTS.md:\nUse tabs.']), (('--no-project-context',), [])])
def test_agent_receives_the_instructions_of_its_repository_unless_they_are_ignored(
    invoke: Invoke, work: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], expected: list[str]
) -> None:
    (work / '.git').mkdir()
    (work / 'AGENTS.md').write_text('Use tabs.')
    (work / 'app').mkdir()
    monkeypatch.chdir(work / 'app')
    model = ScriptedModel('One.', 'Two.')
    for arguments in (('Go', *options), ('--continue', 'More', *options)):
        assert invoke('run', *arguments, model=model).exit_code == 0
    for request in model.requests:
        texts = notices_in(request)
        found = [text.partition('\n')[2] for text in texts if text.startswith('Instructions of the project:')]
        assert found == [text.replace('AGENTS.md', '../AGENTS.md') for text in expected]
