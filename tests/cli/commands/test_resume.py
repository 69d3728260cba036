"""The `resume` command: answer pending approvals and continue the turn in another process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai.exceptions import ModelConnectionError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]
MakeTerminal = Callable[..., Any]
Steady = Callable[[str], str]

PLAN = [{'content': 'Write it', 'status': 'in_progress'}]
EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
WRITE = call('write_file', path='/new.txt', content='new\n')
TASK = call('task', subagent='general-purpose', description='Fix it')


def echo_results(messages: list[ModelMessage], info: AgentInfo) -> str:
    """Answer with the last tool results."""
    return '\n'.join(
        f'{part.tool_name}: {part.content}' for part in messages[-1].parts if part.part_kind == 'tool-return'
    )


def events(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def paused(invoke: Invoke) -> str:
    """The id of a version with two pending calls, one of them in a subagent."""
    model = ScriptedModel(call('write_todos', todos=PLAN), [WRITE, TASK], EDIT)
    result = invoke('run', 'Write and fix', '--approvals=pause', '--json', model=model)
    assert result.exit_code == 5
    return events(result)[-1]['version_id']


def test_pause_lists_pending_calls_and_the_resume_command(invoke: Invoke, work: Path, steady: Steady) -> None:
    result = invoke('run', 'Go', '--approvals=pause', model=ScriptedModel([WRITE, EDIT]))
    assert (result.exit_code, result.stdout) == (5, '')
    assert steady(result.stderr) == snapshot("""\
given in /tmp/work
· write_file /new.txt
· edit_file /poem.txt
1 request, 0 tool calls, 100 tokens in, 10 out, 0 s
version 01234567 in /tmp/state/pydantic-deep/agents.db
Paused: 2 calls need your answer. Answer with: pydantic-deep resume 01234567
""")
    assert not (work / 'new.txt').exists()


def test_json_events_of_a_pause_end_with_approval_required_and_end(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--approvals=pause', '--json', model=ScriptedModel(WRITE))
    *_, required, last = [event for event in events(result) if event['type'] != 'usage']
    assert (last['status'], len(last['version_id']), required['type']) == ('awaiting_approval', 36, 'approval_required')
    assert [approval['tool'] for approval in required['approvals']] == ['write_file']


def test_resume_continues_in_the_original_directory(
    invoke: Invoke, make_terminal: MakeTerminal, paused: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir('/')
    terminal = make_terminal('y', 'y')
    model = ScriptedModel('Fixed.', echo_results)
    result = invoke('resume', paused, model=model, terminal=terminal)
    assert (result.exit_code, result.stdout) == (0, 'write_file: Created /new.txt: 1 line, 4 bytes.\ntask: Fixed.\n')
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'
    assert (work / 'new.txt').read_text() == 'new\n'
    assert '  subagent: general-purpose\n' in terminal.shown
    assert 'Write and fix' in str(model.requests[1].messages)


def test_resume_defaults_to_the_newest_pending_version(invoke: Invoke, paused: str, work: Path) -> None:
    invoke('run', 'Another', model=ScriptedModel('Done.'))
    result = invoke('resume', '--approvals=allow', model=ScriptedModel('Fixed.', 'Done.'))
    assert (result.exit_code, result.stdout) == (0, 'Done.\n')
    assert (work / 'new.txt').exists()
    again = invoke('resume', '--approvals=allow', model=ScriptedModel())
    assert (again.exit_code, again.stderr) == (2, f'No version of {work} has pending approvals.\n')


def test_resume_continues_usage_and_todos(invoke: Invoke, paused: str) -> None:
    result = invoke('resume', paused, '--approvals=allow', '--json', model=ScriptedModel('Fixed.', 'Done.'))
    first, *_, last = events(result)
    assert (first['prompt'], last['status']) == ('Write and fix', 'complete')
    assert [last['usage'][name] for name in ('requests', 'tool_calls', 'input_tokens')] == [5, 4, 500]
    assert last['todos'] == PLAN


def test_resumed_turn_can_pause_again(invoke: Invoke, make_terminal: MakeTerminal, work: Path) -> None:
    invoke('run', 'Go', '--approvals=pause', model=ScriptedModel(WRITE))
    result = invoke('resume', '--approvals=pause', model=ScriptedModel(EDIT), terminal=make_terminal('y'))
    assert result.exit_code == 5
    assert (work / 'new.txt').exists()
    result = invoke('resume', model=ScriptedModel('Done.'), terminal=make_terminal('y'))
    assert (result.exit_code, result.stdout) == (0, 'Done.\n')
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'


def test_resume_with_another_model(invoke: Invoke, paused: str) -> None:
    result = invoke('resume', paused, '--approvals=deny', '--model', 'nobody')
    assert result.exit_code == 3
    assert result.stderr.startswith("'nobody' cannot be used.")
    assert invoke('resume', paused, '--approvals=deny', model=ScriptedModel('No.', 'Done.')).exit_code == 0


def test_interrupt_during_resume_discards_all_answers(invoke: Invoke, make_terminal: MakeTerminal, paused: str) -> None:
    result = invoke('resume', paused, model=ScriptedModel(), terminal=make_terminal('y', KeyboardInterrupt()))
    assert result.exit_code == 130
    resume = f'answer with `pydantic-deep resume {paused[-8:]}`, in a chat with `/resume`, or continue in a chat with another prompt.'
    assert result.stderr.splitlines()[-1].endswith(f'The version {paused[-8:]} is still pending: {resume}')
    assert invoke('resume', paused, '--approvals=deny', model=ScriptedModel('No.', 'Done.')).exit_code == 0


@pytest.mark.parametrize('mode', ['ask', 'pause'])
def test_resume_without_a_terminal_records_no_answers(invoke: Invoke, paused: str, mode: str) -> None:
    result = invoke('resume', paused, f'--approvals={mode}', model=ScriptedModel())
    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr.startswith('There is no terminal to ask at.')


def test_failure_after_answers_reports_possibly_executed_calls(invoke: Invoke, paused: str, work: Path) -> None:
    model = ScriptedModel(ModelConnectionError('m', 'No.'), ModelConnectionError('m', 'No.'))
    result = invoke('resume', paused, '--approvals=allow', model=model)
    assert result.exit_code == 1
    assert result.stderr.endswith('Answered calls may have run. Continue with: pydantic-deep run --continue TASK\n')
    assert (work / 'new.txt').exists()
    again = invoke('resume', paused, '--approvals=allow', model=ScriptedModel())
    newest = json.loads(invoke('log', '--steps', '--json').stdout)[0]['id'][-8:]
    assert (again.exit_code, again.stderr) == (
        2,
        f'The version {paused[-8:]} was answered by option, and a run has resumed it. Show its progress with: '
        f'pydantic-deep show {newest}\n',
    )
    on = invoke('run', 'Go on', '--continue', model=ScriptedModel('Done.'))
    assert (on.exit_code, on.stdout) == (0, 'Done.\n')


def test_approvals_remain_pending_after_an_early_failure(invoke: Invoke, paused: str) -> None:
    result = invoke('resume', paused, '--approvals=allow', '--max-tokens', '1', model=ScriptedModel())
    assert result.exit_code == 4
    assert result.stderr.endswith(f'No answers given; {paused[-8:]} is still pending.\n')


def test_interrupt_at_a_later_prompt_does_not_warn_about_executed_calls(
    invoke: Invoke, make_terminal: MakeTerminal, paused: str
) -> None:
    model = ScriptedModel('Fixed.', WRITE)
    result = invoke('resume', paused, model=model, terminal=make_terminal('y', 'y', KeyboardInterrupt()))
    assert result.exit_code == 130
    assert 'may have run' not in result.stderr
    newest = json.loads(invoke('log', '--json').stdout)[0]['id'][-8:]
    assert f'The version {newest} is still pending' in result.stderr


def test_continue_from_a_pending_version_is_refused(invoke: Invoke, paused: str) -> None:
    result = invoke('run', 'Else', '--continue', model=ScriptedModel())
    short = paused[-8:]
    assert (result.exit_code, result.stderr) == (
        2,
        f'The version {short} has pending approvals. Answer them with `pydantic-deep resume {short}`, or continue '
        f'before it with `--from {short}~`.\n',
    )
    assert invoke('run', 'Else', '--from', f'{short}~', model=ScriptedModel('Done.')).exit_code == 0


def test_resume_of_a_complete_version_is_refused(invoke: Invoke) -> None:
    invoke('run', 'Go', model=ScriptedModel('Done.'))
    result = invoke('resume', 'HEAD', model=ScriptedModel())
    assert result.exit_code == 2
    assert result.stderr.endswith(' has no pending approvals: it is complete.\n')


def test_pause_mode_requires_a_store(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--approvals=pause', '--no-store', model=ScriptedModel())
    assert result.exit_code == 2
    assert 'a paused turn has to be stored.' in ' '.join(result.stderr.replace('│', '').split())


def test_resume_in_a_missing_directory_fails_and_can_be_repeated(invoke: Invoke, paused: str, work: Path) -> None:
    work.rename(work.with_name('elsewhere'))
    result = invoke('resume', paused, '--approvals=allow', model=ScriptedModel())
    assert result.exit_code == 2
    work.with_name('elsewhere').rename(work)
    assert invoke('resume', paused, '--approvals=allow', model=ScriptedModel('Fixed.', 'Done.')).exit_code == 0
