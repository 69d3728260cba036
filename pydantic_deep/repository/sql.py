"""Repositories in SQL: in the database of a store, or one of their own; SQLite in a file or in memory, PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Protocol, TypeVar, cast, runtime_checkable

from pydantic import BaseModel

from pydantic_deep.store import (
    Store,
    StoreClosedError,
    StoreFormatError,
    StoreProcessError,
    StoreReadOnlyError,
    StoreUnavailableError,
    open_engine,
)
from pydantic_deep.store.engine import Engine, Operation, for_update, read_or_write
from pydantic_deep.store.sql.dialect import SupportsTables

from . import _questions_sql as questions
from ._base import BaseRepository, StoredRow
from ._changes import Step, Update, read_steps
from ._model import RowModel
from ._question import Condition, Question
from ._table import Table, create_row, delete_row, is_current, mark, open_table, table_name, upsert_row
from ._types import Change
from .errors import RepositoryClosedError, RepositoryFormatError, RepositoryUnavailableError, RowExistsError

__all__ = ('SqlRepository', 'SupportsEngine', 'open_repository')

T = TypeVar('T', bound=BaseModel)
M = TypeVar('M', bound=BaseModel)
R = TypeVar('R')


@runtime_checkable
class SupportsEngine(Protocol):
    """A store in a SQL database, such as `SqlStore`."""

    @property
    def engine(self) -> Engine:
        """The engine of the database."""
        ...


class SqlRepository(BaseRepository[T]):
    """A `Repository` in a SQL table. Open it with `SqlRepository.open` or `open_repository`.

    Many processes may use one table, with different `fields`. A change is durable when the method returns.
    """

    def __init__(self, engine: Engine, table: Table[T]) -> None:
        super().__init__(table.model)
        self._engine = engine
        self._table = table

    @staticmethod
    async def open(
        place: Store | SupportsEngine | Engine,
        model: type[M],
        *,
        key: str = 'id',
        fields: Collection[str] = (),
        name: str | None = None,
    ) -> SqlRepository[M]:
        """Open the rows of a model in the database of a store, which stays open when the repository is closed.

        The table is created if it does not exist. Newly declared fields are filled from the existing rows.

        Args:
            place: A store with an `engine`, such as the result of `open_store`, or the engine.
            model: The model of the rows.
            key: The key field: text, or a UUID.
            fields: Fields for filters and ordering, in addition to the key.
            name: The name of the table, unique within the database; derived from the name of the model by default.

        Raises:
            TypeError: The store is not in a SQL database.
            ValueError: The name is not valid for a table.
            InvalidFieldError: The model has no such field, its values cannot be compared, or the existing rows have
                another key.
            UnreadableRowError: A row that needs a new column is not valid for the model.
            InvalidRowError: A row has a value that a new column cannot store.
        """
        rows = RowModel(model, key=key, fields=fields)
        engine = cast('object', place.engine if isinstance(place, SupportsEngine) else place)
        if not isinstance(engine, SupportsTables):
            raise TypeError(
                f'A {type(place).__name__} has no SQL database for rows. Pass the result of `open_store`, '
                'or use `open_repository(url, …)`.'
            )
        opened = partial(open_table, engine.dialect, table_name(rows.name, name), rows)
        with _translate_errors():
            return SqlRepository(engine, await read_or_write(engine, opened))

    async def _body(self, key: str) -> str | None:
        return await self._read(partial(questions.get_row, self._table.names, key))

    async def _page(self, question: Question) -> Sequence[StoredRow]:
        return await self._read(partial(questions.list_rows, self._table.names, question))

    async def _count(self, conditions: Sequence[Condition]) -> int:
        return await self._read(partial(questions.count_rows, self._table.names, conditions))

    async def _write(self, changes: Sequence[Change[T]]) -> Collection[str]:
        known = self._table
        steps = read_steps(known.full_model, changes)
        if not steps:
            return ()
        return await self._write_with(
            lambda table: _apply(table, steps if table is known else read_steps(table.full_model, changes))
        )

    async def _update(self, update: Update[T]) -> None:
        await self._write_with(partial(_update, update=update))

    async def _write_with(self, make: Callable[[Table[T]], Operation[R]]) -> R:
        """Run an operation on the table; if another process has changed its columns, open it again."""
        with _translate_errors():
            try:
                return await self._engine.write(partial(make, self._table))
            except _OutdatedTableError:
                self._table, result = await self._engine.write_alone(partial(_run_reopened, self._table, make))
                return result

    async def _read(self, operation: Callable[[], Operation[R]]) -> R:
        with _translate_errors():
            return await self._engine.read(operation)


@asynccontextmanager
async def open_repository(
    url: str, model: type[T], *, key: str = 'id', fields: Collection[str] = (), name: str | None = None
) -> AsyncGenerator[SqlRepository[T]]:
    """Open the rows of a model in a database, and close both on exit.

    Args:
        url: `sqlite:///rows.db` (relative), `sqlite:////srv/rows.db` (absolute), `postgresql://…`, or `memory:`;
            `memory:NAME` is shared within this process. It may be the database of a store.
        model: As for `SqlRepository.open`, like the other arguments.
        key: The key field.
        fields: Fields for filters and ordering.
        name: The name of the table.

    Raises:
        ValueError: The URL has none of these forms.
        RepositoryFormatError: The database belongs to another program.
        RepositoryUnavailableError: The database cannot be opened.
        ImportError: The driver is not installed.
    """
    table_name(RowModel(model, key=key, fields=fields).name, name)  # raises before anything is created
    with _translate_errors():
        engine = await open_engine(url, mark)
    try:
        repository = await SqlRepository.open(engine, model, key=key, fields=fields, name=name)
        yield repository
        await repository.aclose()
    finally:
        await engine.aclose()


class _OutdatedTableError(Exception):
    """Another process has changed the columns of the table."""


def _apply(table: Table[T], steps: Sequence[Step]) -> Operation[Collection[str]]:
    """Apply all changes; return the keys of the removed rows.

    No other process changes the columns meanwhile, which would need to write alone. Rows are written in the order of
    their keys, so that concurrent writes do not wait for each other in a circle.
    """
    removed: set[str] = set()
    if any(step.row is not None for step in steps) and not (yield from is_current(table)):
        raise _OutdatedTableError
    for step in sorted(steps, key=lambda step: step.key):
        if step.row is None:
            removed |= yield from delete_row(table, step.key)
        elif step.is_new:
            yield from create_row(table, step.row)
        else:
            yield from upsert_row(table, step.row)
    return removed


def _update(table: Table[T], update: Update[T]) -> Operation[None]:
    """Apply the step of an update. A missing row cannot be locked: if another write creates it first, it is read."""
    is_applied = False
    while not is_applied:
        step = update.step(table.full_model, (yield from questions.get_row(table.names, update.key, for_update())))
        is_applied = True
        if step is not None:
            try:
                yield from _apply(table, [step])
            except RowExistsError:
                is_applied = False


def _run_reopened(table: Table[T], make: Callable[[Table[T]], Operation[R]]) -> Operation[tuple[Table[T], R]]:
    """Open the table again, and run an operation on it; return the table and the result."""
    latest = yield from open_table(table.dialect, table.name, table.model)
    return latest, (yield from make(latest))


@contextmanager
def _translate_errors() -> Generator[None]:
    """Translate errors of a store to errors of a repository."""
    try:
        yield
    except StoreClosedError as error:
        raise RepositoryClosedError('The database of the repository was closed. Open it again.') from error
    except StoreFormatError as error:
        raise RepositoryFormatError(str(error)) from error
    except (StoreUnavailableError, StoreReadOnlyError, StoreProcessError) as error:
        raise RepositoryUnavailableError(str(error)) from error
