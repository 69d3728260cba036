"""The outcome of commits whose answer was lost, with every answer of a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import asyncpg
import pytest

from pydantic_deep.store import UnknownCommitError
from pydantic_deep.store.engine import Operation, Row, Statement, Value
from pydantic_deep.store.postgres import PostgresEngine
from pydantic_deep.store.postgres._driver import Connection, connect
from pydantic_deep.store.postgres._lost_commits import PendingCommitError, TransactionId, is_applied
from pydantic_deep.store.postgres._transactions import BEGIN_WRITE

from .proxy import Proxy

pytestmark = pytest.mark.anyio


class FakeServer:
    """Answers the queries of `is_applied`, as a server of this name does."""

    def __init__(self, name: str, status: Value, first_id: Value | Exception = None) -> None:
        self._name = name
        self._status = status
        self._first_id = first_id

    async def fetch(self, query: str, *args: Value) -> Sequence[Sequence[Value]]:
        if 'pg_xact_status' in query:
            return [(self._status,)]
        if 'pg_control_checkpoint' not in query:
            return [(self._name,)]
        if isinstance(self._first_id, Exception):
            raise self._first_id
        return [] if self._first_id is None else [(self._first_id,)]


ID = TransactionId(700, 'a:1')


@pytest.mark.parametrize(
    ('server', 'expected'),
    [
        pytest.param(FakeServer('a:1', 'committed'), True, id='applied'),
        pytest.param(FakeServer('a:1', 'aborted'), False, id='not applied'),
        pytest.param(FakeServer('a:1', None), None, id='too old'),
        pytest.param(FakeServer('b:1', 'committed', 701), True, id='applied before a restart'),
        pytest.param(FakeServer('b:1', 'aborted', 701), False, id='not applied before a restart'),
        pytest.param(FakeServer('b:1', 'committed', 700), False, id='id assigned again after a crash'),
        pytest.param(FakeServer('a:2', 'committed', 700), False, id='id assigned again after a crash of a process'),
        pytest.param(FakeServer('b:1', 'committed'), None, id='checkpoint after a restart'),
        pytest.param(
            FakeServer('b:1', 'committed', asyncpg.InsufficientPrivilegeError('no')), None, id='no permission'
        ),
    ],
)
async def test_outcome_of_a_lost_commit(server: FakeServer, expected: bool | None) -> None:
    assert await is_applied(cast('Connection', server), ID) is expected


async def test_commit_in_progress_is_asked_for_again() -> None:
    with pytest.raises(PendingCommitError, match='transaction 700 is still in progress'):
        await is_applied(cast('Connection', FakeServer('a:1', 'in progress')), ID)


async def test_connection_that_is_lost_again_raises() -> None:
    server = FakeServer('b:1', 'committed', asyncpg.AdminShutdownError('restart'))
    with pytest.raises(asyncpg.AdminShutdownError):
        await is_applied(cast('Connection', server), ID)


async def test_commit_of_an_unknown_transaction_is_unknown() -> None:
    assert await is_applied(cast('Connection', FakeServer('a:1', 'committed')), None) is None


async def test_write_needs_no_further_message_for_its_id(postgres_url: str) -> None:
    engine = await PostgresEngine.open(postgres_url)
    names = "SELECT current_setting('application_name'), pg_current_xact_id()::text"

    def operation() -> Operation[list[Row]]:
        return (yield Statement(names))

    [(name, number)] = await engine.write(operation)
    assert str(name).startswith(f'pydantic-deep {number} ')
    assert 'pg_current_xact_id' in BEGIN_WRITE
    assert (await engine.read(operation))[0][0] == 'pydantic-deep', 'the name is that of the program again'
    await engine.aclose()


async def test_server_with_a_later_checkpoint_does_not_know(postgres_url: str) -> None:
    """The statement works on a real server."""
    connection = await connect(postgres_url)
    await connection.execute("CHECKPOINT; SET pydantic_deep.server = 'b:1'")
    assert await is_applied(connection, ID) is None
    await connection.close()


def inserting() -> Callable[[], Operation[None]]:
    def operation() -> Operation[None]:
        yield Statement('CREATE TABLE x (i BIGINT)')

    return operation


async def test_write_with_an_unknown_outcome_raises(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(connection: Connection) -> None:
        return None

    # As behind a pooler that does not forward the setting.
    monkeypatch.setattr('pydantic_deep.store.postgres._engine.transaction_id', unknown)
    async with Proxy(postgres_url).open() as proxy:
        engine = await PostgresEngine.open(proxy.url)
        proxy.cut = 'after COMMIT'
        with pytest.raises(UnknownCommitError, match='cannot tell the outcome of its transaction'):
            await engine.write(inserting())
        await engine.aclose()


async def test_write_that_is_not_decided_in_time_raises(postgres_url: str) -> None:
    async with Proxy(postgres_url).open() as proxy:
        engine = await PostgresEngine.open(proxy.url, wait_seconds=0.05)
        proxy.cut, proxy.after_cut = 'after COMMIT', 'always'
        with pytest.raises(UnknownCommitError, match=r'did not change within 0\.05 seconds'):
            await engine.write(inserting())
        await engine.aclose()
