"""A turn of a store becomes a case, which contains everything that its replay needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import BinaryContent, TextContent

from pydantic_deep import Approve, Deny, Edit, LocalBackend, Respond, StateBackend, Subagent, create_deep_agent
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.evals import (
    CaseError,
    TurnCase,
    compare,
    load_cases,
    read_case,
    record_case,
    replay_case,
    run_case,
    write_case,
)
from pydantic_deep.evals._run import NOT_ANSWERED
from pydantic_deep.memory import Memories
from pydantic_deep.store import Store, VersionNotFoundError, open_store
from pydantic_deep.summarization import Messages, Summarization, Tokens
from pydantic_deep.testing import ScriptedModel, Step, call
from pydantic_deep.versions import AgentVersion, Recorder, VersionedAgent

from .conftest import EDIT, PLAN, POEM, RecordCase, reading

pytestmark = pytest.mark.anyio


def agent_of(*steps: Step, **options: Any) -> Any:
    return create_deep_agent(ScriptedModel(*steps), **options)


async def written(versions: VersionedAgent[Any, Any], version: AgentVersion[Any, Any], to: Path) -> TurnCase:
    return read_case(write_case(await record_case(versions, version.id), to))


async def differences(case: TurnCase, **options: Any) -> list[str]:
    return list((await replay_case(agent_of(**options))(case)).differences)


async def test_case_has_the_prompt_the_files_and_the_result(record: RecordCase):
    case = await record(PLAN, EDIT, call('execute', command='ls'), 'Fixed.')
    assert (case.name, case.prompt, case.agent) == ('poem', 'Fix the poem.', 'deep-agent')
    assert case.files == {'/poem.txt': POEM.encode(), '/old.txt': b'old'}
    assert case.expected.files == {'/poem.txt': b'rose\nlily\n', '/old.txt': b'old'}
    assert case.expected.output == 'Fixed.'
    assert [todo.status for todo in case.expected.todos] == ['completed']
    assert (case.expected.usage.requests, case.expected.usage.tokens) == (4, 440)
    assert case.evaluators == ['FilesEqual', 'ApprovalsAsked', 'TodosCompleted']
    assert await differences(case) == []


async def test_name_consists_of_the_prompt_and_the_id(store: Store):
    versions = VersionedAgent(agent_of('Hi', 'Hi'), store)
    version = await (await versions.create()).advance([TextContent('Add up: the SALES of this'), 'year! Now.'])
    assert (await record_case(versions, version.id)).name == f'add-up-the-sales-of-{version.id[-8:]}'
    silent = await version.advance([BinaryContent(data=b'png', media_type='image/png')])
    assert (await record_case(versions, silent.id)).name == silent.id[-8:]


async def test_paused_and_resumed_turn_is_one_case_with_its_answers(store: Store, tmp_path: Path):
    calls = [call('write_file', path=f'/{name}', content=name) for name in 'abcd']
    gate = {'write_file': True}
    versions = VersionedAgent(agent_of(calls, 'Wrote.', interrupt_on=gate), store)
    version = await (await versions.create(backend=StateBackend())).advance('Write.')
    answers = [Approve(), Edit({'path': '/b', 'content': 'B'}), Deny('No.'), Respond('Later.')]
    for pending, answer in zip(version.pending, answers, strict=True):
        version = await version.resume({pending.id: answer})

    case = await written(versions, version, tmp_path)

    assert [(asked.answer, asked.value) for asked in case.expected.approvals] == [
        ('approve', None), ('edit', {'path': '/b', 'content': 'B'}), ('deny', 'No.'), ('respond', 'Later.'),
    ]  # fmt: skip
    assert [asked.decision for asked in case.expected.approvals] == answers
    assert case.expected.files == {'/a': b'a', '/b': b'B'}
    assert await differences(case, interrupt_on=gate) == []
    changed = await differences(case, interrupt_on=gate, instructions='Hurry.')
    assert changed[0].startswith('request 1, instructions: ')


async def test_pause_that_nobody_answered_is_a_case(store: Store, tmp_path: Path):
    gate = {'write_file': True}
    versions = VersionedAgent(agent_of(call('write_file', path='/a', content='a'), interrupt_on=gate), store)
    paused = await (await versions.create()).advance('Write.')
    case = await written(versions, paused, tmp_path)
    assert (case.expected.output, len(case.expected.approvals)) == (None, 1)
    asked = case.expected.approvals[0]
    assert (asked.tool, asked.arguments, asked.answer) == ('write_file', {'path': '/a', 'content': 'a'}, 'deny')
    assert await differences(case, interrupt_on=gate) == []
    load = load_cases(tmp_path)
    again = agent_of(call('write_file', path='/a', content='a'), 'Not written.', interrupt_on=gate)
    assert await compare(load, {'same': run_case(again)})


async def test_later_answer_is_no_part_of_a_pause(store: Store, tmp_path: Path):
    """It would be the answer with the files of before the answer."""
    gate = {'write_file': True}
    versions = VersionedAgent(agent_of(call('write_file', path='/a', content='a'), 'Wrote.', interrupt_on=gate), store)
    paused = await (await versions.create()).advance('Write.')
    done = await paused.resume({paused.pending[0].id: Approve()})
    case = await written(versions, paused, tmp_path / 'paused')
    assert [(one.answer, one.value) for one in case.expected.approvals] == [('deny', NOT_ANSWERED)]
    whole = await written(versions, done, tmp_path / 'done')
    assert [one.answer for one in whole.expected.approvals] == ['approve']
    agents = [agent_of(call('write_file', path='/a', content='a'), 'Done.', interrupt_on=gate) for _ in range(2)]
    for directory, agent in zip(('paused', 'done'), agents, strict=True):
        assert await compare(load_cases(tmp_path / directory), {'same': run_case(agent)})


async def test_pause_of_an_edited_directory_is_recorded(store: Store, work: LocalBackend, tmp_path: Path):
    gate = {'write_file': True}
    steps = (call('write_file', path='/a', content='a'), 'Wrote.')
    versions = VersionedAgent(agent_of(*steps, interrupt_on=gate), store)
    paused = await (await versions.create(backend=work)).advance('Write.')
    (tmp_path / 'work/notes.txt').write_text('meanwhile')
    done = await paused.resume({paused.pending[0].id: Approve()})
    case = await written(versions, done, tmp_path)
    assert case.files == {'/poem.txt': POEM.encode()}
    assert case.expected.files['/notes.txt'] == b'meanwhile'
    assert await differences(case, interrupt_on=gate) == []


async def test_answers_to_an_edited_pause_are_recorded(store: Store, tmp_path: Path):
    gate = {'write_file': True}
    steps = (call('write_file', path='/a', content='a'), 'Wrote.')
    versions = VersionedAgent(agent_of(*steps, interrupt_on=gate), store)
    paused = await (await versions.create(backend=StateBackend())).advance('Write.')
    edited = await paused.with_metadata(name='later')
    done = await edited.resume({edited.pending[0].id: Approve()})
    case = await written(versions, done, tmp_path)
    assert [asked.answer for asked in case.expected.approvals] == ['approve']
    assert await differences(case, interrupt_on=gate) == []


async def test_only_the_branch_of_the_turn_is_recorded(store: Store, tmp_path: Path):
    agent = Agent(ScriptedModel('One.', 'Other.', 'Two.'))
    versions = VersionedAgent(agent, store)
    first = await (await versions.create()).advance('First.')
    await first.advance('Secret.', branch='other')
    second = await first.advance('Second.')
    await second.with_metadata(name='later')
    case = await written(versions, second, tmp_path)
    assert case.rows is not None
    assert [branch.name for branch in case.rows.branches] == ['main']
    assert 'Secret' not in (tmp_path / case.name / 'recording.json').read_text()
    assert list((await replay_case(Agent(ScriptedModel()))(case)).differences) == []


async def test_subagents_and_their_pauses_are_recorded(store: Store, tmp_path: Path):
    def helper(*steps: Step, text: str = 'one') -> Subagent:
        return Subagent(
            name='helper',
            description='Helps.',
            model=ScriptedModel(*steps),
            tools=[reading(text)],
            interrupt_on={'write_file': True},
        )

    gate = {'write_file': True}
    task = call('task', subagent='helper', description='Look.')
    own = helper(call('look'), call('write_file', path='/a', content='a'), 'Looked.')
    versions = VersionedAgent(agent_of(task, 'Done.', subagents=[own], interrupt_on=gate), store)
    paused = await (await versions.create(backend=StateBackend())).advance('Go.')
    done = await paused.resume({paused.pending[0].id: Approve()})
    case = await written(versions, done, tmp_path)

    assert case.rows is not None
    assert len(case.rows.requests) == 5
    assert [asked.subagents for asked in case.expected.approvals] == [['helper']]
    assert await differences(case, subagents=[helper()], interrupt_on=gate) == []


async def test_files_of_a_directory_are_recorded_and_the_directory_is_left_alone(
    store: Store, work: LocalBackend, tmp_path: Path
):
    program = tmp_path / 'work/run.sh'
    program.write_text('true\n')
    program.chmod(0o755)
    versions = VersionedAgent(agent_of(EDIT, call('read_file', path='/poem.txt'), 'Fixed.'), store)
    version = await (await versions.create(backend=work)).advance('Fix.')
    (tmp_path / 'work/poem.txt').write_text('later\n')
    case = await written(versions, version, tmp_path / 'evals')
    assert case.executables == {'/run.sh'}
    assert await differences(case) == []
    assert (tmp_path / 'work/poem.txt').read_text() == 'later\n'


async def test_case_has_only_the_description_of_other_recorded_cases(store: Store, work: LocalBackend, tmp_path: Path):
    folder = tmp_path / 'work/evals'
    versions = VersionedAgent(agent_of(*['Looked.'] * 3, call('ls', path='/evals/one'), 'Listed.'), store)
    for name in ('one', 'two', 'three'):
        version = await (await versions.create(backend=work)).advance('Look.')
        write_case(await record_case(versions, version.id, name=name), folder)
    own = folder / 'own'  # written by hand, so it contains no other cases
    (own / 'files').mkdir(parents=True)
    (own / 'case.json').write_text('{"format_version": 1, "prompt": "Look."}')
    (own / 'files/a.txt').write_text('a')
    (tmp_path / 'work/recording.json').write_text('{}')  # not that of a case

    version = await (await versions.create(backend=work)).advance('List.')
    case = await written(versions, version, folder)

    cases = {f'/evals/{name}/case.json' for name in ('one', 'two', 'three', 'own')}
    assert case.files.keys() == case.expected.files.keys() == {
        '/poem.txt', '/recording.json', '/evals/own/files/a.txt', *cases,
    }  # fmt: skip
    assert await differences(case) == []
    two = [path.relative_to(folder / 'two').as_posix() for path in (folder / 'two').rglob('*') if path.is_file()]
    three = [path for path in (folder / 'three').rglob('*') if path.is_file()]
    assert sorted(two) == ['case.json', 'files/evals/one/case.json', 'files/poem.txt', 'recording.json']
    assert len(three) == len(two) + 1


async def test_files_of_another_case_that_the_turn_changes_are_recorded(
    store: Store, work: LocalBackend, tmp_path: Path
):
    folder = tmp_path / 'work/evals'
    edit = call('edit_file', path='/evals/one/files/poem.txt', old_string='violet', new_string='lily')
    versions = VersionedAgent(agent_of('Looked.', edit, 'Fixed.'), store)
    first = await (await versions.create(backend=work)).advance('Look.')
    write_case(await record_case(versions, first.id, name='one'), folder)

    case = await written(versions, await (await versions.create(backend=work)).advance('Fix the case.'), folder)

    path = '/evals/one/files/poem.txt'
    assert (case.files[path], case.expected.files[path]) == (POEM.encode(), b'rose\nlily\n')
    assert '/evals/one/recording.json' not in case.files
    assert await differences(case) == []


async def test_commands_are_not_run_and_later_results_are_not_compared(store: Store, tmp_path: Path):
    (tmp_path / 'work').mkdir()
    backend = LocalBackend(tmp_path / 'work', allow_commands=True)
    steps = (call('execute', command='echo one >> /dev/null; echo new > new.txt'), call('ls'), 'Done.')
    versions = VersionedAgent(agent_of(*steps), store)
    version = await (await versions.create(backend=backend)).advance('Run.')
    (tmp_path / 'work/new.txt').unlink()
    case = await written(versions, version, tmp_path / 'evals')
    assert len(case.unrepeatable or ()) == 1
    assert await differences(case) == []
    assert not (tmp_path / 'work/new.txt').exists()


async def test_uploads_images_and_history_are_recorded(store: Store, tmp_path: Path):
    image = BinaryContent(data=b'\x89PNG\xff', media_type='image/png')
    versions = VersionedAgent(agent_of('One.', call('read_file', path='/uploads/a.csv'), 'Two.'), store)
    first = await (await versions.create(deps=DeepAgentDeps())).advance('First.')
    version = await (await first.upload('a.csv', b'a,b\n')).advance(['Look at', image])
    case = await written(versions, version, tmp_path)
    text, picture = case.prompt
    assert isinstance(picture, BinaryContent)
    assert (text, picture.data, picture.media_type) == ('Look at', image.data, 'image/png')
    assert case.files == {'/uploads/a.csv': b'a,b\n'}
    assert await differences(case) == []


async def test_turn_after_and_with_a_summary_is_recorded(store: Store, tmp_path: Path):
    def build(*steps: Step) -> Any:
        summarization = Summarization(
            trigger=Tokens(2_000), keep=Messages(2), summarizer=ScriptedModel(then=lambda m, i: 'Sum.')
        )
        return create_deep_agent(ScriptedModel(*steps, then=lambda m, i: 'Yes.'), capabilities=[summarization])

    versions = VersionedAgent(build(), store)
    version = await (await versions.create()).advance('word ' * 3_000)
    for text in ('Two.', 'Three.'):
        version = await version.advance(text)
        case = await written(versions, version, tmp_path)
        assert list((await replay_case(build())(case)).differences) == []


async def test_failed_turn_is_recorded(store: Store, tmp_path: Path):
    versions = VersionedAgent(agent_of(EDIT, RuntimeError('gone')), store)
    root = await versions.create(backend=StateBackend({'/poem.txt': POEM}))
    with pytest.raises(RuntimeError, match='gone'):
        await root.advance('Fix.')
    [version] = [one for one in await versions.list() if one.state == 'failed']
    case = await written(versions, version, tmp_path)
    assert await differences(case) == []


async def test_unverified_case_runs_no_tools(record: RecordCase):
    case = await record(call('look'), 'Looked.', tools=[reading('one')], verify=False)
    assert case.unrepeatable is None
    assert await differences(case, tools=[reading('two')]) == []


async def test_code_that_differs_from_the_recording_is_refused(store: Store):
    version = await (await VersionedAgent(agent_of('Hi'), store).create()).advance('Greet.')
    other = VersionedAgent(agent_of(instructions='Be brief.'), store)
    with pytest.raises(CaseError, match=r'does not replay exactly with this agent: request 1, instructions'):
        await record_case(other, version.id)


async def test_only_turns_with_a_prompt_become_cases(store: Store):
    versions = VersionedAgent(agent_of('Hi'), store)
    root = await versions.create()
    with pytest.raises(CaseError, match="is not the end of a turn, but of kind 'root'"):
        await record_case(versions, root.id)
    with pytest.raises(VersionNotFoundError):
        await record_case(versions, '01234567')
    version = await root.advance('Greet.')
    with pytest.raises(CaseError, match='cannot be the name of a case'):
        await record_case(versions, version.id, name='../x')


async def test_run_without_a_prompt_does_not_become_a_case(store: Store):
    agent = Agent(ScriptedModel('Hi'), instructions='Greet.')
    await agent.run(capabilities=[Recorder(store=store)])
    versions = VersionedAgent(agent, store)
    with pytest.raises(CaseError, match='began without a prompt'):
        await record_case(versions, (await versions.list())[0].id)


async def test_size_of_the_files_is_limited(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr('pydantic_deep.evals._record.MAX_CASE_BYTES', 3)  # instead of files of 50 MB
    versions = VersionedAgent(agent_of('Hi'), store)
    version = await (await versions.create(backend=StateBackend({'/a': 'four'}))).advance('Greet.')
    with pytest.raises(CaseError, match='began with 4 bytes of files, and a case has at most 3'):
        await record_case(versions, version.id)


async def test_recording_reads_stores_that_are_read_only(tmp_path: Path):
    url = f'sqlite:///{tmp_path}/a.db'
    async with open_store(url) as store:
        version = await (await VersionedAgent(agent_of('Hi'), store).create()).advance('Greet.')
    async with open_store(url, read_only=True) as store:
        assert (await record_case(VersionedAgent(agent_of(), store), version.id)).version == version.id


@pytest.mark.parametrize('name', ['../x', '/x', 'a//b', 'a/../b', 'é.md', ''])
async def test_memory_file_outside_of_the_case_is_refused(store: Store, name: str):
    pytest.importorskip('pydantic_ai_harness', reason='the harness pins pydantic-ai to an older release than this one')
    memories = await Memories.open(store, 'ada')
    await memories.fill({name: 'Likes tea.'})
    versions = VersionedAgent(agent_of('Hi.'), store)
    version = await (await versions.create()).advance('Hello.')
    with pytest.raises(CaseError, match='cannot be written to a folder'):
        await record_case(versions, version.id, memories=memories)
