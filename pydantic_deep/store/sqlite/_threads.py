"""Threads that run operations on `sqlite3` connections: one writer, with group commit, and several readers."""

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
"""Maximum number of operations in one transaction: other processes wait for its lock, and its first operation for its
last.
"""


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
    except UnicodeDecodeError as error:  # in a name or message that `sqlite3` decodes
        raise StoreCorruptedError(None, None, f'invalid UTF-8 ({error})') from error


@lru_cache(maxsize=256)
def _with_positional_parameters(sql: str) -> tuple[str, Callable[[Sequence[Value]], Sequence[Value]]]:
    """Return a statement with `?` for `?1`, `?2`, …, and a function that puts the parameters in that order.

    `sqlite3` treats numbered parameters as named: it looks up each, and from Python 3.14 on refuses a sequence of them.
    """
    places = [int(number) - 1 for number in _PARAMETER.findall(sql)]
    in_order = places == list(range(len(places)))
    return _PARAMETER.sub('?', sql), tuple if in_order else lambda values: [values[place] for place in places]


@dataclass(eq=False)
class Job(Generic[T]):
    """An operation with the future for its result."""

    operation: Callable[[], Operation[T]]
    future: asyncio.Future[T]
    loop: asyncio.AbstractEventLoop
    result: T | None = None
    error: BaseException | None = None

    def run(self, connection: sqlite3.Connection) -> None:
        """Run the operation, and store its result or error for `finish`."""
        try:
            self.result = run_operation(connection, self.operation())
        except BaseException as error:  # noqa: BLE001 - every error belongs to the awaiting task
            self.error = error

    def finish(self) -> None:
        """Resolve the future. The task may have been cancelled, and its loop may be closed."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # pyright: ignore[reportArgumentType] - set by `run`


class WorkerThread(ABC):
    """A thread with a connection of its own, which `connect` opens for the first job."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], jobs: queue.SimpleQueue[Job[object] | None]) -> None:
        self._connect = connect
        self._jobs = jobs
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, name='pydantic-deep-store', daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended; a `None` among the jobs ends it."""
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            is_last = self._work(job)
            del job  # its result may be a long history, and the next job may arrive much later
            if is_last:
                break
        self._disconnect()

    @abstractmethod
    def _work(self, job: Job[object]) -> bool:
        """Run one or more jobs; return whether the end marker was among them."""

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class ReaderThread(WorkerThread):
    """Runs one operation at a time, each on one consistent snapshot."""

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
    """Runs all pending operations in one transaction with one sync. If there are several, each has a savepoint."""

    def _work(self, job: Job[object]) -> bool:
        jobs, is_last = self._pending(job)
        try:
            connection = self._connected()
            connection.execute('BEGIN IMMEDIATE')
            for grouped in jobs:
                self._run_one(connection, grouped, is_alone=len(jobs) == 1)
            if len(jobs) > 1:
                connection.execute('COMMIT')
        except sqlite3.Error as error:
            self._fail(jobs, error)
        for grouped in jobs:
            grouped.finish()
        return is_last

    def _pending(self, first: Job[object]) -> tuple[list[Job[object]], bool]:
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
        """Run an operation atomically. A single one runs without a savepoint, which would copy each changed page."""
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
        """Fail all jobs, as nothing was written, and reconnect: after a failed sync the state of this connection is
        unknown.
        """
        self._disconnect()
        for job in jobs:
            if job.error is None or isinstance(job.error, sqlite3.Error):
                job.error = translate_error(error)
