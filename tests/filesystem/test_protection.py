"""Protected files: tools ask before they write a file that host programs run or obey, or may not write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, ToolReturnPart

from pydantic_deep import (
    ApprovalRule,
    Approve,
    DeepAgentDeps,
    Filesystem,
    LocalBackend,
    StateBackend,
    Subagent,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep.testing import ScriptedModel
from pydantic_deep_backends import BackendProtocol, CompositeBackend, FileEntry
from pydantic_deep_backends.protection import PROTECTED_FILES

pytestmark = pytest.mark.anyio

EVIL = '[core]\n\tfsmonitor = evil\n'


def write(path: str, content: str = EVIL) -> ToolCallPart:
    return ToolCallPart('write_file', {'path': path, 'content': content}, tool_call_id='w')


def results(messages: list[ModelMessage]) -> list[str]:
    return [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


def deps(backend: BackendProtocol) -> DeepAgentDeps:
    return DeepAgentDeps(backend=backend)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / '.git').mkdir()
    (tmp_path / '.git' / 'config').write_text('[core]\n\tbare = false\n')
    (tmp_path / '.git' / 'HEAD').write_text('ref: refs/heads/main\n')
    (tmp_path / 'mirror' / 'objects').mkdir(parents=True)
    (tmp_path / 'mirror' / 'HEAD').write_text('ref: refs/heads/main\n')
    (tmp_path / 'link').symlink_to('.git/config')
    (tmp_path / 'shortcut').symlink_to('.git')
    (tmp_path / 'AGENTS.md').symlink_to('notes.md')
    (tmp_path / 'notes.md').write_text('notes\n')
    return tmp_path


@pytest.mark.parametrize(
    'path',
    [
        '.git/config',
        '.git/hooks/pre-commit',
        '.git/info/attributes',
        '.git/commondir',
        '.git/modules/lib/config',
        'sub/.git',
        'sub/.git/config',
        'sub/./.GIT/config',
        'link',
        'shortcut/hooks/x',
        'mirror/config',
        'new/HEAD',
        'notes.md',
        '.gitattributes',
        '.envrc',
        '.vscode/settings.json',
        '.idea/x.xml',
        '.husky/pre-commit',
        '.pre-commit-config.yaml',
        '.agents/skills/x/SKILL.md',
    ],
)
async def test_write_to_a_protected_file_asks_regardless_of_rules(root: Path, path: str):
    """File tools ask before they write files that host programs run or obey: without a rule for the tool, and with a
    rule that allows everything."""
    for interrupt_on in ({}, {'write_file': ApprovalRule(allow=['**'])}):
        agent = create_deep_agent(ScriptedModel(write(path), 'done'), interrupt_on=interrupt_on)
        before = {each: each.read_bytes() for each in root.rglob('*') if each.is_file()}
        result = await agent.run('go', deps=deps(LocalBackend(root)))
        assert [each.tool for each in pending_approvals(result.output)] == ['write_file']
        assert {each: each.read_bytes() for each in root.rglob('*') if each.is_file()} == before


async def test_edit_of_a_protected_file_runs_after_approval(root: Path):
    edit = ToolCallPart('edit_file', {'path': '.git/config', 'old_string': 'bare = false', 'new_string': 'bare = true'})
    agent = create_deep_agent(ScriptedModel(edit, 'done'), interrupt_on={})
    first = await agent.run('go', deps=deps(LocalBackend(root)))
    assert isinstance(first.output, DeferredToolRequests)
    [pending] = pending_approvals(first.output)
    assert pending.tool == 'edit_file'
    answers = answer_approvals(first.output, {pending.id: Approve()})
    last = await agent.run(
        message_history=first.all_messages(), deferred_tool_results=answers, deps=deps(LocalBackend(root))
    )
    assert last.output == 'done'
    assert 'bare = true' in (root / '.git' / 'config').read_text()


async def test_other_files_are_written_without_approval(root: Path):
    for path in ('main.py', '.git/description', 'src/config'):
        agent = create_deep_agent(ScriptedModel(write(path), 'done'), interrupt_on={})
        result = await agent.run('go', deps=deps(LocalBackend(root)))
        assert result.output == 'done'
        assert (root / path).read_text() == EVIL


async def test_protected_files_cannot_be_written_without_approvals(root: Path):
    """Without anyone to ask, the call fails, and the model receives the reason."""
    agent = create_deep_agent(ScriptedModel(write('sub/.git/config'), write('link'), 'done'))
    result = await agent.run('go', deps=deps(LocalBackend(root)))
    assert result.output == 'done'
    assert results(result.all_messages()) == [
        'sub/.git/config is protected: programs of this machine run or obey it. Only a person may change it.',
        'link is protected: programs of this machine run or obey it. Only a person may change it.',
    ]
    assert 'evil' not in (root / '.git' / 'config').read_text()


async def test_foreign_tools_that_name_a_protected_file_ask(root: Path):
    """Every tool that is not declared read-only asks, based on the arguments that name files."""
    saved: list[str] = []

    async def save(ctx: RunContext[DeepAgentDeps], files: list[str], note: str = '') -> str:
        saved.extend(files)
        return 'saved'

    def tool(**metadata: Any) -> Tool[DeepAgentDeps]:
        return Tool(save, metadata=metadata)

    async def run(tool: Tool[DeepAgentDeps], **args: object) -> bool:
        call = ToolCallPart('save', args)
        agent = create_deep_agent(ScriptedModel(call, 'done'), tools=[tool], interrupt_on={})
        result = await agent.run('go', deps=deps(LocalBackend(root)))
        return isinstance(result.output, DeferredToolRequests)

    assert await run(tool(), files=['main.py', '.git/config'])
    assert await run(tool(effect='write'), files=['link'])
    assert saved == []
    assert not await run(tool(effect='read'), files=['.git/config'])
    assert not await run(tool(), files=['main.py'], note='.git/config')
    assert not await run(tool(), files=['\0', '../../etc'])

    call = ToolCallPart('save', {'files': ['.envrc']})
    for effect, is_refused in (('write', True), ('external', False)):
        saved.clear()
        agent = create_deep_agent(ScriptedModel(call, 'done'), tools=[tool(effect=effect)])
        await agent.run('go', deps=deps(LocalBackend(root)))
        assert (saved == []) is is_refused


async def test_subagent_in_a_fork_asks_before_writing_a_protected_file(root: Path):
    """A fork is merged into the files of the parent, so a write into the fork asks."""
    child = Subagent(
        'worker', 'Works.', instructions='Work.', model=ScriptedModel(write('.git/config'), 'ok'), isolation='fork'
    )
    task = ToolCallPart('task', {'description': 'go', 'subagent': 'worker'})
    agent = create_deep_agent(ScriptedModel(task, 'done'), subagents=[child], interrupt_on={})
    result = await agent.run('go', deps=deps(LocalBackend(root)))
    assert [(each.path, each.tool) for each in pending_approvals(result.output)] == [(('worker',), 'write_file')]
    child = Subagent('worker', 'Works.', model=ScriptedModel(write('.git/config'), 'ok'), isolation='fork')
    await create_deep_agent(ScriptedModel(task, 'done'), subagents=[child]).run('go', deps=deps(LocalBackend(root)))
    assert 'evil' not in (root / '.git' / 'config').read_text()


async def test_protected_patterns_are_configurable_on_the_backend_and_the_tools(root: Path):
    async def asks(backend: BackendProtocol, path: str, *rooms: Filesystem) -> bool:
        agent = create_deep_agent(ScriptedModel(write(path), 'done'), capabilities=rooms, interrupt_on={})
        return isinstance((await agent.run('go', deps=deps(backend))).output, DeferredToolRequests)

    more = [*PROTECTED_FILES, '/deploy/']
    assert await asks(LocalBackend(root, protected=more), 'deploy/run.sh')
    assert await asks(StateBackend(), 'deploy/run.sh', Filesystem(protected=more))
    assert await asks(CompositeBackend(StateBackend(), {'/x': LocalBackend(root)}), '/x/.envrc')
    assert not await asks(StateBackend(protected=()), '.envrc')
    assert not await asks(StateBackend(), '.envrc', Filesystem(protected=()))
    assert not await asks(LocalBackend(root, protected=()), '.envrc')
    with pytest.raises(ValueError, match='not a pattern for protected files'):
        Filesystem(protected=['a//b'])


async def test_write_asks_if_the_protection_check_fails(root: Path):
    class Broken(LocalBackend):
        async def stat(self, path: str) -> FileEntry:
            raise RuntimeError('away')

    agent = create_deep_agent(ScriptedModel(write('main.py'), 'done'), interrupt_on={})
    result = await agent.run('go', deps=deps(Broken(root)))
    assert isinstance(result.output, DeferredToolRequests)


async def test_file_tools_of_plain_agents_protect_files(root: Path):
    agent = Agent(ScriptedModel(write('.envrc'), 'done'), capabilities=[Filesystem(backend=LocalBackend(root))])
    result = await agent.run('go')
    assert results(result.all_messages()) == [
        '.envrc is protected: programs of this machine run or obey it. Only a person may change it.'
    ]
