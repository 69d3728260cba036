"""The commands about a store as a whole: `store check`, `store backup` and `store restore`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel
from tests.store.damage import set_back

Invoke = Callable[..., Result]


@pytest.fixture
def agents(tmp_path: Path, invoke: Invoke) -> Path:
    """A store with two turns."""
    path = tmp_path / 'agents.db'
    for task in ('Greet me', 'Again'):
        done = invoke('run', task, '--store', f'sqlite:///{path}', model=ScriptedModel('Hello.'))
        assert done.exit_code == 0, done.stderr
    return path


def _damage(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as raw:
        for statement in statements:
            raw.execute(statement)
        raw.commit()


def test_a_whole_store_has_no_damage(agents: Path, invoke: Invoke) -> None:
    """`store check` of a store that is whole says so, and ends with 0."""
    done = invoke('store', 'check', '--store', f'sqlite:///{agents}')
    assert (done.exit_code, done.stdout) == (0, f'{agents}: no damage.\n')


def test_damage_is_listed_with_what_depends_on_it(agents: Path, invoke: Invoke) -> None:
    """`store check` lists every damaged row with its table, and the versions and conversations that need it; its exit
    code is 1 then, with --json too."""
    _damage(agents, 'DELETE FROM message WHERE number = 1', "UPDATE version SET state = 'failed' WHERE number = 1")
    done = invoke('store', 'check', '--store', f'sqlite:///{agents}')
    assert done.exit_code == 1
    assert 'message 1: it is missing, and a row of `entry` refers to it\n    needed by version' in done.stdout
    assert 'a value differs from the one that was written\n    needed by version' in done.stdout
    assert done.stdout.endswith(f'{agents}: 3 damaged rows.\n')
    done = invoke('store', 'check', '--store', f'sqlite:///{agents}', '--json')
    assert done.exit_code == 1
    rows = json.loads(done.stdout)
    assert {row['table'] for row in rows} == {'message', 'version'}
    assert all(row['versions'] and row['conversations'] for row in rows if row['row'] is not None)


def test_many_dependents_are_counted(tmp_path: Path, invoke: Invoke, agents: Path) -> None:
    """Of many versions that need one row the first are named, and --json names all."""
    for _ in range(6):
        invoke('run', 'More', '--continue', '--store', f'sqlite:///{agents}', model=ScriptedModel('Hello.'))
    _damage(agents, "UPDATE conversation SET agent_name = 'x'")
    done = invoke('store', 'check', '--store', f'sqlite:///{agents}')
    assert ' more, conversation' in done.stdout


def test_a_store_that_cannot_be_opened_is_damage(agents: Path, invoke: Invoke) -> None:
    """`store check` of a store whose mark is damaged reports that, instead of failing."""
    _damage(agents, "DELETE FROM meta WHERE key = 'version'")
    done = invoke('store', 'check', '--store', f'sqlite:///{agents}')
    assert done.exit_code == 1
    assert 'meta: ' in done.stdout
    assert done.stdout.endswith(f'{agents}: 1 damaged row.\n')


def test_a_store_that_is_none_is_wrong_usage(tmp_path: Path, invoke: Invoke) -> None:
    """What is no store is not damaged."""
    (tmp_path / 'notes.txt').write_text('no database ' * 100)
    done = invoke('store', 'check', '--store', f'sqlite:///{tmp_path}/notes.txt')
    assert (done.exit_code, done.stdout) == (2, '')
    assert 'not a SQLite database' in done.stderr


def test_a_backup_is_restored_to_another_place(agents: Path, tmp_path: Path, invoke: Invoke) -> None:
    """`store backup` writes one file, `store restore` brings it to a new store, both say on standard error where they
    are, and what was there is there."""
    backup, copy = tmp_path / 'agents.backup', f'sqlite:///{tmp_path}/copy.db'
    done = invoke('store', 'backup', str(backup), '--store', f'sqlite:///{agents}')
    assert done.exit_code == 0, done.stderr
    assert 'message …\n' in done.stderr
    assert done.stdout.startswith(f'{agents}: ')
    assert done.stdout.endswith(f' rows in {backup}.\n')
    done = invoke('store', 'restore', str(backup), '--store', copy)
    assert done.exit_code == 0, done.stderr
    assert 'message …\n' in done.stderr
    logs = [invoke('log', '--all', '--json', '--store', url).stdout for url in (f'sqlite:///{agents}', copy)]
    assert json.loads(logs[0]) == json.loads(logs[1]) != []
    assert invoke('store', 'check', '--store', copy).exit_code == 0


def test_a_backup_goes_to_the_persons_own_store(agents: Path, tmp_path: Path, invoke: Invoke) -> None:
    """Without --store a backup is restored to the person's own store, whose directory is made."""
    backup = tmp_path / 'agents.backup'
    invoke('store', 'backup', str(backup), '--store', f'sqlite:///{agents}')
    assert invoke('store', 'restore', str(backup)).exit_code == 0
    assert invoke('store', 'restore', str(backup)).exit_code == 1


def test_what_only_reads_needs_no_right_to_write(agents: Path, invoke: Invoke) -> None:
    """Commands that only read open the store for reading only: another process may be inside a write."""
    with closing(sqlite3.connect(agents, isolation_level=None)) as raw:
        raw.execute('BEGIN IMMEDIATE')
        for command in ('log', 'show', 'sql'):
            arguments = ['SELECT 1'] if command == 'sql' else []
            done = invoke(command, *arguments, '--store', f'sqlite:///{agents}')
            assert done.exit_code == 0, done.stderr
        assert not list(agents.with_name('agents.db.owners').iterdir())


def test_a_store_of_an_older_release_is_brought_up_to_date_by_who_reads_it(agents: Path, invoke: Invoke) -> None:
    """A reading command opens older tables as well, which then are the newest."""
    with closing(sqlite3.connect(agents)) as raw:
        for sql in set_back(1):
            raw.execute(sql)
        raw.commit()
    assert invoke('log', '--all', '--store', f'sqlite:///{agents}').exit_code == 0
    assert invoke('store', 'check', '--store', f'sqlite:///{agents}').exit_code == 0
