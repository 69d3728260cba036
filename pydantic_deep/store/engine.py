"""What a database must do for `SqlStore`: run operations, which are generators that yield statements and get rows.

An operation knows nothing of drivers or of waiting, so that one text of it works on SQLite, in a thread, and on
PostgreSQL, over a socket. Its SQL is what both understand; parameters are `?1`, `?2`, … in statements.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

Value: TypeAlias = str | int | float | bytes | None
"""What a parameter or a column may be: `TEXT`, `BIGINT`, `DOUBLE PRECISION`, `BYTEA`/`BLOB`, `NULL`."""

Row: TypeAlias = tuple[Value, ...]
"""The values of one row, in the order of the columns."""

T = TypeVar('T')


class Statement(NamedTuple):
    """One SQL statement."""

    sql: str
    """Parameters are numbered: `?1`, `?2`, …"""
    parameters: Sequence[Value] = ()
    """Those of the statement."""
    many: Sequence[Sequence[Value]] | None = None
    """If given, the statement is run once for each of these, and returns no rows."""


Operation: TypeAlias = Generator[Statement, list[Row], T]
"""Yields statements, is sent the rows of each, returns a value. Errors of the database are raised where it yields."""


def run_blocking(operation: Operation[T], execute: Callable[[Statement], list[Row]]) -> T:
    """Run an operation with a function that executes a statement and returns its rows."""
    try:
        statement = next(operation)
        while True:
            statement = operation.send(execute(statement))
    except StopIteration as stop:
        return stop.value
    finally:
        operation.close()


class WriteNeededError(Exception):
    """An operation that ran under `only_reading` wanted to write."""


def only_reading(operation: Operation[T]) -> Operation[T]:
    """Run an operation up to its end, or up to the first statement that writes.

    Raises:
        WriteNeededError: It wants to write; nothing was changed.
    """
    try:
        statement = next(operation)
        while statement.sql.startswith('SELECT'):
            statement = operation.send((yield statement))
    except StopIteration as stop:
        return stop.value
    finally:
        operation.close()
    raise WriteNeededError


async def read_or_write(engine: Engine, operation: Callable[[], Operation[T]]) -> T:
    """Run an operation that seldom changes anything: without a write lock, unless it wants to write."""
    try:
        return await engine.read(lambda: only_reading(operation()))
    except WriteNeededError:
        return await engine.write(operation)


class Engine(Protocol):
    """A database."""

    @property
    def url(self) -> str:
        """What `open_store` would open it again with, without a password."""
        ...

    @property
    def owner(self) -> str:
        """Names this connection among all that are open on the same place."""
        ...

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation that changes nothing, on one consistent state."""
        ...

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation in a transaction of its own, and return when it is durable.

        Operations that write take turns, in all processes: each sees what the one before it has done.

        It may be called several times, if the database asks for a transaction to be repeated. An exception that it
        raises rolls back all that it did, and nothing that others did. Once begun it ends, also if the task that
        waits is cancelled.
        """
        ...

    async def living_owners(self, owners: Sequence[str]) -> set[str]:
        """Return those of the owners that are alive: no clock decides that, and nobody who is alive is left out."""
        ...

    async def aclose(self) -> None:
        """End what runs, and close."""
        ...
