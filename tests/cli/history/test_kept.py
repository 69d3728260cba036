"""Where versions are kept, which one a turn goes on from, and what versions are called."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import CancellationToken
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RunUsage
from typer.testing import Result

from pydantic_deep import LocalBackend, create_deep_agent
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli._metadata import DIRECTORY
from pydantic_deep.cli.approvals._policy import ApprovalMode, Decider, allow_all, pause_all
from pydantic_deep.cli.history._revisions import Revisions, UnknownVersionError
from pydantic_deep.cli.history._store import default_store, store_label
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._prompts import prompt_text
from pydantic_deep.cli.turn import _size_check
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._runner import TurnObserver, TurnReport, run_turn
from pydantic_deep.cli.turn._size_check import fits_in_versions
from pydantic_deep.store import (
    Commit,
    Committed,
    SqlStore,
    Store,
    StoreUnavailableError,
    VersionRecord,
    new_id,
    open_store,
)
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent

pytestmark = pytest.mark.anyio

Invoke = Callable[..., Result]

EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
WRITE = call('write_file', path='/new.txt', content='new\n')
ALLOW = '--approvals=allow'


async def turn(conversation: Conversation, decide: Decider = allow_all) -> TurnReport:
    """Run a turn that nobody watches."""
    observer = TurnObserver(show=lambda event: None, decide=decide)
    return await run_turn(conversation, 'Go', stop=CancellationToken(), observer=observer)


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def last(result: Result) -> dict[str, Any]:
    """Return the event `result`."""
    return json.loads(result.stdout.splitlines()[-1])


# The store


def test_the_own_store_is_for_this_user_alone(invoke: Invoke, tmp_path: Path) -> None:
    url = last(invoke('run', 'Go', '--json', model=ScriptedModel('Done.')))['store']
    state = tmp_path / 'state' / 'pydantic-deep'
    assert url == f'sqlite:///{state}/agents.db'
    assert (state.stat().st_mode & 0o777, (state / 'agents.db').stat().st_mode & 0o777) == (0o700, 0o600)


def test_an_option_and_a_variable_name_another(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    outside = f'sqlite:///{tmp_path}/a.db'
    invoke('run', 'Go', '--store', outside, model=ScriptedModel('Done.'))
    variables = {'PYDANTIC_DEEP_STORE': outside}
    invoke('run', 'Again', '--continue', model=ScriptedModel('Done.'), variables=variables)
    rows = document(invoke('log', '--json', variables=variables))
    assert [row['prompt'] for row in rows] == ['Again', 'Go', None]
    assert (tmp_path / 'a.db').exists()


def test_a_store_that_is_not_there_is_not_made_by_reading(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke('log', '--store', f'sqlite:///{tmp_path}/none.db')
    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr.startswith(
        f'There is no store {tmp_path}/none.db yet. `pydantic-deep run` and `chat` make one'
    )
    assert not (tmp_path / 'none.db').exists()


@pytest.mark.parametrize('command', [('run', 'Go'), ('chat',), ('log',), ('resume',)])
def test_what_is_no_store_is_said(invoke: Invoke, command: tuple[str, ...], work: Path) -> None:
    result = invoke(*command, '--store', 'poem.txt', model=ScriptedModel())
    assert result.exit_code == 2
    assert result.stderr.startswith("The store cannot be opened: There is no store at 'poem.txt'.")
    damaged = invoke(*command, '--store', f'sqlite:///{work}/poem.txt', model=ScriptedModel())
    assert damaged.exit_code == 2
    assert damaged.stderr.startswith('The store cannot be opened: ')


def test_a_state_directory_that_cannot_be_made_is_said(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / 'state').write_text('a file')
    result = invoke('run', 'Go', model=ScriptedModel())
    assert result.exit_code == 2
    assert result.stderr.startswith('The store cannot be opened: ')


def test_without_a_store_nothing_is_kept_and_no_file_is_read(
    invoke: Invoke, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_size_check, 'MAX_FILES', -1)
    result = invoke('run', 'Go', '--no-store', ALLOW, '--json', model=ScriptedModel(EDIT, 'Done.'))
    found = last(result)
    assert (found['version'], found['store'], found['has_files']) == (None, None, True)
    assert [file['path'] for file in found['files']] == ['/poem.txt']
    assert not (tmp_path / 'state').exists()


def test_a_chat_without_a_store_goes_on_turn_by_turn(invoke: Invoke) -> None:
    model = ScriptedModel('First.', 'Second.')
    result = invoke('chat', '--no-store', model=model, stdin='One\nTwo\n')
    assert result.stdout == 'First.\nSecond.\n'
    assert 'version' not in result.stderr
    assert len(model.requests[1].messages) == 3


@pytest.mark.parametrize(
    ('options', 'sentence'),
    [
        (('--continue', '--from', 'HEAD'), '--continue is --from HEAD. Choose one of both.'),
        (('--no-store', '--store', 'memory:'), 'Choose one of --store and --no-store.'),
        (('--no-store', '-c'), '--no-store has nothing to go on from. Choose one of --continue and --no-store.'),
        (('--no-store', '--from', 'HEAD'), 'Choose one of --from and --no-store.'),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    invoke: Invoke, options: tuple[str, ...], sentence: str
) -> None:
    result = invoke('run', 'Go', *options, model=ScriptedModel())
    assert result.exit_code == 2
    assert sentence in ' '.join(result.stderr.replace('│', '').split())


def test_a_store_is_shown_by_its_path() -> None:
    environment = Environment(variables={'HOME': '/home/anna'})
    assert store_label('sqlite:////home/anna/x/agents.db', environment) == '~/x/agents.db'
    assert store_label('sqlite:////srv/agents.db', environment) == '/srv/agents.db'
    assert store_label('postgresql://host/db', environment) == 'postgresql://host/db'
    assert default_store(Environment(variables={'XDG_STATE_HOME': '/s'})) == 'sqlite:////s/pydantic-deep/agents.db'


# Files


async def test_a_directory_is_measured_by_what_versions_have(work: Path) -> None:
    (work / '.git').mkdir()
    (work / '.git' / 'object').write_bytes(b'x' * 100)
    (work / '.gitignore').write_text('out/\n*.log\n')
    (work / 'out').mkdir()
    (work / 'out' / 'big').write_bytes(b'x' * 100)
    (work / 'src').mkdir()
    (work / 'src' / 'a.log').write_bytes(b'x' * 100)
    (work / 'src' / 'a.py').write_bytes(b'x' * 10)
    (work / 'src' / 'link').symlink_to('a.py')
    backend = LocalBackend(work)
    assert await fits_in_versions(backend, max_files=3, max_bytes=33)
    assert not await fits_in_versions(backend, max_files=2, max_bytes=33)
    assert not await fits_in_versions(backend, max_files=3, max_bytes=32)


async def test_what_cannot_be_looked_into_counts_nothing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(_size_check.os, 'scandir', refuse)
    assert await fits_in_versions(LocalBackend(work), max_files=0, max_bytes=0)


def test_of_a_directory_that_is_too_large_only_the_conversation_is_kept(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, work: Path
) -> None:
    monkeypatch.setattr(_size_check, 'MAX_FILES', 0)
    monkeypatch.setattr(fits_in_versions, '__kwdefaults__', {'max_files': 0, 'max_bytes': 0})
    first = invoke('run', 'One', ALLOW, model=ScriptedModel(EDIT, 'First.'))
    assert 'The directory is too large to keep its files in versions: only the conversation is kept.' in first.stderr
    model = ScriptedModel(WRITE, 'Second.')
    second = last(invoke('run', 'Two', '--continue', ALLOW, '--json', model=model))
    assert (second['has_files'], second['is_in_directory'], (work / 'new.txt').exists()) == (False, True, True)
    assert len(model.requests[0].messages) == 5
    rows = document(invoke('log', '--json'))
    assert [(row['files_changed'], row['is_head']) for row in rows] == [(None, True), (None, False), (None, False)]
    back = invoke('rewind', 'HEAD~')
    assert back.stdout.splitlines()[1] == 'It has no files; those of the directory are as they were.'
    assert document(invoke('log', '--json'))[1]['is_head']
    assert invoke('checkout', 'HEAD').stderr.endswith('it has none: they were not versioned.\n')


def test_what_was_edited_between_turns_is_a_version(invoke: Invoke, work: Path) -> None:
    invoke('run', 'One', model=ScriptedModel('First.'))
    (work / 'poem.txt').write_text('mine\n')
    invoke('run', 'Two', '--continue', model=ScriptedModel('Second.'))
    rows = document(invoke('log', '--json'))
    assert [(row['kind'], row['files_changed']) for row in rows[:2]] == [('turn', 0), ('edit', 1)]


def test_a_conversation_goes_on_in_the_directory_whatever_another_has_done_there(invoke: Invoke, work: Path) -> None:
    def meanwhile(messages: list[ModelMessage], info: AgentInfo) -> str:
        return 'First.'

    invoke('run', 'One', '--approvals=pause', model=ScriptedModel(WRITE))
    invoke('run', 'Another', ALLOW, model=ScriptedModel(EDIT, meanwhile))
    result = invoke('resume', ALLOW, '--json', model=ScriptedModel('Done.'))
    assert last(result)['is_in_directory']
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'
    assert (work / 'new.txt').exists()


def test_a_turn_that_waits_on_a_copy_goes_on_there(invoke: Invoke, work: Path) -> None:
    invoke('run', 'One', ALLOW, model=ScriptedModel(EDIT, 'First.'))
    invoke('branch', 'side', 'Two', '--from', 'HEAD~', '--approvals=pause', model=ScriptedModel(WRITE))
    result = invoke('resume', ALLOW, '--json', model=ScriptedModel('Done.'))
    found = last(result)
    assert (found['is_in_directory'], [file['path'] for file in found['files']]) == (False, ['/new.txt'])
    assert not (work / 'new.txt').exists()


def test_other_settings_are_kept_for_who_resumes(invoke: Invoke) -> None:
    invoke('run', 'One', model=ScriptedModel('First.'))
    invoke('run', 'Two', '--continue', '--max-tokens', '150', '--approvals=pause', model=ScriptedModel(WRITE))
    assert 'edit now  other settings' in invoke('log').stdout
    assert invoke('resume', '--approvals=deny', model=ScriptedModel(call('ls'))).exit_code == 4


async def test_where_another_works_in_the_directory_a_turn_works_on_a_copy(
    make_conversation: Callable[..., Conversation], store: Store, work: Path
) -> None:
    ours = make_conversation(ScriptedModel('First.', WRITE, 'Second.'))
    await turn(ours)
    await turn(make_conversation(ScriptedModel('Another.')))
    held = await ours.revisions.find('HEAD')
    assert await store.claim_workspace(ours.revisions.workspace, new_id(), held.id)
    second = await turn(ours)
    assert (second.result.is_in_directory, (work / 'new.txt').exists()) == (False, False)
    assert [(file.path, file.change) for file in second.result.files] == [('/new.txt', 'created')]


async def test_other_settings_on_a_copy_leave_the_directory_alone(
    make_conversation: Callable[..., Conversation], work: Path
) -> None:
    first = make_conversation(ScriptedModel(WRITE, 'First.'))
    await turn(first)
    other = make_conversation(ScriptedModel('Second.'), max_tokens=1000)
    await other.continue_from('HEAD~')
    second = await turn(other)
    assert (second.result.status, second.result.is_in_directory) == ('done', False)
    assert first.tip is not None
    assert (await first.revisions.find('HEAD')).id == first.tip.id


async def test_what_a_turn_has_used_is_known_as_far_as_its_line_is(
    make_conversation: Callable[..., Conversation], store: Store
) -> None:
    conversation = make_conversation(ScriptedModel(WRITE), approvals=ApprovalMode.pause)
    await turn(conversation, decide=pause_all)
    waiting = conversation.tip
    assert waiting is not None
    assert waiting.parent_id is not None
    await store.delete(waiting.parent_id)
    assert await conversation.usage_before(waiting) == RunUsage()


# Names


async def make_versions(store: Store, work: Path, answers: int) -> list[str]:
    """Make a conversation of a program, and return its versions, the root first."""
    agent = VersionedAgent(create_deep_agent(ScriptedModel(*['Done.'] * answers), name='house'), store)
    version = await agent.create(backend=LocalBackend(work))
    found = [version.id]
    for _ in range(answers):
        version = await version.advance('Go')
        found.append(version.id)
    return found


async def test_names_mean_versions(store: Store, work: Path) -> None:
    ids = await make_versions(store, work, 3)
    revisions = Revisions(store=store, directory=str(work))
    expected = {
        'HEAD': 3, 'HEAD~': 2, 'HEAD~1': 2, 'HEAD~2': 1, 'HEAD~~': 1, 'HEAD~1~2': 0, 'HEAD~0': 3,
        ids[1]: 1, ids[1].upper(): 1, ids[1][-8:]: 1, ids[1][-4:]: 1, f'{ids[2][-8:]}~2': 0, ids[0][:30]: 0,
    }  # fmt: skip
    assert {name: ids.index((await revisions.find(name)).id) for name in expected} == expected


@pytest.mark.parametrize(
    ('name', 'sentence'),
    [
        ('~2', "'~2' names no version. Write HEAD"),
        ('HEAD~2', "'HEAD~2' names no version: "),
        (
            'abc',
            "'abc' is no branch, and too short for an id: write 4 characters of its end or more. `pydantic-deep log`",
        ),
        (
            'fff1',
            "There is no version 'fff1'. It was deleted, or belongs to another store. The beginning of an id must",
        ),
        ('side', "There is no version 'side'. `pydantic-deep log` shows ids and branches."),
        ('ffffffffffff', "There is no version 'ffffffffffff'."),
        ('', "'' names no version."),
    ],
)
async def test_a_name_that_means_nothing_is_said(store: Store, work: Path, name: str, sentence: str) -> None:
    await make_versions(store, work, 1)
    with pytest.raises(UnknownVersionError) as caught:
        await Revisions(store=store, directory=str(work)).find(name)
    assert str(caught.value).startswith(sentence)


async def test_an_end_that_several_ids_have_is_refused(
    store: Store, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await make_versions(store, work, 1)
    revisions = Revisions(store=store, directory=str(work))
    records = [await store.version(id) for id in ids]

    async def versions(*args: object, before: int | None = None, **options: object) -> list[VersionRecord]:
        alike = [record._replace(id=f'{record.id[:28]}01234567') for record in records]
        return [] if before is not None else alike

    monkeypatch.setattr(store, 'versions', versions)
    with pytest.raises(
        UnknownVersionError, match=r"Several versions end with '01234567': .*, .*\. Write more of the id"
    ):
        await revisions.find('01234567')


async def test_head_is_the_newest_conversation_where_the_held_version_was_deleted(store: Store, work: Path) -> None:
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Done.')), store)
    root = await agent.create(metadata={DIRECTORY: str(work)}, backend=LocalBackend(work))
    revisions = Revisions(store=store, directory=str(work))
    turn = await root.advance('Go')
    assert (await revisions.find('HEAD')).id == turn.id
    await agent.delete(turn)
    assert (await revisions.find('HEAD')).id == root.id
    await agent.delete(root)
    with pytest.raises(UnknownVersionError, match='There is no HEAD'):
        await revisions.find('HEAD')


def test_an_id_is_shown_by_its_end_as_far_as_it_takes() -> None:
    assert short_id('0199c8a1-2b3c-7def-8abc-0123456789ab') == '456789ab'
    assert short_id('a-1112345678', ['a-1112345678', 'b-1212345678', 'c-99']) == '112345678'
    assert short_id('x-12345678', ['y-12345678']) == 'x-12345678'


async def test_a_branch_is_its_newest_version(store: Store, work: Path) -> None:
    agent = VersionedAgent(create_deep_agent(ScriptedModel(*['Done.'] * 6)), store)
    revisions = Revisions(store=store, directory=str(work))
    options: dict[str, Any] = {'metadata': {DIRECTORY: str(work)}, 'backend': LocalBackend(work)}
    old = await (await agent.create(**options)).advance('Go', branch='old')
    root = await agent.create(**options)
    main = await root.advance('Go')
    side = await root.advance('Go', branch='Side')
    assert [(await revisions.find(name)).id for name in ('main', 'Side', 'Side~', 'old')] == [
        main.id,
        side.id,
        root.id,
        old.id,
    ]
    hidden = await main.advance('Go', branch=side.id[-8:])
    assert (await revisions.find(hidden.branch)).id == side.id
    with pytest.raises(UnknownVersionError, match="no version 'side'"):
        await revisions.find('side')


async def test_a_name_that_versions_were_given_is_the_newest_of_them(store: Store, work: Path, tmp_path: Path) -> None:
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Done.', 'Done.')), store)
    elsewhere = Revisions(store=store, directory=str(tmp_path))
    here = Revisions(store=store, directory=str(work))
    first = await agent.create(name='café', metadata={DIRECTORY: str(work)})
    second = await agent.create(name='café')
    assert [(await revisions.find('café')).id for revisions in (here, elsewhere)] == [first.id, second.id]
    named = await first.with_metadata(name='good')
    assert [(await revisions.find('good')).id for revisions in (here, elsewhere)] == [named.id] * 2


async def test_what_came_from_a_version_that_was_deleted_has_none_before_it(store: Store, work: Path) -> None:
    ids = await make_versions(store, work, 2)
    await store.delete(ids[1])
    with pytest.raises(UnknownVersionError, match='came from a version that was deleted'):
        await Revisions(store=store, directory=str(work)).find('HEAD~')


# Versions of other programs


async def test_the_versions_of_a_program_can_be_read_and_checked_out(
    invoke: Invoke, work: Path, tmp_path: Path
) -> None:
    url = f'sqlite:///{tmp_path}/house.db'
    async with open_store(url) as store:
        ids = await make_versions(store, work, 1)

    from anyio.to_thread import run_sync

    rows = document(await run_sync(lambda: invoke('log', '--store', url, '--json')))
    assert [row['id'] for row in rows] == ids[::-1]
    out = await run_sync(lambda: invoke('checkout', 'HEAD~', '--store', url))
    assert out.exit_code == 0


async def test_only_a_program_goes_on_with_what_waits_in_it(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    url = f'sqlite:///{tmp_path}/house.db'
    async with open_store(url) as store:
        agent = create_deep_agent(ScriptedModel(WRITE), name='house', interrupt_on={'write_file': True})
        version = await (await VersionedAgent(agent, store).create(backend=LocalBackend(work))).advance('Go')

    from anyio.to_thread import run_sync

    result = await run_sync(lambda: invoke('resume', version.id, '--store', url, ALLOW, model=ScriptedModel()))
    assert (result.exit_code, result.stderr) == (
        2,
        f"The version {version.id[-8:]} was made by another program, with the agent 'house'. Only that can go on with it.\n",
    )
    replay = await run_sync(lambda: invoke('replay', version.id, '--store', url, model=ScriptedModel()))
    assert replay.exit_code == 2


# Prompts


def test_prompts_with_media_say_so() -> None:
    assert prompt_text(['Look at', {'kind': 'binary'}]) == 'Look at\n[media]'
    assert (prompt_text('Hi'), prompt_text(None)) == ('Hi', '')


def test_a_turn_whose_end_the_store_cannot_take_is_suspended_and_not_failed(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status, the exit code and the sentence say that the turn may continue, and the next one does."""
    commit = SqlStore.commit

    async def lose_ends(self: SqlStore, batch: Commit) -> Committed:
        if batch.ends:
            raise StoreUnavailableError('The disk is full.')
        return await commit(self, batch)

    with monkeypatch.context() as full:  # a disk that is full when the turn ends
        full.setattr(SqlStore, 'commit', lose_ends)
        result = invoke('run', 'One', '--json', ALLOW, model=ScriptedModel(WRITE, 'Lost.'))
    told = last(result)
    assert (result.exit_code, told['status']) == (6, 'suspended')
    assert told['error'].startswith('Suspended: the store did not take the end of the turn. The disk is full.')
    again = invoke('run', 'Two', '--continue', ALLOW, '--json', model=ScriptedModel('Second.'))
    assert (again.exit_code, last(again)['status']) == (0, 'done')


@pytest.mark.filterwarnings('default')
def test_show_lists_the_files_that_no_version_has(invoke: Invoke, work: Path) -> None:
    (work / '~notes').write_text('mine')
    invoke('run', 'One', model=ScriptedModel('First.'))

    assert '\nFiles in no version\n! /~notes  invalid path\n' in invoke('show').stdout
    assert document(invoke('show', '--json'))['omitted_files'] == [
        {'path': '/~notes', 'reason': 'invalid path', 'size_bytes': 4}
    ]
