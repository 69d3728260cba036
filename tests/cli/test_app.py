"""Commands of the app: options, streams and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from pydantic_ai.exceptions import ModelConnectionError
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]
Steady = Callable[[str], str]

PLAN = [{'content': 'Write it', 'status': 'in_progress'}, {'content': 'Read it', 'status': 'pending'}]


def test_run_prints_the_answer_to_stdout_and_progress_to_stderr(invoke: Invoke, work: Path, steady: Steady) -> None:
    model = ScriptedModel(
        ['I plan.', call('write_todos', todos=PLAN)],
        call('write_file', path='/note.md', content='# One\n\ntwo\n'),
        call('read_file', path='/note.md'),
        call('read_file', path='/nothing.md'),
        '**Done.**',
    )
    result = invoke('run', 'Write a note', '--approvals=allow', model=model)
    assert result.exit_code == 0
    assert result.stdout == '**Done.**\n'
    assert steady(result.stderr) == snapshot("""\
given in .
I plan.
✓ write_todos  2 todos, 0 completed
  ▸ Write it
  ○ Read it
✓ write_file /note.md  Created /note.md: 3 lines, 11 bytes.
✓ read_file /note.md  3 lines
↻ read_file /nothing.md  /nothing.md does not exist. Similar: /note.md
created /note.md +3 -0
5 requests, 3 tool calls, 500 tokens in, 50 out, 0 s
version 01234567 in /tmp/state/pydantic-deep/agents.db
""")
    assert (work / 'note.md').read_text() == '# One\n\ntwo\n'


def test_agent_cannot_read_outside_its_directory(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    (tmp_path / 'secret.txt').write_text('secret')
    model = ScriptedModel(call('read_file', path='/../secret.txt'), call('read_file', path='/poem.txt'), 'Done.')
    invoke('run', 'Go', '--dir', str(work), model=model)
    returns = [part.model_response_str() for part in model.requests[-1].tool_returns]
    assert 'secret' not in returns[0].replace('/../secret.txt', '').replace('/secret.txt', '')
    assert 'rose' in returns[1]


def test_run_reads_the_task_from_stdin(invoke: Invoke) -> None:
    model = ScriptedModel('Hi.')
    assert invoke('run', '-', model=model, stdin='Say hi\n').stdout == 'Hi.\n'
    assert 'Say hi' in str(model.requests[0].messages)


@pytest.mark.parametrize(('task', 'stdin'), [('', ''), ('-', ' \n')])
def test_empty_task_is_usage_error(invoke: Invoke, task: str, stdin: str) -> None:
    result = invoke('run', task, model=ScriptedModel(), stdin=stdin)
    assert (result.exit_code, result.stdout) == (2, '')
    assert 'it is empty' in result.stderr


def test_missing_directory_is_usage_error(invoke: Invoke) -> None:
    assert invoke('run', 'Go', '--dir', 'nowhere', model=ScriptedModel()).exit_code == 2


@pytest.mark.parametrize('command', [('run', 'Go'), ('chat',)])
def test_missing_model_prints_one_sentence(invoke: Invoke, command: tuple[str, ...]) -> None:
    result = invoke(*command)
    assert (result.exit_code, result.stdout) == (3, '')
    assert result.stderr.startswith('No model to use. Set ANTHROPIC_API_KEY')
    assert result.stderr.count('\n') == 1


def test_json_events_end_with_an_end_event_without_a_model(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--json')
    error, end = map(json.loads, result.stdout.splitlines())
    assert (result.exit_code, error['kind'], end['type'], end['status']) == (3, 'unusable_model', 'end', 'failed')


def test_json_mode_prints_only_events_to_stdout(invoke: Invoke) -> None:
    model = ScriptedModel(call('ls'), 'Done.')
    result = invoke('run', 'Go', '--json', model=model)
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert result.stderr == ''
    assert [event['type'] for event in events] == snapshot(
        ['start', 'usage', 'tool_call', 'tool_result', 'text', 'usage', 'end']
    )
    assert len(events[-1].pop('version_id')) == 36
    assert events[-1]['workspace'].pop('store').endswith('/state/pydantic-deep/agents.db')
    assert events[-1] == snapshot(
        {
            'type': 'end',
            'finish_reason': 'stop',
            'status': 'complete',
            'output': 'Done.',
            'usage': {
                'type': 'usage',
                'requests': 2,
                'tool_calls': 1,
                'cache_read_tokens': 0,
                'cache_write_tokens': 0,
                'input_tokens': 200,
                'output_tokens': 20,
            },
            'files': [],
            'todos': [],
            'seconds': 0.0,
            'workspace': {'is_in_directory': True, 'has_files': True, 'has_all_changes': True},
        }
    )


def test_unreachable_provider_exits_with_1(invoke: Invoke) -> None:
    result = invoke('run', 'Go', model=ScriptedModel(*[ModelConnectionError('m', 'Connection error.')] * 3))
    assert (result.exit_code, result.stdout) == (1, '')
    assert result.stderr.endswith(
        "'m' cannot be reached: Connection error. Check the network, and the base URL if you set one.\n"
    )


def test_exhausted_budget_exits_with_4(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--max-tokens', '1', model=ScriptedModel(call('ls'), 'Done.'))
    assert (result.exit_code, result.stdout) == (4, '')
    assert result.stderr.endswith(
        'The budget of 1 tokens for a turn is used up: 110 tokens used. Continue with `pydantic-deep run --continue`, or '
        'in a chat with another prompt; --max-tokens raises it.\n'
    )


def test_model_text_and_file_names_are_escaped_on_stderr(invoke: Invoke) -> None:
    model = ScriptedModel(
        ['\x1b]0;owned\x07', call('write_file', path='/\u202egnp.exe', content='x')],
        call('write_todos', todos=[{'content': 'a\x1b[2Jb', 'status': 'pending'}]),
        'Done.',
    )
    result = invoke('run', 'Go', model=model)
    assert result.exit_code == 0
    assert not set('\x1b\x07\u202e') & set(result.stderr)


@pytest.mark.parametrize(('command', 'stdin'), [(('run', 'Go'), ''), (('chat',), 'Go\n')])
def test_answer_is_escaped_on_stdout(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], stdin: str
) -> None:
    monkeypatch.setenv('FORCE_COLOR', '1')  # with it, Rich treats any stream as a terminal
    result = invoke(*command, model=ScriptedModel('**Hi** \x1b]0;owned\x07'), stdin=stdin)
    assert '\x1b[1mHi\x1b[0m \\x1b]0;owned\\x07' in result.stdout
    assert not set('\x07') & set(result.stdout)


def test_help_wraps_paragraphs_and_not_their_lines(invoke: Invoke) -> None:
    lines = [line.strip() for line in invoke('run', '--help').stdout.splitlines()]
    start = next(number for number, line in enumerate(lines) if line.startswith('The turn ends with a version'))
    paragraph = lines[start : lines.index('', start)]
    assert max(map(len, paragraph)) - min(map(len, paragraph[:-1])) < 20


@pytest.mark.parametrize('command', [(), ('run',), ('chat',), ('models',)])
def test_help_describes_usage_and_exit_codes(invoke: Invoke, command: tuple[str, ...]) -> None:
    text = ' '.join(invoke(*command, '--help').stdout.split())
    assert 'Usage: ' in text
    if command != ('models',):
        assert 'Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 no usable model' in text


def test_help_explains_local_models(invoke: Invoke) -> None:
    assert 'OPENAI_BASE_URL=http://127.0.0.1:8080/v1' in invoke('--help').stdout


def test_version_option_prints_the_version(invoke: Invoke) -> None:
    assert invoke('--version').stdout.startswith('pydantic-deep 0.')
