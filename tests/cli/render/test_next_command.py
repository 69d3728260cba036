"""Suggested commands work as they are written: they repeat the options that decide what they work on."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path

import pytest
from typer.testing import Result

from pydantic_deep.cli.render._next_command import _given, next_command  # pyright: ignore[reportPrivateUsage]
from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]
WRITE = call('write_file', path='/new.txt', content='new\n')


def suggested(result: Result, command: str) -> list[str]:
    """Return the words of the suggested command, without the program."""
    (line,) = [line for line in result.output.splitlines() if f'pydantic-deep {command}' in line]
    return shlex.split(line.partition('pydantic-deep ')[2])


def test_suggested_command_works_as_it_is_written(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    """A turn in another directory and another store pauses. The command of the last line finishes it there."""
    place = work / 'in here'
    place.mkdir()
    store = f'sqlite:///{tmp_path}/other.db'
    paused = invoke('run', 'Go', '--approvals=pause', '-d', 'in here', '--store', store, model=ScriptedModel(WRITE))
    words = suggested(paused, 'resume')
    assert words[2:] == ['--dir', 'in here', '--store', store]
    resumed = invoke(*words, '--approvals=allow', model=ScriptedModel('Done.'))
    assert (resumed.exit_code, resumed.stdout) == (0, 'Done.\n')
    assert (place / 'new.txt').exists()


def test_options_of_variables_are_not_repeated(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PYDANTIC_DEEP_STORE', f'sqlite:///{tmp_path}/variable.db')
    paused = invoke('run', 'Go', '--approvals=pause', model=ScriptedModel(WRITE))
    assert len(suggested(paused, 'resume')) == 2


def test_password_of_the_store_is_not_shown() -> None:
    """The URL of a store may contain a password, and the name of a directory characters that control the terminal."""
    given = {'--store': 'postgresql://ann:s3cret@db.example/agents', '--dir': 'a\x1b[31mb'}
    context = copy_context()
    context.run(_given.set, given)
    assert context.run(next_command, 'resume', 'abcd') == (
        r"pydantic-deep resume abcd --store 'postgresql://ann:[redacted: password]@db.example/agents' --dir 'a\x1b[31mb'"
    )
