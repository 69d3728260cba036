"""The `log`, `show`, `diff`, `replay`, `sql` and `gc` commands."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import anyio
import pytest
from inline_snapshot import snapshot
from pydantic_ai.usage import RequestUsage
from rich.console import Console
from typer.testing import Result

from pydantic_deep.cli.render._log import describe_age, print_log
from pydantic_deep.cli.render._query_table import render_table
from pydantic_deep.store import open_store
from pydantic_deep.store.analytics import Table
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.views import Version

Invoke = Callable[..., Result]
MakeTerminal = Callable[..., Any]
Steady = Callable[[str], str]

PLAN = [{'content': 'Write it', 'status': 'completed'}]
EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
UNDO = call('edit_file', path='/poem.txt', old_string='lily', new_string='violet')
WRITE = call('write_file', path='/new.txt', content='new\n')
TASK = call('task', subagent='general-purpose', description='Look at it')


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def delete(tmp_path: Path, id: str) -> None:
    """Delete a version with the API of the store."""

    async def do() -> None:
        async with open_store(f'sqlite:///{tmp_path}/state/pydantic-deep/agents.db') as store:
            await store.delete(id)

    anyio.run(do)


@pytest.fixture
def history(invoke: Invoke) -> list[str]:
    """Ids: the root, a turn that edits, a turn on a copy that writes, a turn in the directory, a pending turn."""
    invoke('run', 'Fix the poem\nplease', '--approvals=allow', model=ScriptedModel(EDIT, 'Fixed.'))
    write = ScriptedModel(call('write_todos', todos=PLAN), WRITE, 'Wrote.')
    invoke('branch', 'side', 'Write \x1b[31mnew', '--from', 'HEAD~', '--approvals=allow', model=write)
    invoke('run', 'Look', '--continue', model=ScriptedModel(TASK, 'I looked.', 'Looked.'))
    invoke('run', 'Wait', '--continue', '--approvals=pause', model=ScriptedModel(UNDO))
    rows = document(invoke('log', '--json'))
    return [row['id'] for row in reversed(rows)]


def test_log_draws_the_version_graph_of_the_directory(invoke: Invoke, history: list[str]) -> None:
    result = invoke('log')
    assert result.exit_code == 0
    text = result.stdout
    for number, id in enumerate(history):
        text = text.replace(id[-8:], f'version{number}')
    assert text == snapshot("""\
◌ version4 (HEAD, main) pause pending now  Wait
● version3 now  Look
│ ● version2 (side) now  Write \\x1b[31mnew  1 file
● │ version1 now  Fix the poem  1 file
├─╯
○ version0 root now  a conversation begins
""")


def test_log_shows_steps_below_their_turn(invoke: Invoke, history: list[str]) -> None:
    lines = invoke('log', '--steps', HEAD := 'HEAD').stdout.splitlines()
    assert HEAD in lines[0]
    lines = invoke('log', '--steps', '--limit', '3').stdout.splitlines()
    assert [line[0] for line in lines] == ['◌', '●', '·']
    assert lines[2].endswith('now  calls task')


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


def test_log_without_versions_prints_a_message(invoke: Invoke, history: list[str], tmp_path: Path) -> None:
    result = invoke('log', '--dir', str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, '')
    assert result.stderr == 'There is no version of this directory. --all shows those of other directories.\n'


def test_log_truncates_prompts_to_the_terminal_width(invoke: Invoke, history: list[str]) -> None:
    rows = [Version(**row) for row in document(invoke('log', '--json'))]
    screen = Console(file=StringIO(), width=40, force_terminal=True, color_system=None)
    print_log(screen, [row for row in rows if row.kind == 'turn'], {})
    assert isinstance(screen.file, StringIO)
    lines = screen.file.getvalue().splitlines()
    assert [len(line) <= 40 for line in lines] == [True] * len(lines)
    assert lines[1].endswith('…  1 file')


def test_log_in_a_pipe_prints_one_untruncated_line_per_version(invoke: Invoke) -> None:
    words = 'https://example.com/a/very/long/address/that/does/not/fit/in/eighty/columns/of/a/terminal and then more'
    invoke('run', words, model=ScriptedModel('Done.'))
    lines = invoke('log').stdout.splitlines()
    assert (len(lines), lines[0].endswith(f'now  {words}')) == (2, True)


@pytest.mark.parametrize(('seconds', 'age'), [(0, 'now'), (59, 'now'), (61, '1m'), (7_300, '2h'), (200_000, '2d')])
def test_ages_use_one_unit(seconds: int, age: str) -> None:
    now = datetime(2026, 1, 5, tzinfo=UTC)
    assert describe_age(now - timedelta(seconds=seconds), now) == age


def test_show_prints_calls_answer_files_todos_and_requests(invoke: Invoke, history: list[str]) -> None:
    text = re.sub(r'\d+\.\d s', '0.0 s', invoke('show', history[2][-8:]).stdout)
    assert text.startswith(f'version {history[2]}\n')
    assert '\nbranch       side\n' in text
    assert 'Write \\x1b[31mnew' in text
    assert text[text.index('\nCalls') : text.index(' so far')] == snapshot("""\

Calls
✓ write_todos  1 todo, 1 completed
✓ write_file /new.txt  Created /new.txt: 1 line, 4 bytes.

Answer
Wrote.

Files
+ /new.txt  +1 -0

Todos
  ● Write it

Requests
1 scripted  100 tokens in, 10 out, 0.0 s
2 scripted  100 tokens in, 10 out, 0.0 s
3 scripted  100 tokens in, 10 out, 0.0 s
3 requests, 2 tool calls, 300 tokens in, 30 out\
""")


def test_show_of_a_root_has_neither_parent_nor_prompt(invoke: Invoke, history: list[str]) -> None:
    lines = invoke('show', history[0]).stdout.splitlines()
    assert lines[1].startswith('made         root, complete, ')
    assert lines[2].startswith('conversation ')
    assert lines[-1] == '0 requests, 0 tool calls, 0 tokens in, 0 out so far'


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


def test_show_lists_subagents(invoke: Invoke, history: list[str]) -> None:
    (subagent,) = document(invoke('show', history[3], '--json'))['subagents']
    assert (subagent['subagent'], subagent['state'], subagent['intent']) == (
        'general-purpose',
        'complete',
        'Look at it',
    )
    text = invoke('show', history[3]).stdout
    assert f'general-purpose {subagent["version_id"][-8:]} complete  Look at it' in text


def test_show_of_a_resumed_turn_contains_the_whole_turn(invoke: Invoke, history: list[str]) -> None:
    invoke('resume', '--approvals=deny', model=ScriptedModel('Well then.'))
    details = document(invoke('show', '--json'))
    assert [(each['name'], each['outcome']) for each in details['tool_calls']] == [('edit_file', 'denied')]
    assert (details['output'], details['prompt']) == ('Well then.', 'Wait')


def test_show_prints_the_error_of_a_failed_turn(invoke: Invoke) -> None:
    invoke('run', 'Go', '--max-tokens', '1', model=ScriptedModel(call('ls')))
    details = document(invoke('show', '--json'))
    assert details['error'].startswith('BudgetExceededError: ')
    assert '\nError\nBudgetExceededError: ' in invoke('show').stdout
    assert ' failed now  Go' in invoke('log').stdout


@pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed')
def test_exit_code_of_a_command_is_stored_and_shown(invoke: Invoke) -> None:
    model = ScriptedModel(call('execute', command='echo no; exit 3'), 'Done.')
    result = invoke('run', 'Go', '--sandbox', '--approvals=allow', model=model)
    assert '✗ execute echo no; exit 3  exit code 3: no\n' in result.stderr
    (made,) = document(invoke('show', '--json'))['tool_calls']
    assert (made['outcome'], made['exit_code']) == ('success', 3)
    assert '✗ execute echo no; exit 3  exit code 3: no\n' in invoke('show').stdout
    assert invoke('replay', model=ScriptedModel()).exit_code == 0


def test_diff_compares_with_the_parent(invoke: Invoke, history: list[str]) -> None:
    result = invoke('diff', history[1])
    assert result.stdout.startswith(f'{history[0]} → {history[1]}\n')
    assert result.stdout.partition('\n')[2] == snapshot("""\

Messages
+ user-prompt: Fix the poem
+   please
+ system-prompt: Files:
+   poem.txt
+ tool-call edit_file: {"path": "/poem.txt", "old_string": "violet", "new_string": "lily"}
+ tool-return edit_file: Replaced 1 match at line 2.
+ text: Fixed.

~ /poem.txt  +1 -1
--- a/poem.txt
+++ b/poem.txt
@@ -1,2 +1,2 @@
 rose
-violet
+lily
""")


def test_diff_truncates_long_messages_and_reports_the_omitted_length(invoke: Invoke) -> None:
    long = '\n'.join(f'line {number}' for number in range(12))
    model = ScriptedModel(call('write_file', path='/a', content='x' * 1000), f'Good.\n\n{long}')
    invoke('run', 'Fix the poem,\n  please\x1b\n', '--approvals=allow', model=model)
    text = invoke('diff').stdout.partition('\n\n+ /a')[0].partition('\n')[2]
    assert re.sub('x{9,}', lambda found: f'x*{len(found[0])}', text) == snapshot("""\

Messages
+ user-prompt: Fix the poem,
+     please\\x1b
+ system-prompt: Files:
+   poem.txt
+ tool-call write_file: {"path": "/a", "content": "x*751
+   … 251 more characters
+ tool-return write_file: Created /a: 1 line, 1.0 KB.
+ text: Good.
+
+   line 0
+   line 1
+   line 2
+   line 3
+   line 4
+   line 5
+   line 6
+   line 7
+   … 4 more lines\
""")


def test_diff_of_two_versions_lists_items_of_only_one(invoke: Invoke, history: list[str]) -> None:
    text = invoke('diff', history[2], history[1]).stdout
    assert '\n- tool-call write_todos: ' in text
    assert '\nTodos\n- Write it (completed)\n' in text
    assert '\n- /new.txt  +0 -1\n' in text
    difference = document(invoke('diff', history[2], history[1], '--json'))
    assert (difference['messages_common'], len(difference['messages_removed'])) == (0, 6)
    used = {name: amount for name, amount in difference['usage'].items() if amount}
    assert used == {'requests': -1, 'tool_calls': -1, 'input_tokens': -100, 'output_tokens': -10}


def test_diff_of_equal_versions_prints_a_message(invoke: Invoke, history: list[str]) -> None:
    assert invoke('diff', 'HEAD', 'HEAD').stdout.endswith('The messages and the files are the same.\n')


def test_diff_shows_sizes_of_binary_files(invoke: Invoke, work: Path) -> None:
    invoke('run', 'One', model=ScriptedModel('First.'))
    (work / 'poem.txt').write_bytes(b'\0\xff')
    (work / 'image').write_bytes(b'\0\1\xff')
    invoke('run', 'Two', '--continue', model=ScriptedModel('Second.'))
    text = invoke('diff', 'HEAD~').stdout
    assert '\n+ /image  3 bytes\n' in text
    assert '\n~ /poem.txt  12 bytes → 2 bytes\n' in text
    assert 'edited without the agent  2 files' in invoke('log').stdout


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


def test_sql_serializes_every_value_type(invoke: Invoke, history: list[str]) -> None:
    query = (
        "SELECT 'a\x1bb' AS text, TIMESTAMP '2026-01-02 03:04:05' AS moment, DATE '2026-01-02' AS day, "
        "{'a': [1, 2]} AS nested, '\\x01'::BLOB AS bytes, 1.5::DECIMAL(3,1) AS number, true AS yes"
    )
    assert document(invoke('sql', query, '--json')) == snapshot(
        [
            {
                'text': 'a\x1bb',
                'moment': '2026-01-02T03:04:05',
                'day': '2026-01-02',
                'nested': {'a': [1, 2]},
                'bytes': '01',
                'number': '1.5',
                'yes': True,
            }
        ]
    )
    assert invoke('sql', query, '--csv').stdout.splitlines()[1].endswith(',"{""a"": [1, 2]}",01,1.5,True')
    shown = invoke('sql', query).stdout
    assert 'a\\x1bb  2026-01-02 03:04:05' in shown
    assert shown.endswith('1 row\n')


def test_table_folds_long_cells_on_a_terminal() -> None:
    screen = Console(file=StringIO(), width=20, force_terminal=True, color_system=None)
    render_table(screen, Table(columns=('name', 'n'), rows=(('x' * 40, 1),)))
    assert isinstance(screen.file, StringIO)
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 20
    assert sum(line.count('x') for line in lines) == 40


def test_sql_row_count_is_on_one_line(invoke: Invoke, history: list[str]) -> None:
    assert invoke('sql', 'SELECT 1 AS a').stdout == 'a\n1\n1 row\n'
    assert invoke('sql', 'SELECT 1 AS a, 2 AS b WHERE false').stdout == 'a  b\n0 rows\n'


def test_empty_table_on_a_terminal_shows_all_column_names() -> None:
    screen = Console(file=StringIO(), width=20, force_terminal=True, color_system=None)
    render_table(screen, Table(columns=('number', 'parent_number', 'conversation'), rows=()))
    assert isinstance(screen.file, StringIO)
    assert screen.file.getvalue().split() == ['number', 'parent_number', 'conversation', '0', 'rows']


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
    assert invoke('gc').stdout == 'Removed nothing: 0 bytes. Marked 0.\n'
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
