"""Repositories in SQL: in the database of a store, or in one of their own; SQLite in a file or in memory, PostgreSQL."""

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
from pydantic_deep.store.engine import Engine, Operation, read_or_write
from pydantic_deep.store.sql.dialect import SupportsTables

from . import _questions_sql as questions
from ._base import BaseRepository, StoredRow
from ._changes import Step, read_steps
from ._model import RowModel
from ._question import Condition, Question
from ._table import Table, create_row, current, delete_row, mark, open_table, table_name, upsert_row
from ._types import Change
from .errors import RepositoryClosedError, RepositoryFormatError, RepositoryUnavailableError

__all__ = ('SqlRepository', 'SupportsEngine', 'open_repository')

T = TypeVar('T', bound=BaseModel)
M = TypeVar('M', bound=BaseModel)
R = TypeVar('R')


@runtime_checkable
class SupportsEngine(Protocol):
    """A store that lies in a database of SQL, as `SqlStore` does."""

    @property
    def engine(self) -> Engine:
        """Its database."""
        ...


class SqlRepository(BaseRepository[T]):
    """A `Repository` in a table of SQL. Open it with `SqlRepository.open` or `open_repository`.

    Many processes may use one table, and may ask by different fields. What is written is durable when a method returns.
    """

    def __init__(self, engine: Engine, table: Table[T]) -> None:
        super().__init__(table.asked)
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
        """Open the rows of a model in the database of a store, which stays open when they are closed.

        A table is made if there is none. If rows could not be asked by some of the fields before, they are read and
        can be then.

        Args:
            place: A store that has an `engine`, as what `open_store` returns, or the engine.
            model: What the rows are.
            key: The field that is the key: text, or a UUID.
            fields: Fields that can be filtered and ordered by, beside the key.
            name: Tells apart what is of one place; made of the name of the model if left out, so two models of one
                name need one.

        Raises:
            TypeError: The store is in no database of SQL.
            ValueError: The name cannot be one of a table.
            InvalidFieldError: The model has no such field, its values cannot be compared, or the rows that are there
                have another key.
            UnreadableRowError: A row that is to be asked by a new field is none of the model.
            InvalidRowError: A row has a value in a new field that cannot be asked by.
        """
        asked = RowModel(model, key=key, fields=fields)
        engine = cast('object', place.engine if isinstance(place, SupportsEngine) else place)
        if not isinstance(engine, SupportsTables):
            raise TypeError(
                f'A {type(place).__name__} has no database of SQL to keep rows in. Pass on what `open_store` '
                'returned, or use `open_repository(url, …)`.'
            )
        opened = partial(open_table, engine.dialect, table_name(asked.name, name), asked)
        with _translated():
            return SqlRepository(engine, await read_or_write(engine, opened))

    async def _body(self, key: str) -> str | None:
        return await self._read(partial(questions.get_row, self._table.names, key))

    async def _page(self, question: Question) -> Sequence[StoredRow]:
        return await self._read(partial(questions.list_rows, self._table.names, question))

    async def _count(self, conditions: Sequence[Condition]) -> int:
        return await self._read(partial(questions.count_rows, self._table.names, conditions))

    async def _write(self, changes: Sequence[Change[T]]) -> Collection[str]:
        steps = read_steps(self._table.kept, changes)
        if not steps:
            return ()
        with _translated():
            self._table, removed = await self._engine.write(partial(_apply, self._table, changes, steps))
        return removed

    async def _read(self, operation: Callable[[], Operation[R]]) -> R:
        with _translated():
            return await self._engine.read(operation)


@asynccontextmanager
async def open_repository(
    url: str, model: type[T], *, key: str = 'id', fields: Collection[str] = (), name: str | None = None
) -> AsyncGenerator[SqlRepository[T]]:
    """Open the rows of a model in a database, and close both at the end.

    Args:
        url: `sqlite:///rows.db` (relative), `sqlite:////srv/rows.db` (absolute), `postgresql://…`, or `memory:`;
            `memory:NAME` is one that others of this process can open too. It may be the database of a store.
        model: As `SqlRepository.open` takes it; so are the others.
        key: The field that is the key.
        fields: Fields that can be filtered and ordered by.
        name: Tells apart what is of one place.

    Raises:
        ValueError: It is no such URL.
        RepositoryFormatError: What is there belongs to something else.
        RepositoryUnavailableError: It cannot be opened.
        ImportError: The driver is not installed.
    """
    table_name(RowModel(model, key=key, fields=fields).name, name)  # which raises before anything is made
    with _translated():
        engine = await open_engine(url, mark)
    try:
        repository = await SqlRepository.open(engine, model, key=key, fields=fields, name=name)
        yield repository
        await repository.aclose()
    finally:
        await engine.aclose()


def _apply(
    table: Table[T], changes: Sequence[Change[T]], steps: Sequence[Step]
) -> Operation[tuple[Table[T], Collection[str]]]:
    """Make all changes; return the current table and the keys of the removed rows."""
    removed: set[str] = set()
    now = table if all(step.row is None for step in steps) else (yield from current(table))
    if now is not table:
        steps = read_steps(now.kept, changes)
    for step in steps:
        if step.row is None:
            removed |= yield from delete_row(now, step.key)
        elif step.is_new:
            yield from create_row(now, step.row)
        else:
            yield from upsert_row(now, step.row)
    return now, removed


@contextmanager
def _translated() -> Generator[None]:
    """Say as a repository what a store says."""
    try:
        yield
    except StoreClosedError as error:
        raise RepositoryClosedError('The database of the repository was closed. Open it again.') from error
    except StoreFormatError as error:
        raise RepositoryFormatError(str(error)) from error
    except (StoreUnavailableError, StoreReadOnlyError, StoreProcessError) as error:
        raise RepositoryUnavailableError(str(error)) from error
