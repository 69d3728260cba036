"""Rare kinds of damage, produced by single rows, statements and fake connections."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from pydantic_deep import StateBackend, VersionedAgent, create_deep_agent
from pydantic_deep.store import BranchRecord, SqlStore, StoreCorruptedError, new_id, open_store
from pydantic_deep.store.engine import Operation, Row, Statement
from pydantic_deep.store.operations import _reads as read
from pydantic_deep.store.operations import _runs as runs
from pydantic_deep.store.sql import _rows
from pydantic_deep.store.sql._keys import pack_id
from pydantic_deep.store.sql._seals import row_name
from pydantic_deep.store.sqlite import _engine as sqlite  # pyright: ignore[reportPrivateUsage]
from pydantic_deep.store.sqlite._threads import run_operation
from pydantic_deep.testing import ScriptedModel

from .damage import make_sample

pytestmark = pytest.mark.anyio


def drive(operation: Operation[Any], *answers: list[Row]) -> object:
    """Run an operation with these results of a database."""
    next(operation)
    try:
        for rows in answers:
            operation.send(rows)
    except StopIteration as stop:
        return stop.value
    raise AssertionError('The operation asks for more.')


ID = new_id()


@pytest.mark.parametrize(
    ('operation', 'table'),
    [
        (lambda: read.version(ID), 'version'),
        (lambda: read.lineage(ID), 'version'),
        (lambda: runs.approval(ID, 0), 'approval'),
    ],
)
def test_row_listed_only_by_its_index_is_damage(operation: Callable[[], Operation[Any]], table: str) -> None:
    with pytest.raises(StoreCorruptedError, match='it is missing, but its index lists it') as error:
        drive(operation(), [(pack_id(ID), 7)], [])
    assert (error.value.table, error.value.row) == (table, ID)


def test_branch_with_a_missing_parent_is_damage() -> None:
    branch = BranchRecord(ID, new_id(), 'main', None, 0, 0, None, None, 0)
    row = (pack_id(ID), pack_id(branch.conversation_id), 'main', None, 0, 0, None, None, 0, 1, 1, 7, None)
    sealed = (*row, _rows.branch_seal(branch, 7, None))

    with pytest.raises(StoreCorruptedError, match='it is missing, and the branch') as error:
        _rows.branch_from(sealed)
    assert (error.value.table, error.value.row) == ('branch', '7')


@pytest.mark.parametrize(('key', 'name'), [('c1', 'c1'), (7, '7'), (b'\2\xff', '02ff')])
def test_key_that_is_not_an_id_is_still_named(key: Any, name: str) -> None:
    assert row_name(key) == name


class Undecodable:
    """Connection with error messages that are not UTF-8, as with a damaged column name."""

    def __init__(self) -> None:
        self.is_closed = False

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> object:
        raise UnicodeDecodeError('utf-8', b'\xff', 0, 1, 'invalid start byte')

    def close(self) -> None:
        self.is_closed = True


def test_undecodable_sqlite_messages_are_damage() -> None:
    def select() -> Operation[None]:
        yield Statement('SELECT 1')

    connection = Undecodable()
    with pytest.raises(StoreCorruptedError, match='invalid UTF-8'):
        run_operation(cast('sqlite3.Connection', connection), select())
    with pytest.raises(sqlite3.DatabaseError, match='the schema contains invalid UTF-8'):
        sqlite._configured(cast('sqlite3.Connection', connection))  # pyright: ignore[reportPrivateUsage]
    assert connection.is_closed


@pytest.mark.parametrize('has_log', [False, True])
async def test_store_in_a_read_only_directory_is_read_without_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_log: bool
) -> None:
    """SQLite's error for a read-only directory is simulated, because root can write to any directory."""
    path = tmp_path / 'agents.db'
    async with open_store(f'sqlite:///{path}'):
        pass
    if has_log:
        (tmp_path / 'agents.db-wal').write_bytes(b'something')
    connect = sqlite._connection  # pyright: ignore[reportPrivateUsage]

    def refuse(path: Path, mode: str) -> sqlite3.Connection:
        if mode == 'mode=ro':
            error = sqlite3.OperationalError('unable to open database file')
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return connect(path, mode)

    monkeypatch.setattr(sqlite, '_connection', refuse)
    if has_log:
        with pytest.raises(sqlite3.OperationalError, match='unable to open'):
            sqlite.connect_read_only(path)
    else:
        with closing(sqlite.connect_read_only(path)) as connection:
            assert connection.execute('SELECT count(*) FROM version').fetchone() == (0,)


async def test_engine_without_a_dialect_has_no_checks_or_backups(tmp_path: Path) -> None:
    store = SqlStore(cast('Any', object()))

    with pytest.raises(TypeError, match='A object has no dialect, which a check needs'):
        await store.check()
    with pytest.raises(TypeError, match='A object has no dialect, which a backup needs'):
        await store.backup(tmp_path / 'store.backup')


async def test_check_visits_a_shared_subtree_once(tmp_path: Path) -> None:
    backend = StateBackend()
    for place in ('a', 'b', 'c/a'):
        await backend.write_bytes(f'/{place}/same.txt', b'the same')
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        await VersionedAgent(create_deep_agent(ScriptedModel()), store).create(backend=backend)
        assert await store.check() == []


@pytest.mark.parametrize('data', ["x'09'", "x''", 'NULL', '7'])
async def test_undecodable_contents_are_reported(tmp_path: Path, data: str) -> None:
    await make_sample(tmp_path / 'agents.db')
    shutil.copy(tmp_path / 'agents.db', tmp_path / 'copy.db')
    with closing(sqlite3.connect(tmp_path / 'copy.db')) as raw:
        columns = [row[1] for row in raw.execute('PRAGMA table_info(message)')]
        assert 'body' in columns
        try:
            raw.execute(f'UPDATE message SET body = {data} WHERE number = 1')
        except sqlite3.IntegrityError:
            raw.execute("UPDATE message SET body = 'text' WHERE number = 1")
        raw.commit()
    async with open_store(f'sqlite:///{tmp_path}/copy.db') as store:
        assert {damage.table for damage in await store.check()} >= {'message'}
