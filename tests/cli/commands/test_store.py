"""The `store check`, `store backup` and `store restore` commands."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from inline_snapshot import snapshot
from typer.testing import Result

from pydantic_deep import open_store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep_backends import digest_of
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


def test_check_of_an_undamaged_store_exits_with_0(agents: Path, invoke: Invoke) -> None:
    """`store check` of an undamaged store prints a message and exits with 0."""
    done = invoke('store', 'check', '--store', f'sqlite:///{agents}')
    assert (done.exit_code, done.stdout) == (0, f'{agents}: no damage.\n')


def test_check_lists_damaged_rows_and_their_dependents(agents: Path, invoke: Invoke) -> None:
    """`store check` prints every damaged row with its table and the versions and conversations that depend on it. The
    exit code is 1, also with `--json`."""
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


def test_check_truncates_long_lists_of_dependents(tmp_path: Path, invoke: Invoke, agents: Path) -> None:
    """Only the first dependent versions are named; `--json` contains all of them."""
    for _ in range(6):
        invoke('run', 'More', '--continue', '--store', f'sqlite:///{agents}', model=ScriptedModel('Hello.'))
    _damage(agents, "UPDATE conversation SET agent_name = 'x'")
    done = invoke('store', 'check', '--store', f'sqlite:///{agents}')
    assert ' more, conversation' in done.stdout


def test_check_reports_a_store_that_cannot_be_opened(agents: Path, invoke: Invoke) -> None:
    """`store check` reports a damaged `meta` table instead of failing."""
    _damage(agents, "DELETE FROM meta WHERE key = 'version'")
    done = invoke('store', 'check', '--store', f'sqlite:///{agents}')
    assert done.exit_code == 1
    assert 'meta: ' in done.stdout
    assert done.stdout.endswith(f'{agents}: 1 damaged row.\n')


def test_check_of_another_file_is_usage_error(tmp_path: Path, invoke: Invoke) -> None:
    """A file that is not a SQLite database is not reported as damaged."""
    (tmp_path / 'notes.txt').write_text('no database ' * 100)
    done = invoke('store', 'check', '--store', f'sqlite:///{tmp_path}/notes.txt')
    assert (done.exit_code, done.stdout) == (2, '')
    assert 'not a SQLite database' in done.stderr


def test_backup_is_restored_to_another_store(agents: Path, tmp_path: Path, invoke: Invoke) -> None:
    """`store backup` writes one file and `store restore` loads it into a new store. Both print their progress to
    stderr, and the restored store has the same versions."""
    backup, copy = tmp_path / 'agents.backup', f'sqlite:///{tmp_path}/copy.db'
    done = invoke('store', 'backup', str(backup), '--store', f'sqlite:///{agents}')
    assert done.exit_code == 0, done.stderr
    assert done.stderr == snapshot("""\
file contents …
branches …
conversations …
messages …
directories …
runs …
versions …
""")
    known = '2 conversations, 2 branches, 4 versions, 4 messages, 3 file contents, 2 directories, 2 runs'
    assert done.stdout == f'{backup} has {known} of {agents}.\n'
    done = invoke('store', 'restore', str(backup), '--store', copy)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith(f'/copy.db has {known} of {backup}.\n')
    logs = [invoke('log', '--all', '--json', '--store', url).stdout for url in (f'sqlite:///{agents}', copy)]
    assert json.loads(logs[0]) == json.loads(logs[1]) != []
    assert invoke('store', 'check', '--store', copy).exit_code == 0


def test_backup_contains_stored_objects_and_is_restored_with_or_without_a_place_for_them(
    agents: Path, tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable `PYDANTIC_DEEP_BLOBS` says where stored objects are read from and written to. A long backup reports
    their number.
    """
    monkeypatch.setattr('pydantic_deep.cli.commands._store._REPORTED_OBJECTS', 2)
    contents = [bytes([number]) * 100_000 for number in range(3)]

    async def write(url: str, blobs: Path) -> None:
        async with open_store(url, blobs=f'file://{blobs}') as store:
            for content in contents:
                await store.write_asset(digest_of(content), _chunks(content))

    async def read(url: str, blobs: str | None) -> list[bytes]:
        async with open_store(url, blobs=blobs) as store:
            assert await store.check() == []
            return [await store.read_asset(digest_of(content)) for content in contents]

    first, backup = f'sqlite:///{agents}', str(tmp_path / 'agents.backup')
    anyio.run(write, first, tmp_path / 'blobs')
    refused = invoke('store', 'backup', backup, '--store', first)
    assert (refused.exit_code, '3 contents in object storage' in refused.stderr) == (1, True)
    done = invoke(
        'store', 'backup', backup, '--store', first, variables={'PYDANTIC_DEEP_BLOBS': f'file://{tmp_path}/blobs'}
    )
    assert done.exit_code == 0, done.stderr
    assert done.stderr.splitlines()[-2:] == ['stored objects …', '2 stored objects …']
    assert '3 stored objects' in done.stdout

    for name, blobs in (('with', f'file://{tmp_path}/others'), ('without', None)):
        url = f'sqlite:///{tmp_path}/{name}.db'
        variables = {} if blobs is None else {'PYDANTIC_DEEP_BLOBS': blobs}
        done = invoke('store', 'restore', backup, '--store', url, variables=variables)
        assert done.exit_code == 0, done.stderr
        assert anyio.run(read, url, blobs) == contents
    wrong = invoke(
        'store',
        'restore',
        backup,
        '--store',
        f'sqlite:///{tmp_path}/wrong.db',
        variables={'PYDANTIC_DEEP_BLOBS': 'ftp://host'},
    )
    assert (wrong.exit_code, 'There is no object storage' in wrong.stderr) == (2, True), wrong.stderr


async def _chunks(content: bytes) -> AsyncGenerator[bytes]:
    yield content


def test_restore_defaults_to_the_user_store(agents: Path, tmp_path: Path, invoke: Invoke) -> None:
    """Without `--store`, a backup is restored to the user's own store. Its directory is created."""
    backup = tmp_path / 'agents.backup'
    invoke('store', 'backup', str(backup), '--store', f'sqlite:///{agents}')
    assert invoke('store', 'restore', str(backup)).exit_code == 0
    assert invoke('store', 'restore', str(backup)).exit_code == 1


def test_restore_refuses_a_store_in_memory_which_would_be_lost(agents: Path, tmp_path: Path, invoke: Invoke) -> None:
    backup = tmp_path / 'agents.backup'
    invoke('store', 'backup', str(backup), '--store', f'sqlite:///{agents}')
    done = invoke('store', 'restore', str(backup), '--store', 'memory:')
    assert (done.exit_code, done.stdout) == (2, '')
    assert done.stderr == 'The store memory: is lost when this command ends. Use sqlite:///… or postgresql://….\n'


def test_missing_files_and_directories_of_backups_are_named(agents: Path, tmp_path: Path, invoke: Invoke) -> None:
    done = invoke('store', 'backup', str(tmp_path / 'none/a.backup'), '--store', f'sqlite:///{agents}')
    assert (done.exit_code, done.stderr) == (
        1, f"There is no directory '{tmp_path}/none' for the backup. Create it, or choose another.\n",
    )  # fmt: skip
    done = invoke('store', 'restore', 'none.backup')
    assert (done.exit_code, "file 'none.backup' does not exist" in ' '.join(done.stderr.split())) == (2, True)


def test_reading_commands_work_while_another_process_writes(agents: Path, invoke: Invoke) -> None:
    """Reading commands open the store read-only, so they do not wait for the write lock of another process."""
    with closing(sqlite3.connect(agents, isolation_level=None)) as raw:
        raw.execute('BEGIN IMMEDIATE')
        for command in ('log', 'show', 'sql'):
            arguments = ['SELECT 1'] if command == 'sql' else []
            done = invoke(command, *arguments, '--store', f'sqlite:///{agents}')
            assert done.exit_code == 0, done.stderr
        assert not list(agents.with_name('agents.db.owners').iterdir())


def test_reading_command_migrates_an_older_store(agents: Path, invoke: Invoke) -> None:
    """A reading command opens tables of an older release and migrates them."""
    with closing(sqlite3.connect(agents)) as raw:
        for sql in set_back(1):
            raw.execute(sql)
        raw.commit()
    assert invoke('log', '--all', '--store', f'sqlite:///{agents}').exit_code == 0
    assert invoke('store', 'check', '--store', f'sqlite:///{agents}').exit_code == 0
