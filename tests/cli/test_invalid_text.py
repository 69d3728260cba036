"""Every command refuses arguments that are not valid UTF-8."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import Invoke


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


@pytest.mark.parametrize('model', ['', ' '])
def test_blank_model_is_refused(invoke: Invoke, model: str) -> None:
    result = invoke('run', 'x', '--model', model)
    assert result.exit_code == 3
    assert f'--model is {model!r}. Name a model' in result.stderr
