"""Cases run with agents and models, and replay without either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, UserError
from pydantic_ai.models.test import TestModel

from pydantic_deep import LocalBackend, create_deep_agent
from pydantic_deep.approvals import ApprovalRule
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.evals import CaseError, TurnCase, TurnResult, read_case, replay_case, run_case
from pydantic_deep.store import Store
from pydantic_deep.testing import ScriptedModel, Step, call
from pydantic_deep.versions import VersionedAgent

from .conftest import EDIT, RecordCase, reading

pytestmark = pytest.mark.anyio

GATE = {'write_file': True}


def agent_of(*steps: Step, **options: Any) -> Any:
    return create_deep_agent(ScriptedModel(*steps), **options)


def put(path: str, content: str = 'new') -> Any:
    return call('write_file', path=path, content=content)


async def test_case_runs_with_its_files_and_history(record: RecordCase):
    case = await record(EDIT, 'Fixed.')
    model = ScriptedModel(call('read_file', path='/poem.txt'), put('/b.txt'), 'Wrote.')
    result = await run_case(agent_of(), model=model)(case)
    assert 'violet' in str(model.requests[1].messages)
    assert (result.output, result.files['/b.txt'], result.usage.requests) == ('Wrote.', b'new', 3)
    assert case.files == (await run_case(agent_of('Hi'))(case)).files


async def test_recorded_answers_are_given_to_the_same_calls(record: RecordCase):
    case = await record([put('/a'), put('/b')], 'Wrote.', interrupt_on=GATE)
    steps = ([put('/b'), put('/c'), put('/d')], 'Done.')
    result = await run_case(agent_of(*steps, interrupt_on=GATE))(case)
    assert [(asked.arguments['path'], asked.answer) for asked in result.approvals] == [
        ('/b', 'approve'), ('/c', 'approve'), ('/d', 'deny'),
    ]  # fmt: skip
    assert '/d' not in result.files


async def test_answer_that_a_call_does_not_accept_is_not_given(record: RecordCase):
    case = await record(put('/a'), 'Wrote.', interrupt_on=GATE)
    rule: Any = {'write_file': ApprovalRule(decisions=('deny',))}
    result = await run_case(agent_of(put('/a'), 'Done.', interrupt_on=rule))(case)
    assert [asked.answer for asked in result.approvals] == ['deny']


async def test_case_without_a_recording_runs_and_does_not_replay():
    case = TurnCase(name='x', prompt='Hi', files={'/a': b'a'}, expected=TurnResult(output=None))
    result = await run_case(agent_of(call('ls'), 'Hi'))(case)
    assert (result.output, result.files) == ('Hi', {'/a': b'a'})
    with pytest.raises(CaseError, match=r"'x' has no `recording\.json`"):
        await replay_case(agent_of())(case)


async def test_backend_for_commands_gets_the_files_in_a_temporary_directory(record: RecordCase):
    case = await record(EDIT, 'Fixed.')
    seen: list[Path] = []

    def make(directory: Path) -> LocalBackend:
        seen.append(directory)
        return LocalBackend(directory, allow_commands=True)

    steps = (call('execute', command='cat poem.txt > copy.txt'), 'Copied.')
    result = await run_case(agent_of(*steps), make_backend=make)(case)
    assert result.files['/copy.txt'] == b'rose\nviolet\n'
    assert [directory.exists() for directory in seen] == [False]


async def test_deps_of_a_versioned_agent_are_used_and_its_store_is_not(record: RecordCase, store: Store):
    case = await record(EDIT, 'Fixed.')
    made: list[DeepAgentDeps] = []

    def make_deps() -> DeepAgentDeps:
        made.append(DeepAgentDeps())
        return made[-1]

    before = await store.count()
    await run_case(VersionedAgent(agent_of('Hi'), store, make_deps=make_deps))(case)
    assert (len(made), await store.count()) == (1, before)
    await run_case(VersionedAgent(agent_of('Hi'), store), make_deps=make_deps)(case)
    assert len(made) == 2


async def test_replay_names_each_result_that_differs(record: RecordCase):
    case = await record(call('look'), call('look'), 'Looked.', tools=[reading('one')])
    result = await replay_case(agent_of(tools=[reading('two')]))(case)
    assert len(result.differences) == 2
    assert result.differences[0].startswith('response 1, tool look returned: ')
    assert (result.output, result.usage) == (case.expected.output, case.expected.usage)


async def test_replay_of_an_agent_that_lacks_a_tool_names_it(record: RecordCase):
    case = await record(call('look'), 'Looked.', tools=[reading('one')])
    [difference] = (await replay_case(agent_of())(case)).differences
    assert difference.startswith('request 1, tools: ')
    assert '"name": "look"' in difference


async def test_edited_files_are_the_files_of_the_replay(record: RecordCase, tmp_path: Path):
    await record(call('read_file', path='/poem.txt'), 'Read.')
    (tmp_path / 'evals/poem/files/poem.txt').write_text('lily\n')
    [difference] = (await replay_case(agent_of())(read_case(tmp_path / 'evals/poem'))).differences
    assert difference.startswith('response 1, tool read_file returned: ')
    assert difference.endswith('+1→lily')


@pytest.mark.parametrize('model', ['anthropic:claude-opus-5-5', 'nobody:none', None, TestModel()])
async def test_replay_needs_no_key(record: RecordCase, monkeypatch: pytest.MonkeyPatch, model: Any):
    monkeypatch.delenv('ANTHROPIC_API_KEY', raising=False)
    case = await record('Hi')
    agent = Agent(model, deps_type=DeepAgentDeps, instructions='Greet.', defer_model_check=True)
    if model in (None, 'nobody:none'):
        with pytest.raises((UserError, ValueError)):
            await replay_case(agent)(case)
    else:
        [difference] = (await replay_case(agent)(case)).differences
        assert difference.startswith('request 1, instructions: ')


async def test_replay_prepares_requests_for_a_model_whose_key_is_set(
    record: RecordCase, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv('ANTHROPIC_API_KEY', 'sk-ant-test')
    agent = Agent('anthropic:claude-opus-5-5', deps_type=DeepAgentDeps, defer_model_check=True)
    [difference] = (await replay_case(agent)(await record('Hi'))).differences
    assert difference.startswith('request 1, instructions: ')
