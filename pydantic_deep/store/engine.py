"""The interface between `SqlStore` and a database: operations are generators that yield statements and receive rows.

An operation is independent of drivers and of how they block, so the same code runs on SQLite in a thread and on
PostgreSQL over a socket. Its SQL is in the dialect that both understand; parameters are numbered `?1`, `?2`, ….
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

Value: TypeAlias = str | int | float | bytes | None
"""The type of a parameter or column: `TEXT`, `BIGINT`, `DOUBLE PRECISION`, `BYTEA`/`BLOB`, `NULL`."""

Row: TypeAlias = tuple[Value, ...]
"""The values of one row, in the order of the columns."""

T = TypeVar('T')


class Statement(NamedTuple):
    """One SQL statement and its parameters."""

    sql: str
    """The text, with numbered parameters: `?1`, `?2`, …"""
    parameters: Sequence[Value] = ()
    """Values of the numbered parameters, in order."""
    many: Sequence[Sequence[Value]] | None = None
    """Parameter sets: the statement runs once for each and returns no rows."""


Operation: TypeAlias = Generator[Statement, list[Row], T]
"""Yields statements, receives the rows of each, and returns a value. Database errors are raised at the `yield`."""


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


def for_update(alias: str = '') -> str:
    """Return the suffix of a `SELECT` in a write that locks the rows, of one table of a join if `alias` names it.

    It waits until no other write has locked or changed the rows, and returns their current values. An engine that runs
    one write at a time reads a comment.
    """
    return f' /* FOR UPDATE{alias and f" OF {alias}"} */'


def for_key_share(alias: str = '') -> str:
    """Return a suffix like that of `for_update` which only prevents other writes from deleting the rows."""
    return f' /* FOR KEY SHARE{alias and f" OF {alias}"} */'


class WriteNeededError(Exception):
    """An operation that ran under `only_reading` tried to write."""


def only_reading(operation: Operation[T]) -> Operation[T]:
    """Run an operation to its end, or to the first statement that writes.

    Raises:
        WriteNeededError: The operation tried to write; nothing was changed.
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
    """Run an operation that seldom writes: first as a read, then again without other writes if it tries to write."""
    try:
        return await engine.read(lambda: only_reading(operation()))
    except WriteNeededError:
        return await engine.write_alone(operation)


class Engine(Protocol):
    """A database that runs operations in transactions."""

    @property
    def url(self) -> str:
        """The URL that opens this database again with `open_store`, without the password."""
        ...

    @property
    def owner(self) -> str:
        """A name that is unique among all open connections to the same database."""
        ...

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run a read-only operation on one consistent snapshot."""
        ...

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation in a transaction of its own, and return once it is durable.

        Writes may run at the same time, in this and in other processes. A statement sees what was committed before it,
        and what its own operation has written. A row that an operation has changed, deleted, or selected with
        `for_update` is not changed by others until it ends, and neither is a unique key that it has inserted: they
        wait, then see its outcome. Nothing else is serialized. An operation that decides by the rows that it reads
        must therefore lock these, or rely on a unique key.

        The operation may be called several times if the database requires a transaction to be retried, as after a
        deadlock. An exception in it rolls back its own changes and no others. Once started it completes, even if the
        awaiting task is cancelled.
        """
        ...

    async def write_unsynced(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation like `write`, whose changes a crash of the database may lose, and which may run twice.

        For a database that can commit without waiting for its disk, the operation is one statement that does so.
        """
        ...

    async def write_alone(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation like `write`, but after the writes in progress, and before those that start later.

        It is for changes of tables, and for writes to all rows.
        """
        ...

    async def wait_for_writes(self) -> bool:
        """Wait until the writes in progress have ended, without delaying any write.

        Returns:
            Whether writes run at the same time in this engine. If not, rows become visible in the order of their numbers.

        Rows get increasing numbers in the order of their insertion, and become visible in the order of the commits. A
        reader that follows a table notes the highest number, calls this method, and then reads up to that number: none
        of these rows appears later.
        """
        ...

    async def read_with_tables(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation like `read`, which may also create, fill and drop temporary tables."""
        ...

    async def living_owners(self, owners: Sequence[str]) -> set[str]:
        """Return the owners that are alive. Liveness does not depend on a clock, and no live owner is omitted."""
        ...

    async def aclose(self) -> None:
        """Complete the operations in progress, and close."""
        ...
