"""`Database`: a DuckDB database in a process of its own, accessed over a socket. All calls block."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

from . import _database_process as process
from ._database_process import QueryRequest, Settings, Statement

_SCRIPT: Final = str(Path(__file__).with_name('_database_process.py'))

_VARIABLES: Final = ('LD_LIBRARY_PATH', 'TZ')
"""Environment variables that the process inherits: the library path of the interpreter, and the time zone."""

_OVERHEAD_BYTES: Final = 2**20
"""Maximum overhead of a message beyond the size of its values."""


class DatabaseError(Exception):
    """A statement of ours failed, or the database process has ended."""


class Database:
    """A database in a process of its own, which ends with this process.

    Args:
        path: The file; `None` for memory.
        settings: Settings of DuckDB.
        setup: Statements to run first.
        keep: Descriptors that stay open while the process lives.

    Raises:
        DatabaseError: The database cannot be opened.
    """

    def __init__(
        self,
        path: Path | None,
        settings: Settings,
        setup: Sequence[Statement] = (),
        *,
        keep: Sequence[int] = (),
    ) -> None:
        self._lock = threading.Lock()
        self._queries: set[RunningQuery] = set()
        self._control, child_end = socket.socketpair()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, '-I', '-S', _SCRIPT, str(child_end.fileno()), *filter(None, sys.path)],
                cwd='/',
                env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(child_end.fileno(), *keep),
                start_new_session=True,
            )
        except OSError as error:
            self._control.close()
            raise DatabaseError(f'no process can be started for DuckDB: {error}') from error
        finally:
            child_end.close()
        try:
            self._request([None if path is None else str(path.absolute()), settings, list(setup)])
        except DatabaseError:
            self.close()
            raise

    def execute(self, sql: str, parameters: object = ()) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        return self.run([(sql, parameters)])

    def run(self, statements: Sequence[Statement]) -> list[tuple[Any, ...]]:
        """Run statements in one transaction, and return the rows of the last."""
        return cast('list[tuple[Any, ...]]', self._request(list(statements)))

    def start_query(self, request: QueryRequest) -> RunningQuery:
        """Start a caller's query.

        Raises:
            ValueError: A parameter has an unsupported type.
            DatabaseError: The database process has ended.
        """
        query = RunningQuery(self._queries)
        try:
            with self._lock:
                process.send_to(self._control, list(request), (query.output, query.cancel))
        except BaseException as error:
            query.close()
            if isinstance(error, OSError):
                raise DatabaseError('the process that held the database has ended') from error
            raise
        finally:
            query.close_child_ends()
        return query

    def close(self) -> None:
        """End all queries and the process."""
        for query in list(self._queries):
            query.end()
        self._control.close()
        self._process.wait()

    def _request(self, message: object) -> object:
        try:
            with self._lock:
                process.send_to(self._control, message)
                reply, _ = process.receive_from(self._control)
        except (OSError, EOFError) as error:
            raise DatabaseError('the process that held the database has ended') from error
        kind, value = cast('list[object]', reply)
        if kind == 'failed':
            raise DatabaseError(value)
        return value


class RunningQuery:
    """A running query: a pipe for its result, and a pipe that ends the query when this side closes it."""

    def __init__(self, running: set[RunningQuery]) -> None:
        self._answer, self.output = os.pipe()
        self.cancel, self._cancel_fd = os.pipe()
        self._lock = threading.Lock()
        self._is_ended = False
        self._running = running
        running.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close_child_ends(self) -> None:
        """Close the ends of the pipes that belong to the other process."""
        os.close(self.output)
        os.close(self.cancel)

    def next(self, max_bytes: int) -> tuple[str, Any]:
        """Return the kind and value of the next message.

        Raises:
            EOFError: The query has ended.
            ValueError: The message is too long or malformed.
        """
        kind, value = cast('tuple[str, Any]', process.receive(self._answer, max_bytes + _OVERHEAD_BYTES))
        return kind, value

    def end(self) -> None:
        """End the query. May be called from any thread."""
        with self._lock:
            if not self._is_ended:
                self._is_ended = True
                os.close(self._cancel_fd)

    def close(self) -> None:
        """End the query, and discard its result."""
        self.end()
        self._running.discard(self)
        os.close(self._answer)
