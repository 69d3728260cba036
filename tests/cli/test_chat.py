"""A dialogue without a terminal: each line of standard input is a turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.history import InMemoryHistory
from pydantic_ai.exceptions import ModelConnectionError
from rich.console import Console
from typer.testing import Result

from pydantic_deep.cli._chat import open_history
from pydantic_deep.cli._surroundings import Surroundings
from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]

PLAN = [{'content': 'Write it', 'status': 'in_progress'}]


def test_each_line_is_a_turn_of_one_conversation(invoke: Invoke) -> None:
    model = ScriptedModel('First.', 'Second.')
    result = invoke('chat', model=model, stdin='One\n\nTwo\n')
    assert (result.exit_code, result.stdout) == (0, 'First.\nSecond.\n')
    assert len(model.requests[1].messages) == 3


def test_quit_ends_it(invoke: Invoke) -> None:
    model = ScriptedModel('First.')
    assert invoke('chat', model=model, stdin='/quit\nOne\n').exit_code == 0
    assert model.remaining == 1


def test_new_forgets_the_conversation_and_the_plan(invoke: Invoke) -> None:
    model = ScriptedModel(call('write_todos', todos=PLAN), 'First.', 'Second.')
    result = invoke('chat', model=model, stdin='One\n/todos\n/new\n/todos\nTwo\n')
    assert '▸ Write it\nA new conversation.' in result.stderr
    assert 'There is no plan.' in result.stderr
    assert len(model.requests[2].messages) == 1


def test_files_lists_what_changed_since_the_chat_began(invoke: Invoke) -> None:
    model = ScriptedModel(call('write_file', path='/a.txt', content='a\n'), 'First.')
    result = invoke('chat', '--approvals=allow', model=model, stdin='/files\nOne\n/files\n')
    assert result.stderr.startswith('No file has changed.\n')
    assert result.stderr.endswith('created /a.txt +1 -0\n')


def test_an_unknown_command_is_not_sent_to_the_model(invoke: Invoke) -> None:
    result = invoke('chat', model=ScriptedModel(), stdin='/help\n/hepl\x1b\n')
    assert '/todos  the plan' in result.stderr
    assert 'There is no command /hepl\\x1b. /help lists them, /skills the skills.' in result.stderr


def test_a_turn_that_fails_does_not_end_the_chat_and_the_last_turn_gives_the_exit_code(invoke: Invoke) -> None:
    model = ScriptedModel(ModelConnectionError('m', 'No.'), 'Second.', ModelConnectionError('m', 'No.'))
    result = invoke('chat', model=model, stdin='One\nTwo\nThree\n')
    assert (result.exit_code, result.stdout) == (1, 'Second.\n')
    assert result.stderr.count("'m' cannot be reached: No.") == 2
    # What the person said first is still there.
    assert 'One' in str(model.requests[1].messages)


@pytest.mark.parametrize(
    ('environment', 'expected'),
    [({'XDG_STATE_HOME': '/state'}, '/state/pydantic-deep'), ({}, '~/.local/state/pydantic-deep')],
)
def test_lines_are_kept_where_the_xdg_specification_says(environment: dict[str, str], expected: str) -> None:
    assert Surroundings(environment=environment).state_directory == Path(expected).expanduser()


def test_the_file_of_lines_is_private(tmp_path: Path) -> None:
    surroundings = Surroundings(environment={'XDG_STATE_HOME': str(tmp_path)})
    history = open_history(surroundings, Console())
    history.store_string('secret plan')
    path = tmp_path / 'pydantic-deep' / 'chat_history'
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert list(open_history(surroundings, Console()).load_history_strings()) == ['secret plan']


def test_where_lines_cannot_be_kept_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / 'state').write_text('a file')
    history = open_history(Surroundings(environment={'XDG_STATE_HOME': str(tmp_path / 'state')}), Console())
    assert isinstance(history, InMemoryHistory)
    assert capsys.readouterr().out.startswith('What you type is not kept: ')
