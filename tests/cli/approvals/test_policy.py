"""The modes of `--approvals`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]
MakeTerminal = Callable[..., Any]

EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
WRITE = call('write_file', path='/new.txt', content='new\n')


def echo_results(messages: list[ModelMessage], info: AgentInfo) -> str:
    """Answer with the last tool results."""
    return '\n'.join(
        f'{part.tool_name}: {part.content}' for part in messages[-1].parts if part.part_kind == 'tool-return'
    )


def events(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_allow_mode_never_prompts(invoke: Invoke, make_terminal: MakeTerminal, work: Path) -> None:
    result = invoke(
        'run', 'Go', '--approvals=allow', '--json', model=ScriptedModel(WRITE, 'Done.'), terminal=make_terminal()
    )
    assert (work / 'new.txt').read_text() == 'new\n'
    assert [event['type'] for event in events(result) if event['type'].startswith('approval')] == []


def test_deny_mode_denies_and_reports_the_option_as_decider(invoke: Invoke, work: Path) -> None:
    result = invoke('run', 'Go', '--approvals=deny', '--json', model=ScriptedModel(WRITE, echo_results))
    assert result.exit_code == 0
    (answer,) = [event for event in events(result) if event['type'] == 'approval_answer']
    assert answer == snapshot(
        {
            'type': 'approval_answer',
            'id': 'call-1',
            'decision': 'deny',
            'by': 'option',
            'reason': 'Nobody lets this call run: approvals are switched off. Go on without it.',
            'args': None,
            'answered_by': None,
        }
    )
    assert events(result)[-1]['output'] == f'write_file: {answer["reason"]}'
    assert not (work / 'new.txt').exists()


def test_calls_are_denied_without_a_terminal_with_one_notice(invoke: Invoke, work: Path) -> None:
    result = invoke('run', 'Go', model=ScriptedModel(WRITE, EDIT, echo_results))
    assert (result.exit_code, work.joinpath('new.txt').exists()) == (0, False)
    assert result.stderr.count('There is no terminal to ask at') == 1
    assert '--approvals=allow' in result.stderr
    assert result.stdout.startswith('edit_file: Nobody can be asked for approval here.')


def test_json_output_prints_the_notice_to_stderr(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--json', model=ScriptedModel(WRITE, EDIT, 'Done.'))
    assert result.stderr.count('\n') == 1
    assert result.stderr.startswith('There is no terminal to ask at')


@pytest.mark.parametrize('command', ['run', 'chat'])
def test_unknown_approval_mode_is_usage_error(invoke: Invoke, command: str) -> None:
    task = ['Go'] if command == 'run' else []
    result = invoke(command, *task, '--approvals=never', model=ScriptedModel())
    assert result.exit_code == 2
    assert "Invalid value for '--approvals': 'never' is not one of ask, deny," in result.stderr


@pytest.mark.parametrize('mode', ['pause', 'perhaps'])
def test_chat_refuses_pause_mode(invoke: Invoke, mode: str) -> None:
    assert invoke('chat', f'--approvals={mode}', model=ScriptedModel()).exit_code == 2
