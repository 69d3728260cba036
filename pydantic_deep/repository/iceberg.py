"""`IcebergRepository`: rows in an Apache Iceberg table, for programs that analyze them. Extra `iceberg`.

Use it for exports, for example of audit records, that other programs read from a warehouse of files while rows are
added. For rows that change with every request, use `SqlRepository`: here each call that writes is a commit, which
creates several files and slows down later operations.

Measured on two busy cores, with a warehouse on a local disk and rows of 2 kB: a row in a commit of its own takes about
30 ms in a new table, and 0.6 s after 300 such commits, which leave 1,000 files of 25 MB in total; a thousand rows in
one commit take 0.4 s. A query takes 20 ms after a few commits, and 0.5 s after 300: pyiceberg copies the list of all
snapshots some twenty times for each commit, and looks at each file for each query.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from anyio import to_thread
from pydantic import BaseModel

from ._base import BlockingRepository, StoredRow
from ._changes import Step, net_changes
from ._model import RowModel
from ._question import Condition, Question
from ._table import table_name
from .errors import InvalidFieldError, RepositoryError, RepositoryFormatError, RepositoryUnavailableError

try:
    from pyiceberg import exceptions
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from sqlalchemy import URL

    from ._iceberg_filters import matching, page_of, with_keys
    from ._iceberg_rows import (
        BODY,
        DAMAGES,
        FAILURES,
        append_rows,
        open_table,
        read_bodies,
        read_keys,
        read_page,
        schema_of,
    )
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        'This repository needs pyiceberg, pyarrow and SQLAlchemy, which are not all installed. Install the extra: '
        "`pip install 'versioned-deep-agents[iceberg]'`.",
        name=_error.name,
    ) from _error

__all__ = ('IcebergRepository',)

T = TypeVar('T', bound=BaseModel)
M = TypeVar('M', bound=BaseModel)
R = TypeVar('R')

_NAMESPACE: Final = 'repository'
"""The namespace of our tables in a catalogue."""

_ATTEMPTS: Final = 10
"""Maximum number of attempts at a commit; each fails only if another commit has succeeded meanwhile."""

_WAIT_SECONDS: Final = 0.1
"""Maximum delay before the second attempt, increased by as much for each later one: the duration of a commit."""

_SQLITE: Final = b'SQLite format 3\0'
"""First bytes of a SQLite file: https://www.sqlite.org/fileformat.html"""


class IcebergRepository(BlockingRepository[T]):
    """A `Repository` in an Iceberg table, with transactions. Open it with `await IcebergRepository.open(…)`.

    The table has a column for each filterable field, of the type that other programs expect, and `_row` with the whole
    row as JSON. Many processes may use one table. Each call that writes is one commit, so write many rows with one
    `apply`. Filters use the statistics of files where they can, and read the remaining files. A page reads all rows
    that pass the filter, in batches, and retains those of the page. Replacing or removing a row rewrites whole files;
    old files remain for readers of older snapshots. Commits survive the end of the process; pyarrow does not sync
    files, so the last ones may not survive a loss of power.
    """

    @classmethod
    async def open(
        cls,
        warehouse: str | Path | Mapping[str, str],
        model: type[M],
        *,
        key: str = 'id',
        fields: Collection[str] = (),
        name: str | None = None,
    ) -> IcebergRepository[M]:
        """Open a table, creating it if necessary. One with other `fields` is rewritten from its rows, in one commit.

        Args:
            warehouse: A directory, which is created if necessary, with a SQLite catalogue in it, `catalog.db`; or the
                properties of another catalogue, as for `pyiceberg.catalog.load_catalog`.
            model: The model of the rows.
            key: The key field: text, or a UUID.
            fields: Fields for filters and ordering, in addition to the key.
            name: The name of the table in the namespace `repository`; derived from the name of the model by default.

        Raises:
            ValueError: The name is not valid for a table, or the properties are not those of a catalogue.
            InvalidFieldError: The model has no such field, its values cannot be compared, or the table has another key.
            RepositoryFormatError: The warehouse or the table belongs to another program.
            RepositoryUnavailableError: The catalogue or the files cannot be reached.
            UnreadableRowError: A row that needs a new column is not valid for the model.
        """
        rows = RowModel(model, key=key, fields=fields)
        table = await to_thread.run_sync(_open, warehouse, table_name(rows.name, name), rows)
        return IcebergRepository(rows, table)


class _Table:
    """A table in a catalogue. All calls block: run them in a thread, one at a time."""

    def __init__(self, catalog: Catalog, name: str, model: RowModel[T]) -> None:
        """Open the table, creating it if necessary."""
        self._catalog = catalog
        self._name = (_NAMESPACE, name)
        self._model = model.name
        self._key = model.key
        self._columns = sorted(model.columns.values(), key=lambda column: column.name)
        self._schema = schema_of(model.key, self._columns)
        table = open_table(catalog, self._name, self._schema)
        if _types(table.schema()) != _types(self._schema):
            self._commit(lambda: self._rewrite(model))

    def read(self, work: Callable[[Table], R]) -> R:
        """Run a function on the newest snapshot."""
        with _translate_errors(f'The table {self._name[1]!r} cannot be read'):
            return work(self._load())

    def body(self, key: str) -> str | None:
        """Return the body of a row."""
        return self.read(lambda table: self._body(table, key))

    def page(self, question: Question) -> list[StoredRow]:
        """Return the rows of a page, and the row after it if there is one."""
        return self.read(lambda table: read_page(table, self._key, page_of(question, self._key), question))

    def count(self, conditions: Sequence[Condition]) -> int:
        """Return the number of rows for which all conditions hold."""
        return self.read(lambda table: table.scan(matching(conditions)).count())

    def write(self, steps: Sequence[Step]) -> set[str]:
        """Apply all steps in one commit; return those of their keys that had a row before."""
        return self._commit(lambda: self._write(self._load(), steps))

    def update(self, key: str, step: Callable[[str | None], Step | None]) -> None:
        """Apply the step for the body of a row, in one commit after the snapshot in which it was read."""

        def apply() -> None:
            table = self._load()
            made = step(self._body(table, key))
            if made is not None:
                self._write(table, [made])

        self._commit(apply)

    def close(self) -> None:
        """Close the catalogue."""
        self._catalog.close()

    def _body(self, table: Table, key: str) -> str | None:
        rows = list(read_bodies(table, self._key, with_keys(self._key, [key])))
        return next((body for _, body in rows), None)

    def _load(self) -> Table:
        table = self._catalog.load_table(self._name)
        if _types(table.schema()) != _types(self._schema):
            raise RepositoryUnavailableError(
                f'The table {self._name[1]!r} has since been opened with other fields, and rewritten. Use the same '
                'fields wherever it is open.'
            )
        return table

    def _commit(self, work: Callable[[], R]) -> R:
        """Run a function that commits, and retry after conflicting commits."""
        with _translate_errors(f'The table {self._name[1]!r} cannot be written'):
            for attempt in range(_ATTEMPTS):
                try:
                    return work()
                except exceptions.CommitFailedException:
                    time.sleep(_WAIT_SECONDS * attempt * random.random())  # noqa: S311 - spreads the attempts
            raise RepositoryUnavailableError(
                f'The table {self._name[1]!r} was changed by others during each of {_ATTEMPTS} attempts to '
                'commit. Try again, or write more rows with each commit.'
            )

    def _write(self, table: Table, steps: Sequence[Step]) -> set[str]:
        present = read_keys(table, self._key, with_keys(self._key, {step.key for step in steps}))
        rows = [row for row in net_changes(self._model, steps, present).values() if row is not None]
        with table.transaction() as transaction:
            if present:
                transaction.delete(with_keys(self._key, present))
            if rows:
                append_rows(transaction, self._key, self._columns, rows)
        return present

    def _rewrite(self, model: RowModel[T]) -> None:
        """Change the columns of a table, and rewrite all of its rows."""
        table = self._catalog.load_table(self._name)
        stored_types, expected = _types(table.schema()), _types(self._schema)
        self._check_is_ours(table, model)
        rows = [model.encode_again(*row) for row in read_bodies(table, self._key, AlwaysTrue())]
        with table.transaction() as transaction:
            with transaction.update_schema() as update:
                for name in stored_types:
                    if stored_types[name] != expected.get(name):
                        update.delete_column(name)
            with transaction.update_schema() as update:
                for field in self._schema.fields:
                    if stored_types.get(field.name) != expected[field.name]:
                        update.add_column(field.name, field.field_type)
            if rows:
                transaction.delete(AlwaysTrue())
                append_rows(transaction, self._key, self._columns, rows)

    def _check_is_ours(self, table: Table, model: RowModel[T]) -> None:
        types = _types(table.schema())
        if types.get(BODY) != 'string required':
            raise RepositoryFormatError(f'The table {self._name[1]!r} is not that of a repository. Use another `name`.')
        keys = [field.name for field in table.schema().fields if field.field_id in table.schema().identifier_field_ids]
        if keys != [model.key.name]:
            raise InvalidFieldError(
                model.name,
                model.key.name,
                f'the table {self._name[1]!r} has the key {", ".join(keys)!r}. Use that key, or another `name`',
            )


def _open(warehouse: str | Path | Mapping[str, str], name: str, model: RowModel[T]) -> _Table:
    with _translate_errors(
        'The warehouse cannot be opened', damages=()
    ):  # invalid properties of a catalogue raise a `ValueError`
        catalog = load_catalog('default', **warehouse) if isinstance(warehouse, Mapping) else _local(Path(warehouse))
    with _translate_errors(f'The table {name!r} cannot be opened'):
        try:
            return _Table(catalog, name, model)
        except BaseException:
            catalog.close()
            raise


def _local(directory: Path) -> Catalog:
    """Return a SQLite catalogue in a directory, which is created if necessary."""
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / 'catalog.db'
    if file.exists() and file.stat().st_size:
        with file.open('rb') as opened:
            if opened.read(len(_SQLITE)) != _SQLITE:
                raise RepositoryFormatError(f'{str(file)!r} is not a SQLite catalogue. Choose another directory.')
    url = URL.create('sqlite', database=str(file)).render_as_string()
    return SqlCatalog('default', uri=url, warehouse=str(directory))


def _types(schema: Schema) -> dict[str, str]:
    """Return the types of columns, keyed by name; the key and the row are required columns."""
    return {field.name: f'{field.field_type}{" required" if field.required else ""}' for field in schema.fields}


@contextmanager
def _translate_errors(action: str, damages: tuple[type[Exception], ...] = DAMAGES) -> Generator[None]:
    try:
        yield
    except RepositoryError:
        raise
    except (*FAILURES, *damages) as error:
        reason = str(error).strip().splitlines()
        raise RepositoryUnavailableError(
            f'{action}: {reason[0] if reason else type(error).__name__}. Make sure that the catalogue is reachable, and '
            'that no other program deletes or changes files of the warehouse.'
        ) from error
