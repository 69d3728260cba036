"""Turns with pauses and steps: several versions shown as one turn."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from inline_snapshot import snapshot
from pydantic_ai import CancellationToken
from typer.testing import Result

from pydantic_deep import create_deep_agent
from pydantic_deep.cli.approvals._policy import allow_all
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.history._revisions import Revisions
from pydantic_deep.cli.render._detail_view import render_details
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._runner import TurnObserver, run_turn
from pydantic_deep.store import Store, new_id, open_store
from pydantic_deep.streaming import StreamEvent, TextEvent
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent

Invoke = Callable[..., Result]
MakeConversation = Callable[..., Conversation]
MakeTerminal = Callable[..., Any]
InStore = Callable[[Callable[[Store], Awaitable[None]]], None]

PAUSE = '--approvals=pause'
ALLOW = '--approvals=allow'
PLAN = [{'content': 'Write both', 'status': 'completed'}]
READ = call('read_file', path='/poem.txt')
WRITE_A = call('write_file', path='/a.txt', content='a\n')
WRITE_B = call('write_file', path='/b.txt', content='b\n')
TASK = call('task', subagent='general-purpose', description='Look at it')


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def ids_of(invoke: Invoke, *options: str) -> list[str]:
    """Return the version ids of the directory, oldest first."""
    return [row['id'] for row in reversed(document(invoke('log', '--json', *options)))]


def named(text: str, ids: Sequence[str]) -> str:
    """Replace version ids in the text with `version` and their index."""
    for number, id in enumerate(ids):
        text = text.replace(id, f'version{number}').replace(id[-8:], f'version{number}')
    return text


@pytest.fixture
def in_store(tmp_path: Path) -> InStore:
    """Run a function with the store of the command line."""

    def do(work: Callable[[Store], Awaitable[None]]) -> None:
        async def run() -> None:
            async with open_store(f'sqlite:///{tmp_path}/state/pydantic-deep/agents.db') as store:
                await work(store)

        anyio.run(run)

    return do


@pytest.fixture
def asked(invoke: Invoke, make_terminal: MakeTerminal) -> list[str]:
    """The ids of the root, the two pauses of a turn that writes two files, and the end of the turn."""
    model = ScriptedModel(call('write_todos', todos=PLAN), TASK, 'Looked.', WRITE_A, WRITE_B, 'Wrote both.')
    result = invoke('run', 'Write both', model=model, terminal=make_terminal('y', 'y'))
    assert (result.exit_code, result.stdout) == (0, 'Wrote both.\n')
    return ids_of(invoke)


def test_diff_covers_the_whole_turn(invoke: Invoke, asked: list[str]) -> None:
    difference = document(invoke('diff', '--json'))
    assert (difference['before'], [file['path'] for file in difference['files']]) == (asked[0], ['/a.txt', '/b.txt'])
    of_a_pause = document(invoke('diff', asked[2], '--json'))
    assert (of_a_pause['before'], [file['path'] for file in of_a_pause['files']]) == (asked[0], ['/a.txt'])


@pytest.mark.slow
def test_parent_revision_is_the_version_before_the_turn(invoke: Invoke, asked: list[str], work: Path) -> None:
    result = invoke('rewind', 'HEAD~')
    assert named(result.stdout, asked) == snapshot("""\
HEAD is version0: a conversation begins
3 versions after it stay in the store: version3, version2, version1
""")
    assert sorted(path.name for path in work.iterdir()) == ['poem.txt']
    model = ScriptedModel('Hi.')
    assert invoke('run', 'Hello', '-c', model=model).exit_code == 0
    assert len(model.requests[0].messages) == 1


def test_edits_during_a_pause_belong_to_the_turn(invoke: Invoke, work: Path) -> None:
    invoke('run', 'Write', PAUSE, model=ScriptedModel(WRITE_A))
    (work / 'poem.txt').write_text('mine\n')
    invoke('resume', ALLOW, model=ScriptedModel('Wrote.'))
    ids = ids_of(invoke)
    assert [row['kind'] for row in document(invoke('log', '--json'))] == ['turn', 'edit', 'pause', 'root']
    assert document(invoke('diff', '--json'))['before'] == ids[0]


def test_each_version_of_a_turn_has_the_prompt(invoke: Invoke, asked: list[str]) -> None:
    assert [row['prompt'] for row in document(invoke('log', '--json'))] == [*['Write both'] * 3, None]
    assert [row['prompt'] for row in document(invoke('log', '--json', '--steps'))] == [*['Write both'] * 5, None]
    assert named(invoke('log').stdout, asked) == snapshot("""\
● version3 (HEAD, main) now  Write both  1 file
◌ version2 pause now  Write both  1 file
◌ version1 pause now  Write both
○ version0 root now  a conversation begins
""")


def test_edited_arguments_do_not_change_the_prompt(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    terminal = make_terminal('e', "path: /z.txt\ncontent: 'z'\n", KeyboardInterrupt())
    invoke('run', 'Write both', model=ScriptedModel(WRITE_A, WRITE_B), terminal=terminal)
    rows = document(invoke('log', '--json'))
    assert [(row['kind'], row['prompt']) for row in rows] == [
        ('pause', 'Write both'),
        ('pause', 'Write both'),
        ('root', None),
    ]
    assert '\nPrompt\nWrite both\n' in invoke('show').stdout
    resumed = invoke('resume', ALLOW, '--json', model=ScriptedModel('Wrote both.'))
    assert json.loads(resumed.stdout.splitlines()[0])['prompt'] == 'Write both'


def test_show_covers_the_whole_turn(invoke: Invoke, asked: list[str]) -> None:
    text = invoke('show').stdout
    assert named(text[: text.index('\nSubagents')], asked).splitlines()[4:] == snapshot(
        [
            'branch       main',
            'agent        command-line, given',
            '',
            'Prompt',
            'Write both',
            '',
            'Calls',
            '✓ write_todos',
            '✓ task general-purpose Look at it  Looked.',
            '✓ write_file /a.txt  Created /a.txt: 1 line, 2 bytes.',
            '✓ write_file /b.txt  Created /b.txt: 1 line, 2 bytes.',
        ]
    )
    assert re.sub(r'\d+\.\d s', '0.0 s', text[text.index('\nAnswer') :]) == snapshot("""\

Answer
Wrote both.

Files
+ /a.txt  +1 -0
+ /b.txt  +1 -0

Todos
  ● Write both

Requests
1 scripted  100 tokens in, 10 out, 0.0 s
2 scripted  100 tokens in, 10 out, 0.0 s
3 scripted  100 tokens in, 10 out, 0.0 s
4 scripted  100 tokens in, 10 out, 0.0 s
5 scripted  100 tokens in, 10 out, 0.0 s
6 requests, 4 tool calls, 600 tokens in, 60 out so far
""")
    details = document(invoke('show', '--json'))
    assert [each['subagent'] for each in details['subagents']] == ['general-purpose']
    assert details['steps'] == [id for id in ids_of(invoke, '--steps') if id not in asked]


@pytest.mark.anyio
async def test_show_prints_the_stored_model_of_another_agent(store: Store) -> None:
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Done.'), name='other'), store)
    version = await (await agent.create()).advance('Go')
    reader = VersionReader(revisions=Revisions(store=store, directory='/'))
    assert 'agent        other, scripted:scripted' in map(
        str, render_details(await reader.views.details(version.record))
    )


def test_answered_pause_has_no_pending_calls(invoke: Invoke, asked: list[str]) -> None:
    text = invoke('show', asked[1]).stdout
    assert '\nmade         pause, answered, ' in text
    assert '\nPending\n' not in text
    details = document(invoke('show', asked[1], '--json'))
    assert ([each['status'] for each in details['approvals']], details['is_pending']) == (['approved'], False)
    assert len(details['requests']) == 3


def test_turn_with_deleted_parents_is_rebuilt_from_its_messages(
    invoke: Invoke, make_terminal: MakeTerminal, in_store: InStore
) -> None:
    model = ScriptedModel(READ, READ, 'One.', READ, 'Two.', WRITE_A, WRITE_B, 'Three.')
    invoke('chat', model=model, stdin='One\nTwo\nThree\n', terminal=make_terminal('y', 'y'))
    ids = ids_of(invoke)

    async def delete(store: Store) -> None:
        for id in (ids[1], ids[3], ids[4]):  # the first turn, and both pauses of the third
            await store.delete(id)

    def told(version: str) -> list[str]:
        details = document(invoke('show', version, '--json'))
        return [details['prompt'], *(each['name'] for each in details['tool_calls'])]

    in_store(delete)
    assert told(ids[2]) == ['Two', 'read_file']
    assert told(ids[5]) == ['Three', 'write_file', 'write_file']
    assert named(invoke('log').stdout, ids) == snapshot("""\
● version5 (HEAD, main) now  Three
│ ● version2 now  Two
│ │ ○ version0 root now  a conversation begins
… …
""")


@pytest.mark.anyio
async def test_show_prints_the_partial_answer_of_a_stopped_turn(
    make_conversation: MakeConversation, store: Store
) -> None:
    stop = CancellationToken()

    def stop_at_text(event: StreamEvent) -> None:
        if isinstance(event, TextEvent):
            stop.cancel()

    conversation = make_conversation(ScriptedModel('Once upon a time there was a rose.'))
    await run_turn(conversation, 'Tell', stop=stop, observer=TurnObserver(show=stop_at_text, decide=allow_all))
    assert conversation.tip is not None
    reader = VersionReader(revisions=conversation.revisions)
    details = await reader.views.details(conversation.tip.record)
    assert (details.state, details.error) == ('interrupted', None)
    assert details.output is not None
    assert 'Once upon a time there was a rose.'.startswith(details.output)
    shown = [str(line) for line in render_details(details)]
    assert shown[shown.index('\nPartial answer') + 1] == details.output


# Continuing from a version with pending approvals


def refused(invoke: Invoke, *options: str) -> str:
    result = invoke('run', 'Go on', *options, model=ScriptedModel())
    assert (result.exit_code, result.stdout) == (2, '')
    return result.stderr


def test_continue_from_an_answered_pause_names_its_successor(invoke: Invoke, asked: list[str]) -> None:
    said = refused(invoke, '--from', asked[1])
    assert named(said, asked) == snapshot(
        'The version version1 was answered, and version3 continues it. Continue from that version with `--from version3`, or continue before it with `--from version1~`.\n'
    )
    for name in (f'{asked[1][-8:]}~', asked[3][-8:]):
        assert invoke('run', 'Go on', '--from', name, model=ScriptedModel('Done.')).exit_code == 0
    assert invoke('rewind', asked[1]).exit_code == 0
    assert refused(invoke, '-c') == said


def test_continue_from_a_pending_pause_names_the_resume_command(invoke: Invoke) -> None:
    invoke('run', 'Write both', PAUSE, model=ScriptedModel(WRITE_A))
    ids = ids_of(invoke)
    assert named(refused(invoke, '-c'), ids) == snapshot(
        'The version version1 has pending approvals. Answer them with `pydantic-deep resume version1`, or continue before it with `--from version1~`.\n'
    )
    assert invoke('run', 'Else', '--from', f'{ids[1]}~', model=ScriptedModel('Done.')).exit_code == 0


def test_continue_from_an_answered_pause_names_a_pending_successor(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    invoke('run', 'Write both', PAUSE, model=ScriptedModel(WRITE_A))
    invoke('resume', PAUSE, model=ScriptedModel(WRITE_B), terminal=make_terminal('y'))
    ids = ids_of(invoke)
    assert named(refused(invoke, '--from', ids[1]), ids) == snapshot(
        'The version version1 was answered, and version2, which continues it, has pending approvals. Answer them with `pydantic-deep resume version2`, or continue before it with `--from version1~`.\n'
    )
    assert invoke('resume', ids[2], ALLOW, model=ScriptedModel('Done.')).exit_code == 0


def test_continue_from_a_claimed_pause_without_a_version_is_refused(invoke: Invoke, in_store: InStore) -> None:
    invoke('run', 'Write both', PAUSE, model=ScriptedModel(WRITE_A))
    ids = ids_of(invoke)

    async def claim(store: Store) -> None:
        await store.claim_approvals(ids[1], new_id())

    in_store(claim)
    assert named(refused(invoke, '-c'), ids) == snapshot(
        'The version version1 was answered, and the run that continues it has no version yet. Wait for that run, or continue before it with `--from version1~`.\n'
    )
    assert invoke('run', 'Else', '--from', f'{ids[1]}~', model=ScriptedModel('Done.')).exit_code == 0


def test_answered_pause_with_an_edit_names_the_final_version(invoke: Invoke, work: Path) -> None:
    invoke('run', 'Write', PAUSE, model=ScriptedModel(WRITE_A))
    (work / 'poem.txt').write_text('mine\n')
    invoke('resume', ALLOW, model=ScriptedModel('Wrote.'))
    ids = ids_of(invoke)
    assert 'version3 continues it' in named(refused(invoke, '--from', ids[1]), ids)


@pytest.mark.anyio
async def test_ancestors_are_listed_after_a_merged_version_was_deleted() -> None:
    """`log VERSION` follows merges, and goes on without a version that was deleted."""
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel('one', 'two')), store)
        start = await agent.create()
        ours, theirs = await start.advance('one'), await start.advance('two')
        merged = await ours.merge(theirs)
        reader = VersionReader(revisions=Revisions(store=store, directory='/'))
        whole = [version.id for version in (await reader.lineage_log(merged.id, limit=100)).versions]
        assert {merged.id, ours.id, theirs.id, start.id} <= set(whole)

        await agent.delete(theirs)

        left = [version.id for version in (await reader.lineage_log(merged.id, limit=100)).versions]
        assert {merged.id, ours.id, start.id} <= set(left)
        assert theirs.id not in left
        assert (await merged.merge(ours)).id == merged.id
