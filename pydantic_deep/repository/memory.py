"""The repository in memory, in plain Python: for tests, and as the reference implementation for all engines."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from ._base import BaseRepository, StoredRow
from ._changes import Step, Update, net_changes, read_steps
from ._kinds import Cell
from ._model import EncodedRow, RowModel
from ._question import Condition, OneOf, Operator, Position, Question
from ._types import Change

__all__ = ('MemoryRepository',)

T = TypeVar('T', bound=BaseModel)

_COMPARE: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    '>=': operator.ge,
    '>': operator.gt,
    '<=': operator.le,
    '<': operator.lt,
}


class MemoryRepository(BaseRepository[T]):
    """A `Repository` that discards its rows when it is closed. It stores copies, and returns copies.

    Args:
        model: The model of the rows.
        key: The key field: text, or a UUID.
        fields: Fields for filters and ordering, in addition to the key.

    Raises:
        InvalidFieldError: The model has no such field, or its values cannot be compared.
    """

    def __init__(self, model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> None:
        super().__init__(RowModel(model, key=key, fields=fields))
        self._rows: dict[str, EncodedRow] = {}

    async def aclose(self) -> None:
        """Close the repository, and discard all rows."""
        await super().aclose()
        self._rows = {}

    async def _body(self, key: str) -> str | None:
        row = self._rows.get(key)
        return None if row is None else row.body

    async def _page(self, question: Question) -> Sequence[StoredRow]:
        rows = [row for row in self._rows.values() if _holds(row, question.conditions) and _follows(row, question)]
        _sort(rows, question)
        return [StoredRow(_position(row, question), row.body) for row in rows[: question.limit + 1]]

    async def _count(self, conditions: Sequence[Condition]) -> int:
        return sum(_holds(row, conditions) for row in self._rows.values())

    async def _write(self, changes: Sequence[Change[T]]) -> set[str]:
        return self._apply(read_steps(self._model, changes))

    async def _update(self, update: Update[T]) -> None:
        step = update.step(self._model, await self._body(update.key))
        if step is not None:
            self._apply([step])

    def _apply(self, steps: Sequence[Step]) -> set[str]:
        after = net_changes(self._model.name, steps, self._rows)
        present = after.keys() & self._rows.keys()
        for key, row in after.items():
            if row is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = row
        return present


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
    """Return a sort key that orders null first."""
    return (False, 0) if cell is None else (True, cell)


def _position(row: EncodedRow, question: Question) -> Position:
    return Position(None if question.order is None else _cell(row, question.order.name), row.key)


def _follows(row: EncodedRow, question: Question) -> bool:
    """Return whether a row comes after the previous page."""
    after = question.after
    if after is None:
        return True
    position = _position(row, question)
    if question.order is None and question.is_descending:
        return position.key < after.key
    if position.cell == after.cell:
        return position.key > after.key
    is_larger = _with_null(position.cell) > _with_null(after.cell)
    return is_larger is not question.is_descending
