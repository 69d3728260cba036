"""Operations on a connection: their statements, with or without a transaction."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import Final, TypeVar

import asyncpg

from pydantic_deep.store.engine import Operation, Row, Statement
from pydantic_deep.store.errors import StoreError

from ._driver import Connection
from ._errors import LOST
from ._lost_commits import SHOW_ID

T = TypeVar('T')

BEGIN_READ: Final = 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY'
BEGIN_READ_WITH_TABLES: Final = 'BEGIN ISOLATION LEVEL REPEATABLE READ'
BEGIN_WRITE: Final = (
    'BEGIN ISOLATION LEVEL READ COMMITTED;'
    f"SELECT pg_advisory_xact_lock_shared(x'70646565'::integer, hashtext(current_schema())), {SHOW_ID}"
)
"""The key of the lock is `pdee` and the schema."""

BEGIN_ALONE: Final = BEGIN_WRITE.replace('_shared', '')


class MultipleStatementsError(Exception):
    """An operation has more than one statement."""


class OperationError(Exception):
    """An operation raised an error that resembles one of a connection, such as that of a file that it reads.

    Attributes:
        error: The error of the operation.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


async def run_only_statement(connection: Connection, operation: Operation[T]) -> T:
    """Run an operation without a transaction.

    Raises:
        MultipleStatementsError: It needs one, because it has several statements.
    """
    try:
        rows = await _run_statement(connection, _resume(operation, None))
        _resume(operation, rows)
    except StopIteration as stop:
        return stop.value
    finally:
        operation.close()
    raise MultipleStatementsError


async def run_operation(connection: Connection, operation: Operation[T]) -> T:
    """Run all statements of an operation in the current transaction."""
    try:
        statement = _resume(operation, None)
        while True:
            statement = _resume(operation, await _run_statement(connection, statement))
    except StopIteration as stop:
        return stop.value
    finally:
        operation.close()


def _resume(operation: Operation[T], rows: list[Row] | None) -> Statement:
    try:
        return next(operation) if rows is None else operation.send(rows)
    except StoreError:
        raise
    except LOST as error:
        raise OperationError(error) from error


async def _run_statement(connection: Connection, statement: Statement) -> list[Row]:
    sql = _numbered(statement.sql)
    if statement.many is not None:
        await connection.executemany(sql, statement.many)
        return []
    return [tuple(row) for row in await connection.fetch(sql, *statement.parameters)]


@lru_cache(maxsize=2048)
def _numbered(sql: str) -> str:
    """Return a statement in PostgreSQL's notation: with its parameters, and with its lock of rows."""
    return re.sub(r'/\* (FOR [A-Z a-z]+) \*/', r'\1', re.sub(r'\?(?=[0-9])', '$', sql))


@asynccontextmanager
async def transaction(connection: Connection, begin: str) -> AsyncGenerator[None]:
    """Begin a transaction, and roll it back on any error; committing is up to the caller."""
    try:
        await connection.execute(begin)
        yield
    except BaseException:
        await _roll_back(connection)
        raise


async def _roll_back(connection: Connection) -> None:
    """Roll back, or terminate the connection: the original error takes precedence."""
    try:
        await connection.execute('ROLLBACK')
    except LOST:
        with suppress(asyncpg.InterfaceError):  # it was released when it was closed
            connection.terminate()
