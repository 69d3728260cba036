"""End-to-end runs of an agent whose commands run in a sandbox."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import anyio
import pytest
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.workspaces import WorkspaceUnavailableError

from pydantic_deep import Approve, DeepAgentDeps, Deny, answer_approvals, create_deep_agent, pending_approvals
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import CompositeBackend, SandboxBackend, SandboxUnavailableError, StateBackend

pytestmark = pytest.mark.anyio

needs_bubblewrap = pytest.mark.skipif(
    shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap'
)


def returned(messages: list[ModelMessage]) -> list[tuple[str, str]]:
    """Return the outcome and the text of each tool result."""
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return [(part.outcome, str(part.content)) for part in parts]


def sandboxes_of(root: Path) -> list[str]:
    """Return the processes on this machine that have a directory mounted as their workspace."""
    found: list[str] = []
    for directory in Path('/proc').glob('[0-9]*'):
        try:
            if f'{root.name} /workspace ' in (directory / 'mountinfo').read_text():
                found.append(directory.name)
        except OSError:
            continue
    return found


@needs_bubblewrap
async def test_files_and_commands_share_one_directory(tmp_path: Path) -> None:
    model = ScriptedModel(
        call('write_file', path='/workspace/in.txt', content='b\na\n'),
        call('execute', command='sort in.txt > out.txt; pwd; ls /home; exit 3'),
        call('read_file', path='out.txt'),
        'done',
    )
    result = await create_deep_agent(model).run('go', deps=DeepAgentDeps(backend=SandboxBackend(tmp_path)))
    _, (outcome, said), (_, read) = returned(result.new_messages())
    assert outcome == 'success'
    assert said.startswith('/workspace\n')
    assert 'No such file' in said
    assert said.endswith('[exit code 3]')
    assert read == '1→a\n2→b'
    assert (tmp_path / 'out.txt').read_text() == 'a\nb\n'


@needs_bubblewrap
@pytest.mark.parametrize(('decision', 'ran'), [(Approve(), True), (Deny(), False)])
async def test_gated_command_runs_after_approval(tmp_path: Path, decision: Approve | Deny, ran: bool) -> None:
    agent = create_deep_agent(
        ScriptedModel(call('execute', command='echo x > ran'), 'done'), interrupt_on={'execute': True}
    )
    deps = DeepAgentDeps(backend=SandboxBackend(tmp_path))
    paused = await agent.run('go', deps=deps)
    (approval,) = pending_approvals(paused.output)
    assert list(tmp_path.iterdir()) == []
    answers = answer_approvals(paused.output, {approval.id: decision})
    result = await agent.run(message_history=paused.all_messages(), deferred_tool_results=answers, deps=deps)
    assert result.output == 'done'
    assert (tmp_path / 'ran').exists() is ran


@needs_bubblewrap
async def test_cancelled_run_leaves_no_process_of_its_command(tmp_path: Path) -> None:
    agent = create_deep_agent(ScriptedModel(call('execute', command='setsid sleep 600 & echo > started; sleep 600')))
    deps = DeepAgentDeps(backend=SandboxBackend(tmp_path))
    run = asyncio.create_task(agent.run('go', deps=deps))
    with anyio.fail_after(60):
        while not (tmp_path / 'started').exists():  # noqa: ASYNC110 - it looks at a real process, from outside
            await anyio.sleep(0.01)
    assert sandboxes_of(tmp_path) != []
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert sandboxes_of(tmp_path) == []


@needs_bubblewrap
async def test_command_timeout_fails_with_the_output_so_far(tmp_path: Path) -> None:
    async def play(seconds: float) -> tuple[str, str]:
        script = call('execute', command='echo begun; : > begun; sleep 600', timeout_seconds=seconds)
        agent = create_deep_agent(ScriptedModel(script, 'done'))
        result = await agent.run('go', deps=DeepAgentDeps(backend=SandboxBackend(tmp_path)))
        ((outcome, said),) = returned(result.new_messages())
        return outcome, said

    seconds = 1
    outcome, said = await play(seconds)
    while not (tmp_path / 'begun').exists():  # a busy machine gets as long as it needs to start
        seconds *= 2
        outcome, said = await play(seconds)
    assert outcome == 'failed'
    assert said.startswith(f'begun\n[The command took longer than {seconds} seconds and was ended')
    assert sandboxes_of(tmp_path) == []


@pytest.mark.parametrize('is_mounted_on', [False, True])
async def test_run_without_isolation_ends_before_the_first_request(tmp_path: Path, is_mounted_on: bool) -> None:
    model = ScriptedModel(call('execute', command='echo > ran'), 'done')
    sandbox = SandboxBackend(tmp_path, bwrap=tmp_path / 'none')
    backend = CompositeBackend(sandbox, {'/memories': StateBackend()}) if is_mounted_on else sandbox
    with pytest.raises(WorkspaceUnavailableError, match=r'none.* cannot be run.*apt-get install') as caught:
        await create_deep_agent(model).run('go', deps=DeepAgentDeps(backend=backend))
    assert isinstance(caught.value.__cause__, SandboxUnavailableError)
    assert model.requests == []
    assert list(tmp_path.iterdir()) == []


@needs_bubblewrap
async def test_gated_command_is_not_resumed_without_isolation(tmp_path: Path) -> None:
    agent = create_deep_agent(
        ScriptedModel(call('execute', command='echo x > ran'), 'done'), interrupt_on={'execute': True}
    )
    paused = await agent.run('go', deps=DeepAgentDeps(backend=SandboxBackend(tmp_path)))
    (approval,) = pending_approvals(paused.output)
    answers = answer_approvals(paused.output, {approval.id: Approve()})
    deps = DeepAgentDeps(backend=SandboxBackend(tmp_path, bwrap='/none'))
    with pytest.raises(WorkspaceUnavailableError, match="'/none' cannot be run"):
        await agent.run(message_history=paused.all_messages(), deferred_tool_results=answers, deps=deps)
    assert list(tmp_path.iterdir()) == []
