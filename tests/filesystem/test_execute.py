"""Commands, on backends that support them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage
from pydantic_ai.workspaces import LocalWorkspaceBackend, ReadOnlyWorkspace, Workspace

from pydantic_deep.filesystem import Filesystem
from pydantic_deep.filesystem._files import Files, RunState
from pydantic_deep.filesystem._render import render_timeout
from pydantic_deep.filesystem._toolset import execute
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import CommandResult, CommandTimeoutError, StateBackend

pytestmark = pytest.mark.anyio


async def played(tmp_path: Path, **args: object) -> tuple[str, str]:
    model = ScriptedModel(call('execute', **args), 'done')
    await Agent(model, capabilities=[Filesystem()]).run('go', workspace=LocalWorkspaceBackend(tmp_path))
    part = model.requests[-1].tool_returns[0]
    return part.outcome, str(part.content)


async def test_command_runs_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / 'a.txt').write_text('hello\n')
    assert await played(tmp_path, command='cat *.txt | tr a-z A-Z') == ('success', 'HELLO')


async def test_exit_code_is_part_of_the_result(tmp_path: Path) -> None:
    assert await played(tmp_path, command='echo out; echo err >&2; exit 3') == ('success', 'out\nerr\n[exit code 3]')


@pytest.mark.parametrize('exit_code', [0, 3])
async def test_exit_code_is_in_the_metadata(tmp_path: Path, exit_code: int) -> None:
    model = ScriptedModel(call('execute', command=f'exit {exit_code}'), 'done')
    await Agent(model, capabilities=[Filesystem()]).run('go', workspace=LocalWorkspaceBackend(tmp_path))
    assert model.requests[-1].tool_returns[0].metadata == {'exit_code': exit_code}


async def test_command_that_takes_too_long_fails(tmp_path: Path) -> None:
    outcome, output = await played(tmp_path, command='exec sleep 60', timeout_seconds=0.5)
    assert outcome == 'failed'
    assert output == snapshot('[command timed out after 0.5s and was killed]')


async def test_command_that_is_too_long_is_retried(tmp_path: Path) -> None:
    outcome, output = await played(tmp_path, command=f'echo {"x" * 3_000_000}')
    assert outcome == 'retried'
    assert output == 'the command is longer than the system accepts. Write it to a file, and run that.'


async def test_timeout_shows_partial_output_and_the_limit_of_the_backend() -> None:
    class Slow(StateBackend):
        """Represents a sandbox, because the partial output of a real command depends on timing."""

        async def run(
            self,
            command: str | Sequence[str],
            *,
            shell: bool = False,
            env: Mapping[str, str] | None = None,
            timeout: float | None = None,
        ) -> CommandResult:
            raise CommandTimeoutError(f'{command!r} took longer than 2 seconds.', stdout='begun\n', stderr='warned\n')

    model = ScriptedModel(call('execute', command='make'), 'done')
    await Agent(model, capabilities=[Filesystem(backend=Slow())]).run('go')
    part = model.requests[-1].tool_returns[0]
    assert (part.outcome, part.content) == ('failed', "begun\nwarned\n['make' took longer than 2 seconds.]")


@pytest.mark.parametrize(
    ('error', 'output'),
    [
        (TimeoutError(), '[The command took too long and was stopped; 120 seconds were allowed.]'),
        (TimeoutError('The sandbox\nwent away.'), '[The sandbox went away.]'),
        (TimeoutError(110, 'Connection timed out', '/home/somebody'), '[Connection timed out]'),
        (TimeoutError('x' * 1000), f'[{"x" * 500}]'),
    ],
)
def test_any_timeout_is_rendered_with_known_details(error: TimeoutError, output: str) -> None:
    assert render_timeout(error, 120) == output


@pytest.mark.parametrize('timeout_seconds', [0, -1, 3601, float('inf'), float('nan')])
async def test_timeout_out_of_range_is_retried(tmp_path: Path, timeout_seconds: float) -> None:
    outcome, output = await played(tmp_path, command='touch ran', timeout_seconds=timeout_seconds)
    assert outcome == 'retried'
    assert output.endswith('use more than 0 and at most 3600.')
    assert not (tmp_path / 'ran').exists()


async def test_missing_directory_fails(tmp_path: Path) -> None:
    root = tmp_path / 'root'
    root.mkdir()
    workspace = LocalWorkspaceBackend(root)
    model = ScriptedModel(call('remove_it'), call('execute', command='ls'), 'done')

    def remove_it() -> str:
        root.rmdir()
        return 'gone'

    await Agent(model, tools=[remove_it], capabilities=[Filesystem()]).run('go', workspace=workspace)
    assert model.requests[-1].tool_returns[1].outcome == 'failed'


async def test_backend_without_commands_has_no_execute_tool() -> None:
    model = ScriptedModel('done')
    await Agent(model, capabilities=[Filesystem(backend=StateBackend())]).run('go')
    assert model.requests[0].tool_names == snapshot(['ls', 'read_file', 'write_file', 'edit_file', 'glob', 'grep'])


async def test_read_only_workspace_has_no_execute_tool(tmp_path: Path) -> None:
    model = ScriptedModel('done')
    workspace = ReadOnlyWorkspace(Workspace(LocalWorkspaceBackend(tmp_path)))
    await Agent(model, capabilities=[Filesystem()]).run('go', workspace=workspace)
    assert 'execute' not in model.requests[0].tool_names


async def test_hidden_execute_tool_refuses_direct_calls() -> None:
    backend = StateBackend()
    files = Files(backend=backend, commands=None, run=RunState(offload=StateBackend(), offload_chars=None))
    ctx = RunContext(deps=files, model=TestModel(), usage=RunUsage())
    with pytest.raises(ToolFailed, match='Commands cannot be run here'):
        await execute(ctx, 'ls')
