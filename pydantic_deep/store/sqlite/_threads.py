"""Threads that run operations on connections of `sqlite3`: one that writes, with group commit, and some that read."""

from __future__ import annotations

import asyncio
import queue
import re
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeVar

from pydantic_deep.store.engine import Operation, Row, Statement, Value, run_blocking
from pydantic_deep.store.errors import StoreCorruptedError

from ._errors import translate_error

T = TypeVar('T')

_MAX_GROUP: Final = 256
"""At most how many operations share a transaction: others wait for the lock, and the first for the last."""


_PARAMETER: Final = re.compile(r'\?(\d+)')


def run_operation(connection: sqlite3.Connection, operation: Operation[T]) -> T:
    """Run an operation on a connection."""

    def execute(statement: Statement) -> list[Row]:
        sql, placed = _with_positional_parameters(statement.sql)
        if statement.many is None:
            return connection.execute(sql, placed(statement.parameters)).fetchall()
        connection.executemany(sql, map(placed, statement.many))
        return []

    try:
        return run_blocking(operation, execute)
    except UnicodeDecodeError as error:  # of a name or a message that `sqlite3` decodes
        raise StoreCorruptedError(None, None, f'text that is no UTF-8 ({error})') from error


@lru_cache(maxsize=256)
def _with_positional_parameters(sql: str) -> tuple[str, Callable[[Sequence[Value]], Sequence[Value]]]:
    """Return a statement with `?` for `?1`, `?2`, …, and what puts its parameters in the order of these.

    `sqlite3` takes numbered ones for named: it looks each up, and from Python 3.14 on refuses a sequence of them.
    """
    places = [int(number) - 1 for number in _PARAMETER.findall(sql)]
    in_order = places == list(range(len(places)))
    return _PARAMETER.sub('?', sql), tuple if in_order else lambda values: [values[place] for place in places]


@dataclass(eq=False)
class Job(Generic[T]):
    """An operation that somebody waits for."""

    operation: Callable[[], Operation[T]]
    future: asyncio.Future[T]
    loop: asyncio.AbstractEventLoop
    result: T | None = None
    error: BaseException | None = None

    def run(self, connection: sqlite3.Connection) -> None:
        """Run the operation, and keep what came of it for `finish`."""
        try:
            self.result = run_operation(connection, self.operation())
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the task that waits
            self.error = error

    def finish(self) -> None:
        """Hand over what came of it, to a task that may have been cancelled, on a loop that may be closed."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # pyright: ignore[reportArgumentType] - `run` has set it


class WorkerThread(ABC):
    """A thread with a connection of its own, made by `connect` when the first job comes."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], jobs: queue.SimpleQueue[Job[object] | None]) -> None:
        self._connect = connect
        self._jobs = jobs
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, name='pydantic-deep-store', daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended; a `None` among the jobs makes it end."""
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            is_last = self._work(job)
            del job  # what it returned may be a long history, and the next job may be long in coming
            if is_last:
                break
        self._disconnect()

    @abstractmethod
    def _work(self, job: Job[object]) -> bool:
        """Do one job, or several; return whether the end was among them."""

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class ReaderThread(WorkerThread):
    """Runs one operation after another, each on one consistent state."""

    def _work(self, job: Job[object]) -> bool:
        try:
            connection = self._connected()
            connection.execute('BEGIN')
            job.run(connection)
            connection.execute('ROLLBACK')
        except sqlite3.Error as error:
            job.error = job.error or error
        if isinstance(job.error, sqlite3.Error):
            job.error = translate_error(job.error)
            self._disconnect()
        job.finish()
        return False


class WriterThread(WorkerThread):
    """Runs all operations that wait in one transaction, each in a savepoint if there are several: they share one sync."""

    def _work(self, job: Job[object]) -> bool:
        jobs, is_last = self._waiting(job)
        try:
            connection = self._connected()
            connection.execute('BEGIN IMMEDIATE')
            for each in jobs:
                self._run_one(connection, each, is_alone=len(jobs) == 1)
            if len(jobs) > 1:
                connection.execute('COMMIT')
        except sqlite3.Error as error:
            self._fail(jobs, error)
        for each in jobs:
            each.finish()
        return is_last

    def _waiting(self, first: Job[object]) -> tuple[list[Job[object]], bool]:
        jobs = [first]
        while len(jobs) < _MAX_GROUP:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return jobs, True
            jobs.append(job)
        return jobs, False

    def _run_one(self, connection: sqlite3.Connection, job: Job[object], *, is_alone: bool) -> None:
        """Run an operation so that it does all or nothing; alone without a savepoint, which copies each changed page."""
        if not is_alone:
            connection.execute('SAVEPOINT job')
        job.run(connection)
        if job.error is None:
            connection.execute('COMMIT' if is_alone else 'RELEASE job')
            return
        if isinstance(job.error, sqlite3.Error):
            if not connection.in_transaction:
                raise job.error
            job.error = translate_error(job.error)
        connection.execute('ROLLBACK' if is_alone else 'ROLLBACK TO job')
        if not is_alone:
            connection.execute('RELEASE job')

    def _fail(self, jobs: list[Job[object]], error: sqlite3.Error) -> None:
        """Tell all that nothing was written, and begin anew: after a failed sync nothing of this connection is sure."""
        self._disconnect()
        for job in jobs:
            if job.error is None or isinstance(job.error, sqlite3.Error):
                job.error = translate_error(error)
