"""Completion in the shell, asked for as the script of a shell does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pydantic_deep.cli._app import app
from pydantic_deep.cli._environment import Environment
from pydantic_deep.testing import ScriptedModel

Invoke = Callable[..., Result]


@pytest.fixture
def complete(work: Path, tmp_path: Path) -> Callable[[str], list[str]]:
    """Return the words that the shell offers at the end of a command line."""

    def complete(line: str, shell: str = 'bash') -> list[str]:
        environment = Environment(
            models={'house': ScriptedModel()},
            variables={'XDG_STATE_HOME': str(tmp_path / 'state'), 'OPENAI_API_KEY': 'x'},
        )
        variables = {'COMP_WORDS': line, 'COMP_CWORD': str(line.count(' ')), '_TYPER_COMPLETE_ARGS': line}
        variables['_PYDANTIC_DEEP_COMPLETE'] = f'complete_{shell}'
        result = CliRunner().invoke(app, [], obj=environment, env=variables, prog_name='pydantic-deep')
        return result.stdout.split()

    return complete


@pytest.mark.parametrize(
    'command',
    ['rewind', 'checkout', 'merge', 'merge main', 'log', 'show', 'context', 'replay', 'diff', 'diff HEAD', 'resume'],
)
def test_versions_complete_the_arguments_of_commands(
    invoke: Invoke, complete: Callable[[str], list[str]], command: str
) -> None:
    """Branches, HEAD and ids of the directory complete every argument that is a version."""
    assert complete(f'pydantic-deep {command} ') == []
    invoke('run', 'Go', model=ScriptedModel('One.'))
    ids = [row['id'][-8:] for row in json.loads(invoke('log', '--json').stdout)]
    assert complete(f'pydantic-deep {command} ') == ['main', 'HEAD', 'HEAD~', *ids]
    assert complete(f'pydantic-deep {command} m') == ['main']


@pytest.mark.parametrize('option', ['run --from', 'chat --from', 'branch a b --from'])
def test_versions_complete_options(invoke: Invoke, complete: Callable[[str], list[str]], option: str) -> None:
    """Versions complete `--from`, in the directory of `--dir`."""
    invoke('run', 'Go', model=ScriptedModel('One.'))
    assert complete(f'pydantic-deep {option} HEAD') == ['HEAD', 'HEAD~']


def test_models_complete_options(complete: Callable[[str], list[str]]) -> None:
    """Usable models complete `--model`."""
    assert complete('pydantic-deep run --model h') == ['house']
    assert complete('pydantic-deep run --model anthropic') == []


def test_commands_and_options_are_completed(complete: Callable[[str], list[str]]) -> None:
    """Commands and options complete a line too."""
    assert complete('pydantic-deep rew') == ['rewind']
    assert complete('pydantic-deep chat --pi') == ['--pick']


def test_no_text_of_a_prompt_is_a_command_of_the_shell(invoke: Invoke, complete: Callable[..., list[str]]) -> None:
    """zsh evaluates completions: a backslash of a prompt must not undo the one that Typer puts before `$`."""
    invoke('run', r'\$(touch x) \\`touch y`', model=ScriptedModel('One.'))
    shown = ' '.join(complete('pydantic-deep rewind ', 'zsh'))
    assert r'\$(touch x) \`touch y\`' in shown
    assert r'\\' not in shown


def test_names_that_a_shell_interprets_are_not_completed(invoke: Invoke, complete: Callable[[str], list[str]]) -> None:
    """A shell inserts the names of branches unquoted."""
    invoke('run', 'Go', model=ScriptedModel('One.'))
    for name in ('$(touch x)', '*', 'a;b', 'by-retry/2'):
        invoke('branch', name, 'Go', model=ScriptedModel('Two.'))
    offered = complete('pydantic-deep rewind ')
    assert [name for name in offered if name in ('main', 'by-retry/2')] == ['by-retry/2', 'main']
    assert not any(character in name for name in offered for character in '$*;')
