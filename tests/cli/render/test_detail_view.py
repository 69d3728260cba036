"""One version, or the difference between two, as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from inline_snapshot import snapshot
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel, call
from tests.cli.conftest import document

Invoke = Callable[..., Result]


def test_show_prints_calls_answer_files_todos_and_requests(invoke: Invoke, history: list[str]) -> None:
    text = re.sub(r'\d+\.\d s', '0.0 s', invoke('show', history[2][-8:]).stdout)
    assert text.startswith(f'version {history[2]}\n')
    assert '\nbranch       side\n' in text
    assert 'Write \\x1b[31mnew' in text
    assert text[text.index('\nCalls') : text.index(' so far')] == snapshot("""\

Calls
✓ write_todos
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


def test_show_lists_subagents(invoke: Invoke, history: list[str]) -> None:
    (subagent,) = document(invoke('show', history[3], '--json'))['subagents']
    assert (subagent['subagent'], subagent['state'], subagent['intent']) == (
        'general-purpose',
        'complete',
        'Look at it',
    )
    text = invoke('show', history[3]).stdout
    assert f'general-purpose {subagent["version_id"][-8:]} complete  Look at it' in text


def test_show_prints_the_error_of_a_failed_turn(invoke: Invoke) -> None:
    invoke('run', 'Go', '--max-tokens', '1', model=ScriptedModel(call('ls')))
    details = document(invoke('show', '--json'))
    assert details['error'].startswith('BudgetExceededError: ')
    assert '\nError\nBudgetExceededError: ' in invoke('show').stdout
    assert ' failed now  Go' in invoke('log').stdout


def test_diff_compares_with_the_parent(invoke: Invoke, history: list[str]) -> None:
    result = invoke('diff', history[1])
    assert result.stdout.startswith(f'{history[0][-8:]} → {history[1][-8:]}\n')
    assert result.stdout.partition('\n')[2] == snapshot("""\

Messages
+ system-prompt: Files:
+   poem.txt
+ user-prompt: Fix the poem
+   please
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
+ system-prompt: Files:
+   poem.txt
+ user-prompt: Fix the poem,
+     please\\x1b
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
