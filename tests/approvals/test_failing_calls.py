"""Calls whose preview predicts a failure fail immediately, without asking a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart

from pydantic_deep import (
    ApprovalRule,
    Approve,
    CompositeBackend,
    DeepAgentDeps,
    Edit,
    LocalBackend,
    OverlayBackend,
    ReadOnlyBackend,
    Skill,
    StateBackend,
    Subagent,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import BackendProtocol

pytestmark = pytest.mark.anyio


def edit(old: str, new: str = 'x', *, path: str = '/a', id: str = 'c') -> ToolCallPart:
    return ToolCallPart('edit_file', {'path': path, 'old_string': old, 'new_string': new}, tool_call_id=id)


def write(path: str, id: str = 'c') -> ToolCallPart:
    return ToolCallPart('write_file', {'path': path, 'content': 'x'}, tool_call_id=id)


GATES = {'edit_file': True, 'write_file': True}


async def resume(agent: Agent[Any, Any], result: Any, deps: DeepAgentDeps, **decisions: Any) -> Any:
    results = answer_approvals(result.output, decisions)
    return await agent.run(conversation=result.conversation, deferred_tool_results=results, deps=deps)


@pytest.mark.parametrize(
    ('call', 'expected_text'),
    [
        (edit('not there'), 'old_string'),
        (edit('y', path='/missing'), '/missing'),
        (write('/a/below'), 'is a file'),
        (write('/d'), '/d is a directory'),
    ],
)
async def test_call_that_would_fail_needs_no_approval(call: ToolCallPart, expected_text: str) -> None:
    """A call fails immediately, without approval, if its preview predicts it. The model gets the tool's error."""
    model = ScriptedModel(call, 'done')
    backend = StateBackend({'/a': 'text\n', '/d/x': ''})
    result = await create_deep_agent(model, interrupt_on=GATES).run('go', deps=DeepAgentDeps(backend=backend))
    assert result.output == 'done'
    [returned] = model.requests[-1].tool_returns
    assert returned.outcome == 'failed'
    assert expected_text in str(returned.content)


async def test_only_calls_that_could_succeed_stay_pending() -> None:
    """A call that would fail fails immediately, although another call stays pending."""
    calls = [edit('text', id='good'), edit('not there', id='bad')]
    deps = DeepAgentDeps(backend=StateBackend({'/a': 'text\n'}))
    agent = create_deep_agent(ScriptedModel(calls, 'done'), interrupt_on=GATES)
    result = await agent.run('go', deps=deps)
    assert [each.id for each in pending_approvals(result.output)] == ['good']
    assert (await resume(agent, result, deps, good=Approve())).output == 'done'
    assert await deps.backend.read_bytes('/a') == b'x\n'


async def test_approved_call_that_would_now_fail_fails() -> None:
    """If the file has changed so that the call would fail, the call fails instead of asking again."""
    deps = DeepAgentDeps(backend=StateBackend({'/a': 'text\n'}))
    model = ScriptedModel(edit('text'), 'done')
    agent = create_deep_agent(model, interrupt_on=GATES)
    result = await agent.run('go', deps=deps)
    await deps.backend.write_bytes('/a', b'other\n')
    assert (await resume(agent, result, deps, c=Approve())).output == 'done'
    assert model.requests[-1].tool_returns[0].outcome == 'failed'


async def test_edit_that_would_fail_fails_and_names_its_author() -> None:
    """A person's arguments that would fail do so immediately, and the model learns that they were not its own."""
    deps = DeepAgentDeps(backend=StateBackend({'/a': 'text\n'}))
    model = ScriptedModel(edit('text'), 'done')
    agent = create_deep_agent(model, interrupt_on=GATES)
    result = await agent.run('go', deps=deps)
    given = Edit({'path': '/a', 'old_string': 'not there', 'new_string': 'x'})
    assert (await resume(agent, result, deps, c=given)).output == 'done'
    [returned] = model.requests[-1].tool_returns
    assert returned.outcome == 'failed'
    assert 'A person changed the arguments' in str(returned.content)


async def test_deny_rule_is_reported_before_a_failure() -> None:
    """The model gets the deny rule as the reason, even if the call would also fail."""
    model = ScriptedModel(edit('not there'), 'done')
    deps = DeepAgentDeps(backend=StateBackend({'/a': 'text\n'}))
    rules = {'edit_file': ApprovalRule(deny=['/a'])}
    await create_deep_agent(model, interrupt_on=rules).run('go', deps=deps)
    assert "The rule '/a' denies '/a'" in str(model.requests[-1].tool_returns[0].content)


async def test_failing_call_of_a_subagent_does_not_suspend_the_tree() -> None:
    """A call in a subagent that would fail also fails immediately, without approval."""
    kid = Subagent('kid', 'Edits.', model=ScriptedModel(edit('not there'), 'I could not.'))
    task = ToolCallPart('task', {'subagent': 'kid', 'description': 'x'}, tool_call_id='t')
    deps = DeepAgentDeps(backend=StateBackend({'/a': 'text\n'}))
    result = await create_deep_agent(ScriptedModel(task, 'done'), subagents=[kid], interrupt_on=GATES).run(
        'go', deps=deps
    )
    assert result.output == 'done'


HANDBOOK = ReadOnlyBackend(StateBackend({'/tone': 'text\n'}))


@pytest.mark.parametrize(
    ('backend', 'path'),
    [
        (HANDBOOK, '/tone'),
        (CompositeBackend(StateBackend(), {'/handbook': HANDBOOK}), '/handbook/tone'),
        (CompositeBackend(HANDBOOK, {'/out': StateBackend()}), '/tone'),
    ],
)
async def test_change_of_a_read_only_file_fails_immediately(backend: BackendProtocol, path: str) -> None:
    """Writing or editing a read-only file, mounted or not, does not ask for approval."""
    model = ScriptedModel([write(path, 'w'), edit('text', path=path, id='e')], 'done')
    result = await create_deep_agent(model, interrupt_on=GATES).run('go', deps=DeepAgentDeps(backend=backend))
    assert result.output == 'done'
    assert [each.outcome for each in model.requests[-1].tool_returns] == ['failed', 'failed']
    assert all('is read-only' in str(each.content) for each in model.requests[-1].tool_returns)


@pytest.mark.parametrize(
    ('backend', 'path'),
    [
        (OverlayBackend(HANDBOOK), '/tone'),
        (CompositeBackend(HANDBOOK, {'/out': StateBackend()}), '/out/new'),
    ],
)
async def test_write_outside_read_only_paths_needs_approval(backend: BackendProtocol, path: str) -> None:
    """Files that overlay read-only files, or are outside of them, can be written after approval."""
    agent = create_deep_agent(ScriptedModel(write(path)), interrupt_on=GATES)
    result = await agent.run('go', deps=DeepAgentDeps(backend=backend))
    assert [each.tool for each in pending_approvals(result.output)] == ['write_file']


async def test_write_of_an_oversized_file_fails_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write or an edit beyond the size limit of files does not ask for approval."""
    monkeypatch.setattr('pydantic_deep.filesystem._files.MAX_FILE_BYTES', 5)
    model = ScriptedModel([call('write_file', path='/b', content='123456'), edit('text', 'longer')], 'done')
    deps = DeepAgentDeps(backend=StateBackend({'/a': 'text\n'}))
    result = await create_deep_agent(model, interrupt_on=GATES).run('go', deps=deps)
    assert result.output == 'done'
    assert all('at most 5 bytes can be written' in str(each.content) for each in model.requests[-1].tool_returns)


@pytest.mark.parametrize(
    ('given', 'expected_text'),
    [
        (call('execute', command='ls', timeout_seconds=0), 'timeout_seconds is 0'),
        (call('execute', command='ls', timeout_seconds=1e9), 'timeout_seconds is 1e+09'),
        (call('execute', command='l\0s'), 'contains a NUL'),
        (call('execute', command='l\ud800s'), 'lone surrogate'),
        (call('task', subagent='nobody', description='x'), "There is no subagent 'nobody'"),
        (call('load_skill', name='nothing'), "'nothing'"),
        (call('load_skill', name='greeting', file='a.md'), 'has no files'),
    ],
)
async def test_invalid_call_of_another_capability_needs_no_approval(
    given: ToolCallPart, expected_text: str, tmp_path: Path
) -> None:
    """Invalid commands, unknown subagents and unknown skills do not ask for approval."""
    model = ScriptedModel(given, 'done')
    gates = {'execute': True, 'task': True, 'load_skill': True}
    skill = Skill('greeting', 'Use this skill when you greet.', body='Say hello.')
    agent = create_deep_agent(model, interrupt_on=gates, skills=[skill])
    deps = DeepAgentDeps(backend=LocalBackend(tmp_path, allow_commands=True))
    assert (await agent.run('go', deps=deps)).output == 'done'
    [returned] = model.requests[-1].tool_returns
    assert returned.outcome == 'failed'
    assert expected_text in str(returned.content)


@pytest.mark.parametrize(
    'given',
    [
        call('execute', command='ls', timeout_seconds=5),
        call('task', subagent='general-purpose', description='x'),
        call('load_skill', name='greeting'),
        call('load_skill', name='with-file', file='a.md'),
    ],
)
async def test_valid_call_of_another_capability_needs_approval(given: ToolCallPart, tmp_path: Path) -> None:
    folder = tmp_path / 'skills' / 'with-file'
    folder.mkdir(parents=True)
    (folder / 'SKILL.md').write_text(
        '---\nname: with-file\ndescription: Use this skill when you greet.\n---\n\n`a.md`\n'
    )
    (folder / 'a.md').write_text('Hello.')
    (tmp_path / 'work').mkdir()
    gates = {'execute': True, 'task': True, 'load_skill': True}
    skill = Skill('greeting', 'Use this skill when you greet.', body='Say hello.')
    agent = create_deep_agent(ScriptedModel(given), interrupt_on=gates, skills=[skill, tmp_path / 'skills'])
    deps = DeepAgentDeps(backend=LocalBackend(tmp_path / 'work', allow_commands=True))
    result = await agent.run('go', deps=deps)
    assert [each.tool for each in pending_approvals(result.output)] == [given.tool_name]
