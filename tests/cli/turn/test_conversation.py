"""Continuation of conversations in the directory and on a copy."""

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
from pydantic_deep.cli.approvals._policy import ApprovalMode, Decider, allow_all, pause_all
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._runner import TurnObserver, TurnReport, run_turn
from pydantic_deep.store import (
    Commit,
    Committed,
    SqlStore,
    Store,
    StoreUnavailableError,
    new_id,
    open_store,
)
from pydantic_deep.streaming import TurnWorkspace
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent
from pydantic_deep.views import prompt_text

pytestmark = pytest.mark.anyio

Invoke = Callable[..., Result]

EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
WRITE = call('write_file', path='/new.txt', content='new\n')
ALLOW = '--approvals=allow'


async def turn(conversation: Conversation, decide: Decider = allow_all) -> TurnReport:
    """Run a turn without an observer of its events."""
    observer = TurnObserver(show=lambda event: None, decide=decide)
    return await run_turn(conversation, 'Go', stop=CancellationToken(), observer=observer)


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def last(result: Result) -> dict[str, Any]:
    """Return the last event."""
    return json.loads(result.stdout.splitlines()[-1])


def test_edits_between_turns_are_stored_as_a_version(invoke: Invoke, work: Path) -> None:
    invoke('run', 'One', model=ScriptedModel('First.'))
    (work / 'poem.txt').write_text('mine\n')
    invoke('run', 'Two', '--continue', model=ScriptedModel('Second.'))
    rows = document(invoke('log', '--json'))
    assert [(row['kind'], row['files_changed']) for row in rows[:2]] == [('turn', []), ('edit', ['/poem.txt'])]


def test_resume_works_in_a_directory_changed_by_another_conversation(invoke: Invoke, work: Path) -> None:
    def meanwhile(messages: list[ModelMessage], info: AgentInfo) -> str:
        return 'First.'

    invoke('run', 'One', '--approvals=pause', model=ScriptedModel(WRITE))
    invoke('run', 'Another', ALLOW, model=ScriptedModel(EDIT, meanwhile))
    result = invoke('resume', ALLOW, '--json', model=ScriptedModel('Done.'))
    assert last(result)['workspace']['is_in_directory']
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'
    assert (work / 'new.txt').exists()


def test_turn_paused_on_a_copy_resumes_on_the_copy(invoke: Invoke, work: Path) -> None:
    invoke('run', 'One', ALLOW, model=ScriptedModel(EDIT, 'First.'))
    invoke('branch', 'side', 'Two', '--from', 'HEAD~', '--approvals=pause', model=ScriptedModel(WRITE))
    result = invoke('resume', ALLOW, '--json', model=ScriptedModel('Done.'))
    found = last(result)
    assert (found['workspace']['is_in_directory'], [file['path'] for file in found['files']]) == (False, ['/new.txt'])
    assert not (work / 'new.txt').exists()


def test_changed_settings_are_stored_for_resume(invoke: Invoke) -> None:
    invoke('run', 'One', model=ScriptedModel('First.'))
    invoke('run', 'Two', '--continue', '--max-tokens', '150', '--approvals=pause', model=ScriptedModel(WRITE))
    assert 'edit now  settings changed' in invoke('log').stdout
    assert invoke('resume', '--approvals=deny', model=ScriptedModel(call('ls'))).exit_code == 4


async def test_turn_runs_on_a_copy_while_another_run_uses_the_directory(
    make_conversation: Callable[..., Conversation], store: Store, work: Path
) -> None:
    ours = make_conversation(ScriptedModel('First.', WRITE, 'Second.'))
    await turn(ours)
    await turn(make_conversation(ScriptedModel('Another.')))
    held = await ours.revisions.find('HEAD')
    assert await store.claim_workspace(ours.revisions.workspace, new_id(), held.id)
    second = await turn(ours)
    assert second.end.workspace is not None
    assert (second.end.workspace.is_in_directory, (work / 'new.txt').exists()) == (False, False)
    assert [(file.path, file.change) for file in second.end.files or ()] == [('/new.txt', 'created')]


async def test_changed_settings_on_a_copy_do_not_affect_the_directory(
    make_conversation: Callable[..., Conversation], work: Path
) -> None:
    first = make_conversation(ScriptedModel(WRITE, 'First.'))
    await turn(first)
    other = make_conversation(ScriptedModel('Second.'), max_tokens=1000)
    await other.continue_from('HEAD~')
    second = await turn(other)
    assert (second.end.status, second.end.workspace) == (
        'complete',
        TurnWorkspace(store='memory:', is_in_directory=False, has_files=True, has_all_changes=True),
    )
    assert first.tip is not None
    assert (await first.revisions.find('HEAD')).id == first.tip.id


async def test_usage_before_a_turn_with_a_deleted_parent_is_zero(
    make_conversation: Callable[..., Conversation], store: Store
) -> None:
    conversation = make_conversation(ScriptedModel(WRITE), approvals=ApprovalMode.pause)
    await turn(conversation, decide=pause_all)
    waiting = conversation.tip
    assert waiting is not None
    assert waiting.parent_id is not None
    await store.delete(waiting.parent_id)
    assert await conversation.usage_before(waiting) == RunUsage()


async def test_resume_refuses_a_version_of_another_program(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    url = f'sqlite:///{tmp_path}/house.db'
    async with open_store(url) as store:
        agent = create_deep_agent(ScriptedModel(WRITE), name='house', interrupt_on={'write_file': True})
        version = await (await VersionedAgent(agent, store).create(backend=LocalBackend(work))).advance('Go')
        (approval,) = await store.approvals(version_id=version.id)

    from anyio.to_thread import run_sync

    result = await run_sync(lambda: invoke('resume', version.id, '--store', url, ALLOW, model=ScriptedModel()))
    assert (result.exit_code, result.stderr) == (
        2,
        f"The version {version.id[-8:]} was created by another program, with the agent 'house'. Only that program can continue it.\n",
    )
    replay = await run_sync(lambda: invoke('replay', version.id, '--store', url, model=ScriptedModel()))
    assert replay.exit_code == 2
    answered = await run_sync(lambda: invoke('approvals', 'answer', approval.id, '--approve', '--store', url))
    assert answered.stdout.endswith('Only that program can continue it.\n')


def test_media_in_a_prompt_is_shown_as_a_placeholder() -> None:
    assert prompt_text(['Look at', {'kind': 'binary'}]) == 'Look at\n[media]'
    assert (prompt_text('Hi'), prompt_text(None)) == ('Hi', '')


def test_turn_with_an_unstored_end_is_suspended(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status, the exit code and the message report a suspended turn, and the next turn continues it."""
    commit = SqlStore.commit

    async def lose_ends(self: SqlStore, batch: Commit) -> Committed:
        if batch.ends:
            raise StoreUnavailableError('The disk is full.')
        return await commit(self, batch)

    with monkeypatch.context() as full:  # simulates a disk that fills up during the turn
        full.setattr(SqlStore, 'commit', lose_ends)
        result = invoke('run', 'One', '--json', ALLOW, model=ScriptedModel(WRITE, 'Lost.'))
    *_, error, end = map(json.loads, result.stdout.splitlines())
    assert (result.exit_code, end['status']) == (6, 'suspended')
    assert error['message'].startswith('Suspended: the store did not accept the end of the turn. The disk is full.')
    again = invoke('run', 'Two', '--continue', ALLOW, '--json', model=ScriptedModel('Second.'))
    assert (again.exit_code, last(again)['status']) == (0, 'complete')


@pytest.mark.filterwarnings('default')
def test_show_lists_files_omitted_from_the_version(invoke: Invoke, work: Path) -> None:
    (work / '~notes').write_text('mine')
    invoke('run', 'One', model=ScriptedModel('First.'))

    assert '\nFiles in no version\n! /~notes  invalid path\n' in invoke('show').stdout
    assert document(invoke('show', '--json'))['omitted_files'] == [
        {'path': '/~notes', 'reason': 'invalid path', 'size_bytes': 4}
    ]
