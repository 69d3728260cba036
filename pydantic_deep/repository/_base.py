"""The methods of `Repository`, based on the few operations that an engine implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

import anyio
from anyio import to_thread
from anyio.abc import AsyncResource
from pydantic import BaseModel

from ._changes import Step, Update, read_steps
from ._model import RowModel
from ._question import Condition, Position, Question
from ._types import Change, Create, Delete, Page, Upsert, Where
from .errors import RepositoryClosedError, RowNotFoundError

T = TypeVar('T', bound=BaseModel)
R = TypeVar('R')


class StoredRow(NamedTuple):
    """A row as an engine reads it."""

    position: Position
    """The position of the row in the order of the query."""
    body: str
    """The whole row, as JSON."""


class BaseRepository(ABC, Generic[T]):
    """Validates arguments, encodes rows and decodes them. A subclass stores the encoded rows.

    Args:
        model: The encoding of rows, and the fields for filters and ordering.
    """

    def __init__(self, model: RowModel[T]) -> None:
        self._model = model
        self._is_closed = False

    async def create(self, item: T) -> None:
        """Add a row."""
        await self.apply([Create(item)])

    async def get(self, key: str) -> T:
        """Return the row with this key."""
        self._check_open()
        known = self._model.key_of(key)
        body = None if known is None else await self._body(known)
        if known is None or body is None:
            raise RowNotFoundError(self._model.name, key)
        return self._model.decode(known, body)

    async def list(
        self, where: Where | None = None, *, order_by: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[T]:
        """Return a page of rows."""
        self._check_open()
        question = self._model.question(where, order_by=order_by, limit=limit, cursor=cursor)
        rows = await self._page(question)
        items = [self._model.decode(row.position.key, row.body) for row in rows[:limit]]
        has_more = len(rows) > limit
        return Page(items=items, cursor=question.cursor(rows[limit - 1].position) if has_more else None)

    async def upsert(self, item: T) -> None:
        """Add a row, or replace the one with its key."""
        await self.apply([Upsert(item)])

    async def update(self, key: str, change: Callable[[T | None], T | None]) -> T | None:
        """Replace a row by a function of it, and return the new row."""
        self._check_open()
        known = self._model.key_of(key)
        update = Update(known or key, change)
        if known is None:
            update.step(self._model, None)  # no row has this key, and none can get it
        else:
            await self._update(update)
        if update.error is not None:
            raise update.error
        return update.changed

    async def delete(self, key: str) -> bool:
        """Remove a row; return whether it existed."""
        self._check_open()
        return bool(await self._write([Delete(key)]))

    async def count(self, where: Where | None = None) -> int:
        """Return the number of rows that match."""
        self._check_open()
        return await self._count(self._model.conditions(where))

    async def apply(self, changes: Sequence[Change[T]]) -> None:
        """Apply all changes in order and in one transaction, or none of them."""
        self._check_open()
        await self._write(changes)

    async def aclose(self) -> None:
        """Close the repository. A second call does nothing."""
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise RepositoryClosedError(f'The repository of {self._model.name} was closed. Open it again.')

    @abstractmethod
    async def _body(self, key: str) -> str | None:
        """Return the body of a row; `None` if no row has the key."""

    @abstractmethod
    async def _page(self, question: Question) -> Sequence[StoredRow]:
        """Return the rows of a page, and the row after it if there is one."""

    @abstractmethod
    async def _count(self, conditions: Sequence[Condition]) -> int:
        """Return the number of rows for which all conditions hold."""

    @abstractmethod
    async def _write(self, changes: Sequence[Change[T]]) -> Collection[str]:
        """Apply all changes in one transaction; return at least the keys of removed rows."""

    @abstractmethod
    async def _update(self, update: Update[T]) -> None:
        """Apply the step of an update to the row with its key, in one transaction."""


class BlockingTable(Protocol):
    """The table of an engine without asynchronous calls. Its methods are called in worker threads, one at a time."""

    def body(self, key: str) -> str | None:
        """Return the body of a row; `None` if no row has the key."""
        ...

    def page(self, question: Question) -> Sequence[StoredRow]:
        """Return the rows of a page, and the row after it if there is one."""
        ...

    def count(self, conditions: Sequence[Condition]) -> int:
        """Return the number of rows for which all conditions hold."""
        ...

    def write(self, steps: Sequence[Step]) -> set[str]:
        """Apply all steps in one transaction; return those of their keys that had a row before."""
        ...

    def update(self, key: str, step: Callable[[str | None], Step | None]) -> None:
        """Apply the step for the body of a row, in one transaction with reading it; `None` for no row, and no step."""
        ...

    def close(self) -> None:
        """Close the connection of the table."""
        ...


class BlockingRepository(BaseRepository[T], AsyncResource):
    """A repository on a `BlockingTable`. Calls run one at a time, and complete even if their task is cancelled.

    Args:
        model: The encoding of rows.
        table: The table; it is closed with the repository.
    """

    def __init__(self, model: RowModel[T], table: BlockingTable) -> None:
        super().__init__(model)
        self._table = table
        self._call_lock = anyio.Lock()

    async def aclose(self) -> None:
        """Close the repository and its connection. A second call does nothing."""
        await super().aclose()
        async with self._call_lock:
            await to_thread.run_sync(self._table.close)

    async def _body(self, key: str) -> str | None:
        return await self._run(lambda: self._table.body(key))

    async def _page(self, question: Question) -> Sequence[StoredRow]:
        return await self._run(lambda: self._table.page(question))

    async def _count(self, conditions: Sequence[Condition]) -> int:
        return await self._run(lambda: self._table.count(conditions))

    async def _write(self, changes: Sequence[Change[T]]) -> set[str]:
        steps = read_steps(self._model, changes)
        return await self._run(lambda: self._table.write(steps))

    async def _update(self, update: Update[T]) -> None:
        await self._run(lambda: self._table.update(update.key, partial(update.step, self._model)))

    async def _run(self, work: Callable[[], R]) -> R:
        async with self._call_lock:
            self._check_open()
            return await to_thread.run_sync(work)
