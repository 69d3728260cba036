"""What is no text is refused by every command before it does anything."""

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
def test_an_argument_that_is_no_text_is_wrong_usage(invoke: Invoke, command: str) -> None:
    """Bytes that are no UTF-8 come as half characters, which no store and no provider takes."""
    result = invoke(*command.replace('T', 'a\udcff').replace('X', 'a\udcff').split(' '))
    assert result.exit_code == 2
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert 'is not valid UTF-8' in result.stderr


def test_a_path_that_is_there_may_have_any_name(invoke: Invoke, work: Path) -> None:
    """Names of files are bytes: one that is there is taken."""
    name = os.fsdecode(b'a\xff')
    (work / name).mkdir()
    result = invoke('skills', 'validate', name)
    assert 'is not valid UTF-8' not in result.stderr
    assert 'There is no SKILL.md' in result.stdout


@pytest.mark.parametrize('model', ['', ' '])
def test_a_blank_model_is_refused_as_such(invoke: Invoke, model: str) -> None:
    result = invoke('run', 'x', '--model', model)
    assert result.exit_code == 3
    assert f'--model is {model!r}. Name a model' in result.stderr
