"""The app: its help, version and errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import Result

Invoke = Callable[..., Result]


@pytest.mark.parametrize('command', [('run', 'Go'), ('chat',)])
def test_missing_model_prints_one_sentence(invoke: Invoke, command: tuple[str, ...]) -> None:
    result = invoke(*command)
    assert (result.exit_code, result.stdout) == (3, '')
    assert result.stderr.startswith('No model to use. Set ANTHROPIC_API_KEY')
    assert result.stderr.count('\n') == 1


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


@pytest.mark.parametrize('command', [('show',), ('diff',), ('memory', 'undo'), ('evals', 'run')])
def test_optional_arguments_have_one_pair_of_brackets(invoke: Invoke, command: tuple[str, ...]) -> None:
    assert '[[' not in invoke(*command, '--help').stdout


def test_help_explains_local_models(invoke: Invoke) -> None:
    assert 'OPENAI_BASE_URL=http://127.0.0.1:8080/v1' in invoke('--help').stdout


def test_version_option_prints_the_version(invoke: Invoke) -> None:
    assert invoke('--version').stdout.startswith('pydantic-deep 0.')
