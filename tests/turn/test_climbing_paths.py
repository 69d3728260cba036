"""Paths with `..` are resolved, and every rule applies to the resolved file."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ToolCallPart

from pydantic_deep import (
    ApprovalRule,
    Approve,
    DeepAgentDeps,
    Filesystem,
    LocalBackend,
    StateBackend,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep.streaming import FileEvent, RunEvents, StreamEvent
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

SEED = 7_007
NAMES = ('a', 'b', '.git', 'hooks', 'config', 'up', 'down', 'git', '..', '..', '..', '.')


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / '.git' / 'hooks').mkdir(parents=True)
    (tmp_path / '.git' / 'config').write_text('theirs\n')
    (tmp_path / 'a' / 'b').mkdir(parents=True)
    (tmp_path / 'a' / 'up').symlink_to('..')
    (tmp_path / 'down').symlink_to('a/b')
    (tmp_path / 'a' / 'git').symlink_to('../.git/hooks')
    return tmp_path


def spellings(root: Path, count: int) -> dict[str, str]:
    """Return paths with `..` and their targets relative to the root, as resolved by the operating system."""
    chosen = random.Random(SEED)
    found: dict[str, str] = {}
    while len(found) < count:
        names = [chosen.choice(NAMES) for _ in range(chosen.randint(1, 6))]
        if '..' in names:
            path = '/'.join([*names, chosen.choice(('config', 'x'))])
            found[path] = os.path.relpath(os.path.realpath(root / path), root)
    return found


@pytest.mark.slow
async def test_no_spelling_writes_a_protected_file_without_approval(root: Path):
    """Each spelling is called once; calls that resolve to a protected file, according to the operating system, are
    pending."""
    real_by_path = spellings(root, 300)
    calls = [
        ToolCallPart('write_file', {'path': path, 'content': f'new {path}'}, tool_call_id=path) for path in real_by_path
    ]
    free = {path for path, real in real_by_path.items() if not {'.git', '..'} & set(real.split('/'))}
    assert len(free) > 50
    assert len(real_by_path.keys() - free) > 50
    rules: list[dict[str, bool | ApprovalRule] | None] = [None, {}, {'write_file': ApprovalRule(allow=['/**'])}]
    for interrupt_on in rules:
        agent = create_deep_agent(ScriptedModel(calls, 'done'), interrupt_on=interrupt_on)
        result = await agent.run('go', deps=DeepAgentDeps(backend=LocalBackend(root)))
        assert (root / '.git' / 'config').read_text() == 'theirs\n'
        assert os.listdir(root / '.git' / 'hooks') == []
        if interrupt_on is not None:
            assert isinstance(result.output, DeferredToolRequests)
            waiting = {each.id for each in pending_approvals(result.output)}
            assert waiting
            assert not waiting & free


async def test_preview_shows_the_resolved_path(root: Path):
    """The preview names the resolved file; the approved call writes only that file."""
    agent = create_deep_agent(
        ScriptedModel(call('write_file', path='a/git/../config', content='ours\n'), 'done'), interrupt_on={}
    )
    deps = DeepAgentDeps(backend=LocalBackend(root))
    asked = await agent.run('go', deps=deps)
    assert isinstance(asked.output, DeferredToolRequests)
    (pending,) = pending_approvals(asked.output)
    assert pending.preview is not None
    assert list(pending.preview.files) == ['/.git/config']
    assert str(pending.preview).startswith('This call may change a protected file.\n--- a/.git/config\n')
    answers = answer_approvals(asked.output, {pending.id: Approve()})
    await agent.run(message_history=asked.all_messages(), deferred_tool_results=answers, deps=deps)
    assert (root / '.git' / 'config').read_text() == 'ours\n'


@pytest.mark.parametrize('rule', [ApprovalRule(deny=['/.git/**']), ApprovalRule(deny=['config'], allow=['/**'])])
async def test_rules_match_the_resolved_path(root: Path, rule: ApprovalRule):
    calls = [
        call('read_file', path=path)
        for path in ('a/../.git/config', 'a/git/../config', 'down/../up/.git/config', 'none/../.git/config')
    ]
    model = ScriptedModel(calls, 'done')
    agent = create_deep_agent(model, interrupt_on={'read_file': rule})
    await agent.run('go', deps=DeepAgentDeps(backend=LocalBackend(root)))
    told = [str(part.content) for part in model.requests[-1].tool_returns]
    assert [text.startswith('The rule ') and " denies '/.git/config'" in text for text in told] == [True] * 4


async def test_files_are_identified_by_the_resolved_path():
    """Reads, edits, the check for changes since a read, and events use the resolved file."""
    backend = StateBackend({'/a/f': 'one\n', '/b/g': ''})
    model = ScriptedModel(
        call('read_file', path='b/../a/f'),
        call('edit_file', path='/b/../a/./f', old_string='one', new_string='two'),
        call('write_file', path='b/../a/new', content='x'),
        call('ls', path='b/..'),
        call('glob', pattern='*', path='b/../a'),
        call('grep', pattern='two', path='b/../a'),
        call('write_file', path='none/../f', content='x'),
        call('write_file', path='../f', content='x'),
        'done',
    )
    events = RunEvents()
    told: list[StreamEvent] = []
    agent = create_deep_agent(model)
    async with agent.run_stream_events('go', deps=DeepAgentDeps(backend=backend)) as stream:
        async for event in stream:
            told += events.translate(event)
    returns = [f'{part.outcome}: {part.content}' for part in model.requests[-1].tool_returns]
    assert returns == [
        'success: 1→one',
        'success: Replaced 1 match at line 1.',
        'success: Created /a/new: 1 line, 1 byte.',
        'success: a/\nb/',
        'success: /a/f\n/a/new',
        'success: /a/f\n1: two',
        'failed: none/../f does not exist. Use ls or glob to find it.',
        "retried: '/../f' is not a valid path: it contains `..` that leads above `/`. Write the path from `/` without it.",
    ]
    assert [event.path for event in told if isinstance(event, FileEvent)] == ['/a/f', '/a/new']
    assert not await backend.exists('/f')


async def test_file_changed_since_it_was_read_is_refused_in_every_spelling():
    backend = StateBackend({'/a/f': 'one\n', '/b/g': ''})

    async def change() -> str:
        """Change the file."""
        await backend.write_bytes('/a/f', b'other\n')
        return 'changed'

    model = ScriptedModel(
        call('read_file', path='b/../a/f'), call('change'), call('write_file', path='a/../a/f', content='x'), 'done'
    )
    await Agent(model, tools=[change], capabilities=[Filesystem(backend=backend)]).run('go')
    (last,) = model.requests[-1].tool_returns[-1:]
    assert 'changed since you read it' in str(last.content)


async def test_link_created_by_the_previous_call_does_not_bypass_approval(root: Path):
    """Calls of one response are decided together and run one after another, so each is checked again before it runs."""

    async def link(name: str, to: str) -> str:
        """Make a link."""
        (root / name).symlink_to(to)
        return 'linked'

    cases: list[tuple[dict[str, bool | ApprovalRule] | None, str]] = [({}, 'one'), (None, 'two')]
    for approvals, place in cases:
        calls = [
            call('link', name=place, to='.git/hooks'),
            call('write_file', path=f'{place}/../config', content='ours'),
            call('write_file', path=f'{place}/pre-commit', content='ours'),
        ]
        agent = create_deep_agent(ScriptedModel(calls, 'done'), tools=[link], interrupt_on=approvals)
        result = await agent.run('go', deps=DeepAgentDeps(backend=LocalBackend(root)))
        if approvals is not None:
            assert isinstance(result.output, DeferredToolRequests)
            assert len(pending_approvals(result.output)) == 2
        assert (root / '.git' / 'config').read_text() == 'theirs\n'
        assert os.listdir(root / '.git' / 'hooks') == []
