"""Options that several commands share, and their usage errors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel

Invoke = Callable[..., Result]


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


def test_json_events_end_with_an_end_event_without_a_model(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--json')
    error, end = map(json.loads, result.stdout.splitlines())
    assert (result.exit_code, error['kind'], end['type'], end['status']) == (3, 'unusable_model', 'end', 'failed')


@pytest.mark.parametrize(
    'command',
    [
        'run T', 'run T --model=X', 'chat --model X', 'branch T x', 'branch x T', 'log T', 'log --conversation=T', 'show T',
        'diff T', 'rewind T', 'checkout T', 'merge T HEAD', 'replay T', 'resume T', 'sql T', 'context T',
        'approvals list --agent T', 'approvals answer T --approve', 'approvals answer x --deny T', 'skills new T',
        'keys create T', 'keys create x --owner=T', 'store check --store T', 'models T',
    ],
)  # fmt: skip
def test_argument_with_invalid_utf8_is_usage_error(invoke: Invoke, command: str) -> None:
    """Invalid UTF-8 bytes in arguments become lone surrogates, which neither stores nor providers accept."""
    result = invoke(*command.replace('T', 'a\udcff').replace('X', 'a\udcff').split(' '))
    assert result.exit_code == 2
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert 'is not valid UTF-8' in result.stderr


def test_existing_path_may_have_any_name(invoke: Invoke, work: Path) -> None:
    """File names are bytes: the path of an existing file is accepted."""
    name = os.fsdecode(b'a\xff')
    (work / name).mkdir()
    result = invoke('skills', 'validate', name)
    assert 'is not valid UTF-8' not in result.stderr
    assert 'There is no SKILL.md' in result.stdout


@pytest.mark.parametrize(
    'command',
    [
        'approvals answer x --respond', 'approvals answer x --deny no --by', 'approvals list --agent', 'log --conversation',
        'log --search', 'evals record HEAD --name', 'webhooks list --owner', 'run Go --instructions',
        'webhooks add https://a.example --owner', 'keys create laptop --owner',
    ],
)  # fmt: skip
@pytest.mark.parametrize('text', ['', ' \t'])
def test_empty_text_of_an_option_is_usage_error(invoke: Invoke, command: str, text: str) -> None:
    """Such as that of an unset variable of a shell, which would be ignored or stored. A webhook of nobody gets nothing."""
    result = invoke(*command.split(' '), text)
    assert result.exit_code == 2
    assert 'it is empty. Pass a text.' in result.stderr
    assert command.split(' ')[-1] in result.stderr


@pytest.mark.parametrize('model', ['', ' '])
def test_blank_model_is_refused(invoke: Invoke, model: str) -> None:
    result = invoke('run', 'x', '--model', model)
    assert result.exit_code == 3
    assert f'--model is {model!r}. Name a model' in result.stderr


@pytest.mark.parametrize('command', [('run', 'Go'), ('chat',)])
@pytest.mark.parametrize(
    ('options', 'sentence'),
    [
        (('--instructions', ''), "Invalid value for '--instructions': it is empty. Pass a text."),
        (('--instructions= \n',), "Invalid value for '--instructions': it is empty. Pass a text."),
        (
            ('--continue', '--instructions', 'A.'),
            '--instructions are for a new conversation, and --continue continues one that has its own. Choose one of '
            '--continue and --instructions.',
        ),
        (('--from=HEAD', '--instructions', 'A.'), 'Choose one of --from and --instructions.'),
        (('--instructions', 'a\udcff'), 'is not valid UTF-8'),
    ],
)
def test_invalid_instructions_are_usage_errors(
    invoke: Invoke, command: tuple[str, ...], options: tuple[str, ...], sentence: str
) -> None:
    model = ScriptedModel()
    result = invoke(*command, *options, model=model, stdin='Go\n')
    assert (result.exit_code, model.requests) == (2, [])
    assert sentence in ' '.join(result.stderr.replace('│', '').split())


@pytest.mark.parametrize(
    ('options', 'sentence'),
    [
        (('--continue', '--from', 'HEAD'), '--continue is --from HEAD. Choose one of both.'),
        (('--no-store', '--store', 'memory:'), 'Choose one of --store and --no-store.'),
        (('--no-store', '-c'), '--no-store has nothing to continue. Choose one of --continue and --no-store.'),
        (('--no-store', '--from', 'HEAD'), 'Choose one of --from and --no-store.'),
    ],
)
def test_contradicting_store_options_are_refused(invoke: Invoke, options: tuple[str, ...], sentence: str) -> None:
    result = invoke('run', 'Go', *options, model=ScriptedModel())
    assert result.exit_code == 2
    assert sentence in ' '.join(result.stderr.replace('│', '').split())
