"""Warnings of a turn are printed once, after it."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from pydantic_deep.cli import main
from pydantic_deep.cli.turn import _runtime
from pydantic_deep.testing import ScriptedModel, call
from tests.cli.conftest import Invoke, ScriptedTerminal


@pytest.mark.filterwarnings('always::pydantic_deep.versions.InstructionsWarning')
@pytest.mark.parametrize('command', [('run', 'On', '--continue'), ('chat', '--continue'), ('chat', '--from', 'HEAD')])
def test_changed_agent_instructions_print_one_warning(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """When a later release changes the agent's instructions, a continued conversation prints one warning, without a
    source line."""
    model = ScriptedModel('one', 'two', 'three')
    monkeypatch.setattr(_runtime, 'INSTRUCTIONS', 'Be\nbrief.')
    assert invoke('run', 'Go', model=model).exit_code == 0
    monkeypatch.setattr(_runtime, 'INSTRUCTIONS', 'Be long.')
    result = invoke(*command, model=model, stdin='On\nOn\n')
    assert result.exit_code == 0
    [line] = [line for line in result.stderr.splitlines() if 'warn' in line.lower()]
    assert line.startswith('warning: The version ')
    assert "was created with the instructions 'Be\\nbrief.', but this agent has 'Be long.'." in line
    assert '.py' not in result.stderr
    assert 'warning' not in invoke('run', 'On', '--continue', model=ScriptedModel('four')).stderr


def test_omitted_files_warning_is_printed_once_and_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / '~notes').write_text('mine')

    def script(messages: list[ModelMessage], info: AgentInfo) -> str:
        warnings.warn('something else', UserWarning, stacklevel=1)
        return 'Hi.'

    with pytest.warns(UserWarning, match='something else'):
        main(['run', 'Hello', '--dir', str(tmp_path), '--model', 'house'], models={'house': ScriptedModel(script)})

    printed = capsys.readouterr().err
    assert printed.endswith(
        'warning: In no version: /~notes (invalid path). Name them in a .gitignore if that is right, else rename or '
        'split them.\n'
    )
    assert printed.count('warning:') == 1


all_warnings = pytest.mark.filterwarnings('always::pydantic_deep.versions.ProtectedFilesWarning')

needs_bwrap = pytest.mark.skipif(
    shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap'
)


@all_warnings
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


@all_warnings
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


@all_warnings
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
