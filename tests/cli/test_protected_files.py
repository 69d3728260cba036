"""Warnings about changed protected files in the CLI."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pydantic_deep.testing import ScriptedModel, call

from .conftest import Invoke, ScriptedTerminal

pytestmark = pytest.mark.filterwarnings('always::pydantic_deep.versions.ProtectedFilesWarning')

needs_bwrap = pytest.mark.skipif(
    shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap'
)


@needs_bwrap
def test_run_and_show_list_protected_files_changed_by_commands(invoke: Invoke) -> None:
    """`git init` with `core.fsmonitor` in a sandbox: `run` prints a warning at the end of the turn, and `show` lists
    the file."""
    evil = call('execute', command='git init -q sub && git -C sub config core.fsmonitor evil')
    result = invoke('run', 'Go', '--sandbox', '--approvals=allow', model=ScriptedModel(evil, 'Done.'))
    assert result.exit_code == 0
    assert 'warning: This turn changed files that programs of this machine run or obey' in result.stderr
    assert '/sub/.git/config (added)' in result.stderr
    shown = invoke('show')
    assert 'Protected files changed' in shown.stdout
    assert '+ /sub/.git/config' in shown.stdout
    details = json.loads(invoke('show', '--json').stdout)
    assert {'path': '/sub/.git/config', 'change': 'added'} in details['protected_changes']


@needs_bwrap
def test_next_approval_prompt_names_protected_files_changed_by_commands(
    invoke: Invoke, make_terminal: type[ScriptedTerminal]
) -> None:
    """The approval prompt after the command names the protected files that it changed."""
    evil = call('execute', command='mkdir sub; echo x > sub/.envrc')
    model = ScriptedModel(evil, call('write_file', path='a.txt', content='x'), 'Done.')
    terminal = make_terminal('y', 'y')
    result = invoke('run', 'Go', '--sandbox', model=model, terminal=terminal)
    assert result.exit_code == 0
    assert '/sub/.envrc (added)' in terminal.shown


@pytest.mark.parametrize('command', ['checkout', 'rewind'])
def test_checkout_lists_written_protected_files(invoke: Invoke, work: Path, command: str) -> None:
    """A version can contain an `.envrc` written by a command. A checkout of it prints a warning to stderr, also with
    `--json`."""
    write = call('write_file', path='.envrc', content='evil')
    model = ScriptedModel(write, 'Done.', call('write_file', path='.envrc', content='other'), 'Done.')
    assert invoke('run', 'One', '--approvals=allow', model=model).exit_code == 0
    assert invoke('run', 'Two', '--continue', '--approvals=allow', model=model).exit_code == 0
    gone = invoke(command, 'HEAD~1', '--json')
    assert (work / '.envrc').read_text() == 'evil'
    assert json.loads(gone.stdout)['edits'] is None
    assert 'changed files that programs of this machine run or obey: /.envrc (changed).' in gone.stderr
    assert 'warning' not in invoke(command, json.loads(gone.stdout)['version']['id']).stderr
