"""The `log`, `show`, `diff`, `replay`, `sql` and `gc` commands: options, JSON and failures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from inline_snapshot import snapshot
from pydantic_ai.usage import RequestUsage
from typer.testing import Result

from pydantic_deep.store import open_store
from pydantic_deep.testing import ScriptedModel, call
from tests.cli.conftest import WRITE, document

Invoke = Callable[..., Result]


def delete(tmp_path: Path, id: str) -> None:
    """Delete a version with the API of the store."""

    async def do() -> None:
        async with open_store(f'sqlite:///{tmp_path}/state/pydantic-deep/agents.db') as store:
            await store.delete(id)

    anyio.run(do)


@pytest.mark.slow
def test_log_of_a_version_lists_its_ancestors(invoke: Invoke, history: list[str]) -> None:
    rows = document(invoke('log', history[2][-8:], '--json'))
    assert [row['id'] for row in rows] == [history[2], history[0]]
    assert [row['prompt'] for row in rows] == ['Write \x1b[31mnew', None]


def test_log_json_contains_all_fields_of_a_version(invoke: Invoke, history: list[str]) -> None:
    row = document(invoke('log', '--json'))[0]
    created_at, run_id, conversation_id = row.pop('created_at'), row.pop('run_id'), row.pop('conversation_id')
    assert datetime.fromisoformat(created_at).tzinfo == UTC
    assert (len(run_id), len(conversation_id)) == (36, 36)
    assert (row.pop('id'), row.pop('parent_id')) == (history[4], history[3])
    assert row.pop('usage')['input_tokens'] == 600
    assert row == snapshot(
        {
            'merged_from': None,
            'kind': 'pause',
            'state': 'awaiting_approval',
            'is_pending': True,
            'branch': 'main',
            'agent': 'command-line',
            'name': None,
            'model': 'scripted:scripted',
            'message_count': 10,
            'prompt': 'Wait',
            'calls': [],
            'files_changed': [],
            'protected_changes': [],
            'omitted_files': [],
            'is_head': True,
        }
    )


@pytest.mark.slow
def test_log_filters_by_conversation_or_shows_all(invoke: Invoke, history: list[str], tmp_path: Path) -> None:
    other = tmp_path / 'other'
    other.mkdir()
    invoke('run', 'Elsewhere', '--dir', str(other), model=ScriptedModel('Done.'))
    there = document(invoke('log', '--dir', str(other), '--json'))
    assert [row['prompt'] for row in there] == ['Elsewhere', None]
    named = document(invoke('log', '--conversation', there[0]['conversation_id'], '--json'))
    assert named == there
    everything = document(invoke('log', '--all', '--json'))
    conversations = {row['conversation_id'] for row in everything}
    assert len(conversations) == 3  # here, there, and that of the subagent


def test_log_searches_the_texts_of_conversations(invoke: Invoke, work: Path) -> None:
    """`--search` shows the versions of the conversations whose name, prompts or answers have the text."""
    for prompt, answer in (('Buy tea', 'It grows in Assam.'), ('Rain', 'No.')):
        assert invoke('run', prompt, model=ScriptedModel(answer)).exit_code == 0
    found = json.loads(invoke('log', '--search', 'ASSAM', '--json').stdout)
    assert [(row['kind'], row['prompt']) for row in found] == [('turn', 'Buy tea'), ('root', None)]
    assert len(json.loads(invoke('log', '--search', 'a', '--limit', '3', '--json').stdout)) == 3
    none = invoke('log', '--search', 'x\x1by')
    assert none.stderr == "No conversation contains 'x\\x1by'. --all searches all directories.\n"
    both = invoke('log', 'HEAD', '--search', 'a')
    assert (both.exit_code, 'Leave out the version, or --search.' in both.stderr) == (2, True)


def test_log_without_versions_prints_a_message(invoke: Invoke, history: list[str], tmp_path: Path) -> None:
    result = invoke('log', '--dir', str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, '')
    assert result.stderr == 'There is no version of this directory. --all shows those of other directories.\n'


def test_version_with_a_deleted_parent_is_shown_as_a_root(invoke: Invoke, history: list[str], tmp_path: Path) -> None:
    delete(tmp_path, history[0])
    rows = document(invoke('log', '--json'))
    assert [(row['prompt'], row['parent_id'], row['files_changed']) for row in rows[2:]] == [
        ('Write \x1b[31mnew', history[0], None),
        ('Fix the poem\nplease', history[0], None),
    ]
    assert document(invoke('show', history[1], '--json'))['files'] == []


def test_show_defaults_to_head_and_lists_pending_calls(invoke: Invoke, history: list[str]) -> None:
    text = invoke('show').stdout
    assert text.startswith(f'version {history[4]} (HEAD)\nmade         pause, pending, ')
    assert '\nPending\n· edit_file /poem.txt\n' in text


def test_show_of_a_resumed_turn_contains_the_whole_turn(invoke: Invoke, history: list[str]) -> None:
    invoke('resume', '--approvals=deny', model=ScriptedModel('Well then.'))
    details = document(invoke('show', '--json'))
    assert [(each['name'], each['outcome']) for each in details['tool_calls']] == [('edit_file', 'denied')]
    assert (details['output'], details['prompt']) == ('Well then.', 'Wait')


@pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed')
def test_exit_code_of_a_command_is_stored_and_shown(invoke: Invoke) -> None:
    model = ScriptedModel(call('execute', command='echo no; exit 3'), 'Done.')
    result = invoke('run', 'Go', '--sandbox', '--approvals=allow', model=model)
    assert '✗ execute echo no; exit 3  exit code 3: no\n' in result.stderr
    (made,) = document(invoke('show', '--json'))['tool_calls']
    assert (made['outcome'], made['exit_code']) == ('success', 3)
    assert '✗ execute echo no; exit 3  exit code 3: no\n' in invoke('show').stdout
    assert invoke('replay', model=ScriptedModel()).exit_code == 0


@pytest.mark.slow
def test_replay_matches_the_recording(invoke: Invoke, history: list[str]) -> None:
    for number, requests in ((1, 'all 2 requests match'), (2, 'all 3 requests match'), (4, 'the request matches')):
        result = invoke('replay', history[number], model=ScriptedModel())
        assert (result.exit_code, result.stdout) == (0, f'{history[number][-8:]}: {requests} the recording.\n')


def test_replay_of_a_resumed_turn_matches_the_recording(invoke: Invoke, history: list[str]) -> None:
    invoke('resume', '--approvals=allow', model=ScriptedModel(WRITE, 'Done.'))
    assert document(invoke('replay', '--json', model=ScriptedModel())) | {'version': ''} == snapshot(
        {
            'version': '',
            'is_exact': True,
            'requests': 2,
            'difference_number': None,
            'difference_part': None,
            'difference': None,
        }
    )


def test_replay_reports_the_first_difference(
    invoke: Invoke, history: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('pydantic_deep.cli.turn._runtime.INSTRUCTIONS', 'Speak like a \x1b pirate.')
    result = invoke('replay', history[1], model=ScriptedModel())
    assert result.exit_code == 1
    assert result.stdout.startswith(
        f'{history[1][-8:]}: request 1 differs from the recorded one in its instructions:\n'
    )
    assert 'Speak like a' in result.stdout
    assert '\x1b' not in result.stdout
    found = invoke('replay', history[1], '--json', model=ScriptedModel())
    assert (found.exit_code, json.loads(found.stdout)['difference_part']) == (1, 'instructions')


def test_replay_requires_the_end_of_a_turn_and_a_model(invoke: Invoke, history: list[str]) -> None:
    result = invoke('replay', history[0], model=ScriptedModel())
    assert result.exit_code == 2
    assert 'is not the end of a turn' in result.stderr
    assert invoke('replay', history[1], '--model', 'nobody').exit_code == 3


@pytest.mark.slow
def test_sql_prints_a_table_json_or_csv(invoke: Invoke, history: list[str]) -> None:
    query = "SELECT kind, count(*) AS n, NULL AS nothing FROM versions WHERE kind <> 'step' GROUP BY 1 ORDER BY 1"
    assert invoke('sql', query).stdout == snapshot("""\
kind   n  nothing
pause  1  null
root   2  null
turn   4  null
3 rows
""")
    assert document(invoke('sql', query, '--json'))[0] == {'kind': 'pause', 'n': 1, 'nothing': None}
    assert invoke('sql', '-', '--csv', stdin=query).stdout.splitlines()[:2] == ['kind,n,nothing', 'pause,1,']


def test_sql_refuses_json_with_csv(invoke: Invoke) -> None:
    result = invoke('sql', 'SELECT 1', '--json', '--csv')
    assert (result.exit_code, result.stdout) == (2, '')
    assert 'choose one of --json and --csv.' in result.stderr


def test_failed_sql_query_is_reported(invoke: Invoke, history: list[str]) -> None:
    result = invoke('sql', 'SELECT * FROM nowhere')
    assert (result.exit_code, result.stdout) == (1, '')
    assert 'nowhere' in result.stderr


def test_sql_without_duckdb_names_the_extra_to_install(
    invoke: Invoke, history: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise ModuleNotFoundError(
            "Analytics need DuckDB. Install the extra: `pip install 'versioned-deep-agents[duckdb]'`."
        )

    monkeypatch.setattr('pydantic_deep.store._store.importlib.import_module', refuse)
    result = invoke('sql', 'SELECT 1')
    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr == "Analytics need DuckDB. Install the extra: `pip install 'versioned-deep-agents[duckdb]'`.\n"


def test_gc_reports_removed_objects(invoke: Invoke, history: list[str]) -> None:
    result = invoke('gc', '--grace', '0')
    assert result.exit_code == 0
    assert result.stdout.startswith('Removed ')
    assert invoke('gc').stdout == 'Removed nothing. Marked 0 to be removed by a later call.\n'
    assert set(document(invoke('gc', '--json'))) == {'removed', 'condemned', 'freed_bytes'}


def test_summarized_turns_are_listed_with_their_prompts(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    (work / 'long.txt').write_text('some words\n' * 1_600)
    used = RequestUsage(input_tokens=30_000, output_tokens=10)
    reads = [call('read_file', path='/long.txt') for _ in range(3)]
    invoke('run', 'word ' * 3_900, model=ScriptedModel('One.', usage=used))
    invoke('run', 'At the beginning', '--continue', model=ScriptedModel('Facts: none.', 'Two.', usage=used))
    model = ScriptedModel(*reads, 'Facts: none.', 'Three.', usage=used)
    invoke('run', 'In the middle', '--continue', model=model)
    rows = document(invoke('log', '--json'))
    assert [(row['prompt'] or '')[:20] for row in rows if row['kind'] == 'turn'] == [
        'In the middle',
        'At the beginning',
        'word word word word ',
    ]
    assert [row['branch'] for row in rows if row['kind'] == 'turn'][-1] == 'main'
    assert rows[0]['branch'].startswith('main.')
    kept = ['read_file']  # the summary replaces the other calls
    assert [each['name'] for each in document(invoke('show', '--json'))['tool_calls']] == kept
    delete(tmp_path, rows[0]['parent_id'])
    details = document(invoke('show', '--json'))
    assert (details['prompt'], [each['name'] for each in details['tool_calls']]) == ('In the middle', kept)


def test_diff_names_the_revision_that_was_passed(invoke: Invoke) -> None:
    """The version before it is found by another revision, which the user has not written."""
    invoke('run', 'Go', model=ScriptedModel('Done.'))
    result = invoke('diff', 'HEAD~x')
    assert result.exit_code == 2
    assert result.stderr.startswith("'HEAD~x' names no version.")
