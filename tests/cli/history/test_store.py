"""Selection of the store for versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.history._store import default_store, store_label
from pydantic_deep.cli.turn import _size_check
from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]

EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
ALLOW = '--approvals=allow'


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def last(result: Result) -> dict[str, Any]:
    """Return the last event."""
    return json.loads(result.stdout.splitlines()[-1])


def test_default_store_is_private_to_the_user(invoke: Invoke, tmp_path: Path) -> None:
    url = last(invoke('run', 'Go', '--json', model=ScriptedModel('Done.')))['workspace']['store']
    state = tmp_path / 'state' / 'pydantic-deep'
    assert url == f'sqlite:///{state}/agents.db'
    assert (state.stat().st_mode & 0o777, (state / 'agents.db').stat().st_mode & 0o777) == (0o700, 0o600)


def test_store_is_selected_by_option_or_variable(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    outside = f'sqlite:///{tmp_path}/a.db'
    invoke('run', 'Go', '--store', outside, model=ScriptedModel('Done.'))
    variables = {'PYDANTIC_DEEP_STORE': outside}
    invoke('run', 'Again', '--continue', model=ScriptedModel('Done.'), variables=variables)
    rows = document(invoke('log', '--json', variables=variables))
    assert [row['prompt'] for row in rows] == ['Again', 'Go', None]
    assert (tmp_path / 'a.db').exists()


def test_reading_command_does_not_create_a_missing_store(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke('log', '--store', f'sqlite:///{tmp_path}/none.db')
    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr.startswith(
        f'There is no store {tmp_path}/none.db yet. `pydantic-deep run`, `chat` and `serve` create it'
    )
    assert not (tmp_path / 'none.db').exists()


@pytest.mark.parametrize('command', [('run', 'Go'), ('chat',), ('log',), ('resume',)])
def test_invalid_store_is_reported(invoke: Invoke, command: tuple[str, ...], work: Path) -> None:
    result = invoke(*command, '--store', 'poem.txt', model=ScriptedModel())
    assert result.exit_code == 2
    assert result.stderr.startswith("The store cannot be opened: There is no store at 'poem.txt'.")
    other = invoke(*command, '--store', f'sqlite:///{work}/poem.txt', model=ScriptedModel())
    assert other.exit_code == 2
    assert other.stderr == (
        f"The store cannot be opened: '{work}/poem.txt' is not a SQLite database. Choose another file.\n"
    )


def test_store_in_a_missing_directory_is_reported_once(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke('run', 'Go', '--store', f'sqlite:///{tmp_path}/no/agents.db', model=ScriptedModel())
    assert result.exit_code == 2
    assert result.stderr == (
        f"The store cannot be opened: '{tmp_path}/no/agents.db': No such file or directory. Make sure that its directory "
        'exists and that both can be written.\n'
    )


def test_unwritable_state_directory_is_reported(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / 'state').write_text('a file')
    result = invoke('run', 'Go', model=ScriptedModel())
    assert result.exit_code == 2
    place = tmp_path / 'state/pydantic-deep'
    assert result.stderr == f'The store cannot be opened: {place}: Not a directory.\n'


def test_no_store_stores_nothing_and_skips_the_size_check(
    invoke: Invoke, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_size_check, 'MAX_FILES', -1)
    result = invoke('run', 'Go', '--no-store', ALLOW, '--json', model=ScriptedModel(EDIT, 'Done.'))
    found = last(result)
    assert (found['version_id'], found['workspace']['store'], found['workspace']['has_files']) == (None, None, True)
    assert [file['path'] for file in found['files']] == ['/poem.txt']
    assert not (tmp_path / 'state').exists()


def test_chat_without_a_store_continues_in_memory(invoke: Invoke) -> None:
    model = ScriptedModel('First.', 'Second.')
    result = invoke('chat', '--no-store', model=model, stdin='One\nTwo\n')
    assert result.stdout == 'First.\nSecond.\n'
    assert 'version' not in result.stderr
    assert len(model.requests[1].messages) == 3


def test_store_label_is_its_path() -> None:
    environment = Environment(variables={'HOME': '/home/anna'})
    assert store_label('sqlite:////home/anna/x/agents.db', environment) == '~/x/agents.db'
    assert store_label('sqlite:////srv/agents.db', environment) == '/srv/agents.db'
    assert store_label('postgresql://host/db', environment) == 'postgresql://host/db'
    assert default_store(Environment(variables={'XDG_STATE_HOME': '/s'})) == 'sqlite:////s/pydantic-deep/agents.db'


def test_object_storage_is_selected_by_a_variable(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    (work / 'picture.png').write_bytes(bytes(range(256)) * 1000)
    blobs = tmp_path / 'blobs'
    variables = {'PYDANTIC_DEEP_BLOBS': f'file://{blobs}'}
    invoke('run', 'Go', '--no-store', model=ScriptedModel('Done.'), variables=variables)
    assert not blobs.exists()
    invoke('run', 'Go', model=ScriptedModel('Done.'), variables=variables)
    assert len([path for path in blobs.rglob('*') if path.is_file()]) == 1
    assert invoke('store', 'check', variables=variables).exit_code == 0
    without = invoke('store', 'check')
    assert (without.exit_code, 'PYDANTIC_DEEP_BLOBS' in without.stderr) == (1, True)
    wrong = invoke('log', variables={'PYDANTIC_DEEP_BLOBS': 'ftp://host'})
    assert (wrong.exit_code, "no object storage at 'ftp://host'" in wrong.stderr) == (2, True)
