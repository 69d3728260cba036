"""A version that waits, and goes on in another process: here, another run of the command."""

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


def told(messages: list[ModelMessage], info: AgentInfo) -> str:
    """Answer with what the model was told last."""
    return '\n'.join(
        f'{part.tool_name}: {part.content}' for part in messages[-1].parts if part.part_kind == 'tool-return'
    )


def events(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def paused(invoke: Invoke) -> str:
    """A version that waits for two calls, one of a subagent."""
    model = ScriptedModel(call('write_todos', todos=PLAN), [WRITE, TASK], EDIT)
    result = invoke('run', 'Write and fix', '--approvals=pause', '--json', model=model)
    assert result.exit_code == 5
    return events(result)[-1]['version_id']


def test_a_pause_says_what_waits_and_how_to_answer(invoke: Invoke, work: Path, steady: Steady) -> None:
    result = invoke('run', 'Go', '--approvals=pause', model=ScriptedModel([WRITE, EDIT]))
    assert (result.exit_code, result.stdout) == (5, '')
    assert steady(result.stderr) == snapshot("""\
given in .
· write_file /new.txt
· edit_file /poem.txt
1 request, 0 tool calls, 100 tokens in, 10 out, 0 s
version 01234567 in /tmp/state/pydantic-deep/agents.db
Paused: 2 calls need approval. Answer with: pydantic-deep resume 01234567
""")
    assert not (work / 'new.txt').exists()


def test_the_last_events_of_a_pause_are_all_that_is_pending_and_the_end(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--approvals=pause', '--json', model=ScriptedModel(WRITE))
    *_, asked, last = [event for event in events(result) if event['type'] != 'usage']
    assert (last['status'], len(last['version_id']), asked['type']) == ('awaiting_approval', 36, 'approval_required')
    assert [approval['tool'] for approval in asked['approvals']] == ['write_file']


def test_it_goes_on_where_it_was(
    invoke: Invoke, make_terminal: MakeTerminal, paused: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir('/')
    terminal = make_terminal('y', 'y')
    model = ScriptedModel('Fixed.', told)
    result = invoke('resume', paused, model=model, terminal=terminal)
    assert (result.exit_code, result.stdout) == (0, 'write_file: Created /new.txt: 1 line, 4 bytes.\ntask: Fixed.\n')
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'
    assert (work / 'new.txt').read_text() == 'new\n'
    assert '  subagent: general-purpose\n' in terminal.shown
    assert 'Write and fix' in str(model.requests[1].messages)


def test_without_a_name_it_is_the_newest_that_waits(invoke: Invoke, paused: str, work: Path) -> None:
    invoke('run', 'Another', model=ScriptedModel('Done.'))
    result = invoke('resume', '--approvals=allow', model=ScriptedModel('Fixed.', 'Done.'))
    assert (result.exit_code, result.stdout) == (0, 'Done.\n')
    assert (work / 'new.txt').exists()
    again = invoke('resume', '--approvals=allow', model=ScriptedModel())
    assert (again.exit_code, again.stderr) == (2, f'No version of {work} has pending approvals.\n')


def test_usage_and_todos_go_on(invoke: Invoke, paused: str) -> None:
    result = invoke('resume', paused, '--approvals=allow', '--json', model=ScriptedModel('Fixed.', 'Done.'))
    first, *_, last = events(result)
    assert (first['prompt'], last['status']) == ('Write and fix', 'complete')
    assert [last['usage'][name] for name in ('requests', 'tool_calls', 'input_tokens')] == [5, 4, 500]
    assert last['todos'] == PLAN


def test_the_budget_goes_on_and_can_be_raised(invoke: Invoke) -> None:
    small = ('--approvals=pause', '--max-tokens', '150')
    invoke('run', 'Go', *small, model=ScriptedModel(WRITE))
    result = invoke('resume', '--approvals=deny', model=ScriptedModel(call('ls')))
    assert result.exit_code == 4
    assert 'The budget of 150 tokens for a turn is used up: 220 tokens used.' in result.stderr
    invoke('run', 'Go', *small, model=ScriptedModel(WRITE))
    result = invoke('resume', '--approvals=deny', '--max-tokens', '300', model=ScriptedModel('Done.'))
    assert (result.exit_code, result.stdout) == (0, 'Done.\n')


def test_the_budget_is_that_of_a_turn_and_not_of_the_turns_before(invoke: Invoke) -> None:
    small = ('--approvals=pause', '--max-tokens', '250')
    invoke('run', 'One', *small, model=ScriptedModel('First.'))
    invoke('run', 'Two', '--continue', *small, model=ScriptedModel(WRITE))
    result = invoke('resume', '--approvals=deny', '--json', model=ScriptedModel('Done.'))
    assert events(result)[-1]['usage']['requests'] == 2
    assert result.exit_code == 0


def test_it_can_wait_again(invoke: Invoke, make_terminal: MakeTerminal, work: Path) -> None:
    invoke('run', 'Go', '--approvals=pause', model=ScriptedModel(WRITE))
    result = invoke('resume', '--approvals=pause', model=ScriptedModel(EDIT), terminal=make_terminal('y'))
    assert result.exit_code == 5
    assert (work / 'new.txt').exists()
    result = invoke('resume', model=ScriptedModel('Done.'), terminal=make_terminal('y'))
    assert (result.exit_code, result.stdout) == (0, 'Done.\n')
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'


def test_another_model_can_go_on(invoke: Invoke, paused: str) -> None:
    result = invoke('resume', paused, '--approvals=deny', '--model', 'nobody')
    assert result.exit_code == 3
    assert result.stderr.startswith("'nobody' cannot be used.")
    assert invoke('resume', paused, '--approvals=deny', model=ScriptedModel('No.', 'Done.')).exit_code == 0


def test_who_stops_at_a_question_has_answered_nothing(invoke: Invoke, make_terminal: MakeTerminal, paused: str) -> None:
    result = invoke('resume', paused, model=ScriptedModel(), terminal=make_terminal('y', KeyboardInterrupt()))
    assert result.exit_code == 130
    resume = f'answer with `pydantic-deep resume {paused[-8:]}`, or continue in a chat with another prompt.'
    assert result.stderr.splitlines()[-1].endswith(f'The version {paused[-8:]} is still pending: {resume}')
    assert invoke('resume', paused, '--approvals=deny', model=ScriptedModel('No.', 'Done.')).exit_code == 0


@pytest.mark.parametrize('mode', ['ask', 'pause'])
def test_without_a_terminal_nothing_is_answered(invoke: Invoke, paused: str, mode: str) -> None:
    result = invoke('resume', paused, f'--approvals={mode}', model=ScriptedModel())
    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr.startswith('There is no terminal to ask at.')


def test_a_turn_that_fails_after_the_answers_says_what_may_have_run_and_goes_on_from_there(
    invoke: Invoke, paused: str, work: Path
) -> None:
    model = ScriptedModel(ModelConnectionError('m', 'No.'), ModelConnectionError('m', 'No.'))
    result = invoke('resume', paused, '--approvals=allow', model=model)
    assert result.exit_code == 1
    assert result.stderr.endswith('Answered calls may have run. Continue with: pydantic-deep run --continue\n')
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


def test_a_turn_that_fails_before_anything_is_asked_says_that_it_waits_on(invoke: Invoke, paused: str) -> None:
    result = invoke('resume', paused, '--approvals=allow', '--max-tokens', '1', model=ScriptedModel())
    assert result.exit_code == 4
    assert result.stderr.endswith(f'No answers given; {paused[-8:]} is still pending.\n')


def test_who_stops_at_a_later_question_is_not_told_that_everything_may_have_run(
    invoke: Invoke, make_terminal: MakeTerminal, paused: str
) -> None:
    model = ScriptedModel('Fixed.', WRITE)
    result = invoke('resume', paused, model=model, terminal=make_terminal('y', 'y', KeyboardInterrupt()))
    assert result.exit_code == 130
    assert 'may have run' not in result.stderr
    newest = json.loads(invoke('log', '--json').stdout)[0]['id'][-8:]
    assert f'The version {newest} is still pending' in result.stderr


def test_a_version_that_waits_is_no_place_to_go_on_from(invoke: Invoke, paused: str) -> None:
    result = invoke('run', 'Else', '--continue', model=ScriptedModel())
    short = paused[-8:]
    assert (result.exit_code, result.stderr) == (
        2,
        f'The version {short} has pending approvals. Answer them with `pydantic-deep resume {short}`, or continue '
        f'before it with `--from {short}~`.\n',
    )
    assert invoke('run', 'Else', '--from', f'{short}~', model=ScriptedModel('Done.')).exit_code == 0


def test_a_version_that_waits_for_nothing_is_said(invoke: Invoke) -> None:
    invoke('run', 'Go', model=ScriptedModel('Done.'))
    result = invoke('resume', 'HEAD', model=ScriptedModel())
    assert result.exit_code == 2
    assert result.stderr.endswith(' has no pending approvals: it is complete.\n')


def test_a_turn_that_is_not_kept_cannot_wait(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--approvals=pause', '--no-store', model=ScriptedModel())
    assert result.exit_code == 2
    assert 'a paused turn has to be stored.' in ' '.join(result.stderr.replace('│', '').split())


def test_a_directory_that_is_gone_is_said_and_nothing_is_lost(invoke: Invoke, paused: str, work: Path) -> None:
    work.rename(work.with_name('elsewhere'))
    result = invoke('resume', paused, '--approvals=allow', model=ScriptedModel())
    assert result.exit_code == 2
    work.with_name('elsewhere').rename(work)
    assert invoke('resume', paused, '--approvals=allow', model=ScriptedModel('Fixed.', 'Done.')).exit_code == 0
