"""The repository in memory, in plain Python: for tests, and what all engines are compared with."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel

from ._changes import net_changes, read_steps
from ._kinds import Cell
from ._model import EncodedRow, RowModel
from ._question import Condition, OneOf, Operator, Position, Question
from ._types import Change, Create, Page, Upsert, Where
from .errors import RepositoryClosedError, RowNotFoundError

__all__ = ('MemoryRepository',)

T = TypeVar('T', bound=BaseModel)

_COMPARE: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    '>=': operator.ge,
    '>': operator.gt,
    '<=': operator.le,
    '<': operator.lt,
}


class MemoryRepository(Generic[T]):
    """A `Repository` that forgets everything when it is closed. It keeps copies, and returns copies.

    Args:
        model: What its rows are.
        key: The field that is the key: text, or a UUID.
        fields: Fields that can be filtered and ordered by, beside the key.

    Raises:
        InvalidFieldError: The model has no such field, or its values cannot be compared.
    """

    def __init__(self, model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> None:
        self._model = RowModel(model, key=key, fields=fields)
        self._rows: dict[str, EncodedRow] = {}
        self._is_closed = False

    async def create(self, item: T) -> None:
        """Add a row."""
        await self.apply([Create(item)])

    async def get(self, key: str) -> T:
        """Return the row with this key."""
        row = self._open_rows().get(self._model.key_of(key) or '')
        if row is None:
            raise RowNotFoundError(self._model.name, key)
        return self._model.decode(row.key, row.body)

    async def list(
        self, where: Where | None = None, *, order_by: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[T]:
        """Return a page of rows."""
        rows = self._open_rows()
        question = self._model.question(where, order_by=order_by, limit=limit, cursor=cursor)
        found = [row for row in rows.values() if _holds(row, question.conditions) and _follows(row, question)]
        _sort(found, question)
        chosen = found[:limit]
        items = [self._model.decode(row.key, row.body) for row in chosen]
        has_more = len(found) > limit
        return Page(items=items, cursor=question.cursor(_position(chosen[-1], question)) if has_more else None)

    async def upsert(self, item: T) -> None:
        """Add a row, or replace the one with its key."""
        await self.apply([Upsert(item)])

    async def delete(self, key: str) -> bool:
        """Remove a row; return whether it was there."""
        return self._open_rows().pop(self._model.key_of(key) or '', None) is not None

    async def count(self, where: Where | None = None) -> int:
        """Return how many rows there are."""
        rows = self._open_rows()
        conditions = self._model.conditions(where)
        return sum(_holds(row, conditions) for row in rows.values())

    async def apply(self, changes: Sequence[Change[T]]) -> None:
        """Do all of them in their order, or nothing."""
        rows = self._open_rows()
        for key, row in net_changes(self._model.name, read_steps(self._model, changes), rows).items():
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row

    async def aclose(self) -> None:
        """Close it, and forget everything."""
        self._is_closed = True
        self._rows = {}

    def _open_rows(self) -> dict[str, EncodedRow]:
        if self._is_closed:
            raise RepositoryClosedError(f'The repository of {self._model.name} was closed. Make another.')
        return self._rows


def _cell(row: EncodedRow, name: str) -> Cell | None:
    return row.cells.get(name, row.key)


def _holds(row: EncodedRow, conditions: Sequence[Condition]) -> bool:
    return all(_fits(_cell(row, condition.column.name), condition) for condition in conditions)


def _fits(cell: Cell | None, condition: Condition) -> bool:
    if isinstance(condition, OneOf):
        return condition.or_null if cell is None else cell in condition.values
    return cell is not None and all(_COMPARE[sign](cell, bound) for sign, bound in condition.bounds)


def _sort(rows: list[EncodedRow], question: Question) -> None:
    order = question.order
    if order is None:
        rows.sort(key=lambda row: row.key, reverse=question.is_descending)
        return
    rows.sort(key=lambda row: row.key)
    rows.sort(key=lambda row: _with_null(_cell(row, order.name)), reverse=question.is_descending)


def _with_null(cell: Cell | None) -> tuple[bool, Cell]:
    """Return what sorts null first."""
    return (False, 0) if cell is None else (True, cell)


def _position(row: EncodedRow, question: Question) -> Position:
    return Position(None if question.order is None else _cell(row, question.order.name), row.key)


def _follows(row: EncodedRow, question: Question) -> bool:
    """Return whether a row comes after the page before."""
    after = question.after
    if after is None:
        return True
    here = _position(row, question)
    if question.order is None and question.is_descending:
        return here.key < after.key
    if here.cell == after.cell:
        return here.key > after.key
    is_larger = _with_null(here.cell) > _with_null(after.cell)
    return is_larger is not question.is_descending
