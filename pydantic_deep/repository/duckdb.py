"""`DuckdbRepository`: rows in a DuckDB file, which other programs can analyze while it is closed. Extra `duckdb`.

Use it for catalogues and results that are read often and written seldom or in bulk. For rows that change with every
request, and for several processes, use `SqlRepository`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar, cast
from weakref import WeakValueDictionary

from anyio import to_thread
from pydantic import BaseModel

from pydantic_deep.store.engine import Operation, Row, Statement, run_blocking

from ._base import BlockingRepository, StoredRow
from ._changes import Step, net_changes
from ._duckdb_sql import BODY, DuckdbTable, Query
from ._model import EncodedRow, RowModel
from ._question import Condition, Question
from ._questions_sql import count_rows, get_row, list_rows
from ._table import table_name
from .errors import InvalidFieldError, RepositoryFormatError, RepositoryUnavailableError

try:
    import duckdb
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        'This repository needs DuckDB, which is not installed. Install the extra: '
        "`pip install 'versioned-deep-agents[duckdb]'`.",
        name=_error.name,
    ) from _error

__all__ = ('DuckdbRepository',)

T = TypeVar('T', bound=BaseModel)
M = TypeVar('M', bound=BaseModel)
R = TypeVar('R')

_MEMORY: Final = ':memory:'

_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    'autoinstall_known_extensions': 'false',
    'autoload_known_extensions': 'false',
    'allow_community_extensions': 'false',
    'allow_persistent_secrets': 'false',
    'python_enable_replacements': 'false',
    'enable_external_access': 'false',
    'lock_configuration': 'true',
    'memory_limit': '1GB',
    'threads': '4',
}
"""Settings for a database within another program, without access to anything but its file. All repositories use the
same ones: DuckDB opens a file twice in one process only with equal settings.
"""

_MAGIC: Final = slice(8, 12)
"""Position of the magic bytes `DUCK` in a DuckDB file: https://duckdb.org/docs/stable/internals/storage"""


class DuckdbRepository(BlockingRepository[T]):
    """A `Repository` in a table of a DuckDB file, with transactions. Open it with `await DuckdbRepository.open(…)`.

    The table has a column for each filterable field, `TIMESTAMP` in UTC without a zone, and `_row` with the whole row
    as JSON. Only one process at a time can have the file open, with any number of repositories. Calls run in a thread,
    one at a time per repository, and complete even if their task is cancelled.
    """

    @classmethod
    async def open(
        cls,
        path: str | Path,
        model: type[M],
        *,
        key: str = 'id',
        fields: Collection[str] = (),
        name: str | None = None,
    ) -> DuckdbRepository[M]:
        """Open a file and the table in it, creating them if necessary. A table with other `fields` is rebuilt from its
        rows.

        Args:
            path: The file; `:memory:` for a database that is discarded when it is closed.
            model: The model of the rows.
            key: The key field: text, or a UUID.
            fields: Fields for filters and ordering, in addition to the key.
            name: The name of the table; derived from the name of the model by default.

        Raises:
            ValueError: The name is not valid for a table.
            InvalidFieldError: The model has no such field, its values cannot be compared, or the table has another key.
            RepositoryFormatError: The file is not a DuckDB file, or the table is not that of a repository.
            RepositoryUnavailableError: The file cannot be opened or is damaged, or another process has it open.
            UnreadableRowError: A row that needs a new column is not valid for the model.
        """
        rows = RowModel(model, key=key, fields=fields)
        table = DuckdbTable(table_name(rows.name, name), rows.key, rows.columns.values())
        return DuckdbRepository(rows, await to_thread.run_sync(_open, path, rows, table))


class _Database:
    """A connection to a file. All calls block: run them in a thread, one at a time."""

    def __init__(self, path: str, model: str, table: DuckdbTable) -> None:
        self._path = path
        self._model = model
        self._table = table
        self._connection = duckdb.connect(path, config=_SETTINGS)
        self._file_state = _file_state_of(path)

    def prepare(self, model: RowModel[T]) -> None:
        """Create the table; if it has other columns, rebuild it from its rows."""
        table = self._table
        with self._file_state.writing, self._transaction():
            types = dict(cast('list[tuple[str, str]]', self._execute(table.described())))
            if not _is_same(types, table.types):
                rows = self._rows_to_rebuild(model, types)
                if types:
                    self._execute(table.drop())
                self._execute(table.create())
                if rows:
                    self._execute(table.insert(rows))
        self._file_state.types_by_table[table.name] = table.types

    def body(self, key: str) -> str | None:
        """Return the body of a row."""
        return self._read(get_row(self._table.names, key))

    def page(self, question: Question) -> list[StoredRow]:
        """Return the rows of a page, and the row after it if there is one."""
        return self._read(list_rows(self._table.names, question))

    def count(self, conditions: Sequence[Condition]) -> int:
        """Return the number of rows for which all conditions hold."""
        return self._read(count_rows(self._table.names, conditions))

    def write(self, steps: Sequence[Step]) -> set[str]:
        """Apply all steps in one transaction; return those of their keys that had a row before."""
        with self._writing():
            return self._apply(steps)

    def update(self, key: str, step: Callable[[str | None], Step | None]) -> None:
        """Apply the step for the body of a row."""
        with self._writing():
            made = step(run_blocking(get_row(self._table.names, key), self._execute))
            if made is not None:
                self._apply([made])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _writing(self) -> Generator[None]:
        with self._translate_errors('written'), self._file_state.writing, self._transaction():
            self._check_types()
            yield

    def _apply(self, steps: Sequence[Step]) -> set[str]:
        keys = list({step.key: None for step in steps})
        existing = {cast('str', key) for (key,) in self._execute(self._table.existing(keys))}
        after = net_changes(self._model, steps, existing)
        if existing:
            self._execute(self._table.delete(sorted(existing)))
        rows = [row for row in after.values() if row is not None]
        if rows:
            self._execute(self._table.insert(rows))
        return existing

    def _read(self, operation: Operation[R]) -> R:
        with self._translate_errors('read'), self._transaction():
            self._check_types()
            return run_blocking(operation, self._execute)

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """Run statements on one consistent state, and commit them."""
        self._connection.begin()
        try:
            yield
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def _rows_to_rebuild(self, model: RowModel[T], types: Mapping[str, str]) -> list[EncodedRow]:
        """Return all rows of a table with the same key, encoded for the new columns."""
        table = self._table
        if not types:
            return []
        if types.get(BODY) != 'VARCHAR':
            raise RepositoryFormatError(
                f'The table {table.name!r} in {self._path!r} is not that of a repository. Use another `name`.'
            )
        if (stored_key := next(iter(types))) != model.key.name:
            raise InvalidFieldError(
                model.name,
                model.key.name,
                f'the table {table.name!r} has the key {stored_key!r}. Use that key, or another `name`',
            )
        rows = cast('list[tuple[str, str]]', self._execute(table.all_rows()))
        return [model.encode_again(key, body) for key, body in rows]

    def _check_types(self) -> None:
        table = self._table
        if not _is_same(self._file_state.types_by_table[table.name], table.types):
            raise RepositoryUnavailableError(
                f'The table {table.name!r} in {self._path!r} has since been opened with other fields, and rebuilt. Use '
                'the same fields wherever it is open.'
            )

    def _execute(self, query: Query | Statement) -> list[Row]:
        return self._connection.execute(query.sql, query.parameters).fetchall()

    @contextmanager
    def _translate_errors(self, done: str) -> Generator[None]:
        try:
            yield
        except duckdb.Error as error:
            raise RepositoryUnavailableError(
                f'{self._path!r} cannot be {done}: {_first_line(error)} Make sure that the disk has space, and that '
                'no other program changes the file; then close the repository and open it again.'
            ) from error


def _open(path: str | Path, model: RowModel[T], table: DuckdbTable) -> _Database:
    place = _MEMORY if path == _MEMORY else str(Path(path).resolve())
    try:
        if place != _MEMORY:
            _check_file(Path(place))
        database = _Database(place, model.name, table)
        try:
            database.prepare(model)
        except BaseException:
            database.close()
            raise
    except (duckdb.Error, OSError) as error:
        raise RepositoryUnavailableError(
            f'{place!r} cannot be opened: {_first_line(error)} Only one process at a time can have a DuckDB file open, and '
            'its directory must exist and be writable.'
        ) from error
    return database


def _check_file(path: Path) -> None:
    """Refuse files that DuckDB would open with an extension, such as SQLite files."""
    if not path.exists():
        return
    with path.open('rb') as file:
        start = file.read(_MAGIC.stop)
    if start[_MAGIC] != b'DUCK':
        raise RepositoryFormatError(f'{str(path)!r} is not a DuckDB file. Choose another path.')


def _is_same(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether tables have the same columns in the same order; the key comes first."""
    return [*one.items()] == [*other.items()]


def _first_line(error: Exception) -> str:
    return f'{str(error).strip().splitlines()[0].rstrip(".")}.'


class _FileState:
    """State shared by all repositories on one file; DuckDB lets only one process open a file."""

    def __init__(self) -> None:
        self.writing: Final = threading.Lock()
        """Serializes writes: DuckDB would start concurrent ones, and then refuse all but one."""
        self.types_by_table: Final[dict[str, Mapping[str, str]]] = {}
        """The columns of each table, as of the last time that it was opened."""


def _file_state_of(path: str) -> _FileState:
    if path == _MEMORY:
        return _FileState()
    with _FILE_STATES_LOCK:
        return _FILE_STATES.setdefault(path, _FileState())


_FILE_STATES_LOCK: Final = threading.Lock()
_FILE_STATES: Final[WeakValueDictionary[str, _FileState]] = WeakValueDictionary()
"""The state of each open file, keyed by path."""
