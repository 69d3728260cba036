"""`IcebergRepository`: rows in a table of Apache Iceberg, for programs that analyse them. Extra `iceberg`.

It is for exports, as of audit records, that other programs read from a warehouse of files while we go on adding to it.
For rows that change with every request use `SqlRepository`: here each call that writes is a commit, which makes some
files, and slows down what comes after it.

Measured on two busy cores, with a warehouse on a local disk and rows of 2 kB: a row in a commit of its own takes about
30 ms in a new table, and 0.6 s after 300 such commits, which leave 1,000 files of 25 MB together; a thousand rows in one
commit take 0.4 s. A question takes 20 ms after a few commits, and 0.5 s after 300: pyiceberg copies the list of all
snapshots some twenty times for each commit, and looks at each file for each question.
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
from .errors import (
    InvalidFieldError,
    RepositoryError,
    RepositoryFormatError,
    RepositoryUnavailableError,
)

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
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'This repository needs pyiceberg, pyarrow and SQLAlchemy, which are not all installed. Install the extra: '
        "`pip install 'pydantic-deep[iceberg]'`.",
        name=error.name,
    ) from error

__all__ = ('IcebergRepository',)

T = TypeVar('T', bound=BaseModel)
M = TypeVar('M', bound=BaseModel)
R = TypeVar('R')

_NAMESPACE: Final = 'repository'
"""Where our tables are in a catalogue."""

_ATTEMPTS: Final = 10
"""How often a commit is tried; each fails only if another one has succeeded in between."""

_WAIT_SECONDS: Final = 0.1
"""Up to this is waited before the second attempt, and so much more before each later one: as long as a commit takes."""

_SQLITE: Final = b'SQLite format 3\0'
"""How a file of SQLite begins: https://www.sqlite.org/fileformat.html"""


class IcebergRepository(BlockingRepository[T]):
    """A `Repository` in a table of Iceberg, with transactions. Make it with `await IcebergRepository.open(…)`.

    A column for each field that can be asked by, of the type that others expect, and `_row` with the whole row as JSON.
    Many processes may use one table. Each call that writes is one commit, so write many rows by one `apply`. What may
    be filtered by statistics of files is; the rest of the filter reads the files that are left. A page reads all rows
    that the filter lets pass, in batches, and keeps those of the page. Whole files are written anew when a row in them
    is replaced or removed, and old ones stay, for those who read an older snapshot. Commits survive the end of the
    process; pyarrow does not sync files, so the last ones may not survive a loss of power.
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
        """Open a table, or make it. One with other `fields` is written anew from its rows, in one commit.

        Args:
            warehouse: A directory, which is made with a catalogue of SQLite in it, `catalog.db`, if it is not there;
                or the properties of another catalogue, as `pyiceberg.catalog.load_catalog` takes them.
            model: What its rows are.
            key: The field that is the key: text, or a UUID.
            fields: Fields that can be filtered and ordered by, beside the key.
            name: That of the table in the namespace `repository`; made of the name of the model if left out.

        Raises:
            ValueError: The name cannot be one of a table, or the properties are of no catalogue.
            InvalidFieldError: The model has no such field, its values cannot be compared, or the table has another key.
            RepositoryFormatError: There is something else.
            RepositoryUnavailableError: The catalogue or the files cannot be reached.
            UnreadableRowError: A row that is to be asked by a new field is none of the model.
        """
        asked = RowModel(model, key=key, fields=fields)
        table = await to_thread.run_sync(_opened, warehouse, table_name(asked.name, name), asked)
        return IcebergRepository(asked, table)


class _Table:
    """A table in a catalogue. Everything here blocks: call it in a thread, one at a time."""

    def __init__(self, catalog: Catalog, name: str, model: RowModel[T]) -> None:
        """Find it, or make it."""
        self._catalog = catalog
        self._name = (_NAMESPACE, name)
        self._model = model.name
        self._key = model.key
        self._columns = sorted(model.columns.values(), key=lambda column: column.name)
        self._schema = schema_of(model.key, self._columns)
        table = open_table(catalog, self._name, self._schema)
        if _types(table.schema()) != _types(self._schema):
            self._committed(lambda: self._write_anew(model))

    def read(self, work: Callable[[Table], R]) -> R:
        """Do something with the newest snapshot."""
        with _translate_errors(f'The table {self._name[1]!r} cannot be read'):
            return work(self._loaded())

    def body(self, key: str) -> str | None:
        """Return the body of a row."""
        rows = self.read(lambda table: list(read_bodies(table, self._key, with_keys(self._key, [key]))))
        return next((body for _, body in rows), None)

    def page(self, question: Question) -> list[StoredRow]:
        """Return the rows of a page, and the row after it if there is one."""
        return self.read(lambda table: read_page(table, self._key, page_of(question, self._key), question))

    def count(self, conditions: Sequence[Condition]) -> int:
        """Return how many rows there are."""
        return self.read(lambda table: table.scan(matching(conditions)).count())

    def write(self, steps: Sequence[Step]) -> set[str]:
        """Make all steps in one commit; return those of their keys that had a row before."""
        return self._committed(lambda: self._write(self._loaded(), steps))

    def close(self) -> None:
        """Close the catalogue."""
        self._catalog.close()

    def _loaded(self) -> Table:
        table = self._catalog.load_table(self._name)
        if _types(table.schema()) != _types(self._schema):
            raise RepositoryUnavailableError(
                f'The table {self._name[1]!r} was opened with other fields since, and written anew. Open it with the '
                'same fields wherever it is open.'
            )
        return table

    def _committed(self, work: Callable[[], R]) -> R:
        """Do something that commits, again if another commit came in between."""
        with _translate_errors(f'The table {self._name[1]!r} cannot be written'):
            for attempt in range(_ATTEMPTS):
                try:
                    return work()
                except exceptions.CommitFailedException:
                    time.sleep(_WAIT_SECONDS * attempt * random.random())  # noqa: S311 - it spreads attempts
            raise RepositoryUnavailableError(
                f'The table {self._name[1]!r} was changed by others each time that a commit was tried, {_ATTEMPTS} '
                'times. Try again, or write more rows with each commit.'
            )

    def _write(self, table: Table, steps: Sequence[Step]) -> set[str]:
        here = read_keys(table, self._key, with_keys(self._key, {step.key for step in steps}))
        rows = [row for row in net_changes(self._model, steps, here).values() if row is not None]
        with table.transaction() as transaction:
            if here:
                transaction.delete(with_keys(self._key, here))
            if rows:
                append_rows(transaction, self._key, self._columns, rows)
        return here

    def _write_anew(self, model: RowModel[T]) -> None:
        """Change the columns of a table, and write all of its rows again."""
        table = self._catalog.load_table(self._name)
        found, wanted = _types(table.schema()), _types(self._schema)
        self._check_is_ours(table, model)
        rows = [model.encode_again(*row) for row in read_bodies(table, self._key, AlwaysTrue())]
        with table.transaction() as transaction:
            with transaction.update_schema() as update:
                for name in found:
                    if found[name] != wanted.get(name):
                        update.delete_column(name)
            with transaction.update_schema() as update:
                for field in self._schema.fields:
                    if found.get(field.name) != wanted[field.name]:
                        update.add_column(field.name, field.field_type)
            if rows:
                transaction.delete(AlwaysTrue())
                append_rows(transaction, self._key, self._columns, rows)

    def _check_is_ours(self, table: Table, model: RowModel[T]) -> None:
        found = _types(table.schema())
        if found.get(BODY) != 'string required':
            raise RepositoryFormatError(
                f'The table {self._name[1]!r} has no rows of a repository. Open it with another `name`.'
            )
        keys = [field.name for field in table.schema().fields if field.field_id in table.schema().identifier_field_ids]
        if keys != [model.key.name]:
            raise InvalidFieldError(
                model.name,
                model.key.name,
                f'the table {self._name[1]!r} has the key {", ".join(keys)!r}. Open it with that, or give another `name`',
            )


def _opened(warehouse: str | Path | Mapping[str, str], name: str, model: RowModel[T]) -> _Table:
    with _translate_errors(
        'The warehouse cannot be opened', damages=()
    ):  # what is no property of a catalogue is a `ValueError`
        catalog = load_catalog('default', **warehouse) if isinstance(warehouse, Mapping) else _local(Path(warehouse))
    with _translate_errors(f'The table {name!r} cannot be opened'):
        try:
            return _Table(catalog, name, model)
        except BaseException:
            catalog.close()
            raise


def _local(directory: Path) -> Catalog:
    """Return a catalogue of SQLite in a directory, which is made."""
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / 'catalog.db'
    if file.exists() and file.stat().st_size:
        with file.open('rb') as opened:
            if opened.read(len(_SQLITE)) != _SQLITE:
                raise RepositoryFormatError(f'{str(file)!r} is no catalogue of SQLite. Choose another directory.')
    url = URL.create('sqlite', database=str(file)).render_as_string()
    return SqlCatalog('default', uri=url, warehouse=str(directory))


def _types(schema: Schema) -> dict[str, str]:
    """Return the types of columns by name; those that are required are the key and the row."""
    return {field.name: f'{field.field_type}{" required" if field.required else ""}' for field in schema.fields}


@contextmanager
def _translate_errors(what: str, damages: tuple[type[Exception], ...] = DAMAGES) -> Generator[None]:
    try:
        yield
    except RepositoryError:
        raise
    except (*FAILURES, *damages) as error:
        reason = str(error).strip().splitlines()
        raise RepositoryUnavailableError(
            f'{what}: {reason[0] if reason else type(error).__name__}. Make sure that the catalogue can be reached, and '
            'that nobody else deletes files of the warehouse or changes them.'
        ) from error
