"""The net effect of several changes, for engines that write many rows at once; and the change of an update."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from pydantic import BaseModel

from ._model import EncodedRow, RowModel
from ._types import Change, Create, Delete, Upsert
from .errors import InvalidRowError, RowExistsError

T = TypeVar('T', bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change, encoded for the engine."""

    key: str
    """The key of the row."""
    row: EncodedRow | None
    """The row after the change; `None` if it is removed."""
    is_new: bool
    """Whether the change fails if a row has the key."""


@dataclass
class Update(Generic[T]):
    """The replacement of a row by a function of it."""

    key: str
    """The key of the row, in stored form."""
    change: Callable[[T | None], T | None]
    """Returns the new row for the stored one; `None` for no row."""
    changed: T | None = None
    """The new row, from the last call of `step`."""
    error: Exception | None = None
    """The error of `change`. It is raised after the transaction, in which no error of an engine looks like it."""

    def step(self, model: RowModel[T], body: str | None) -> Step | None:
        """Return the change that replaces the stored row; `None` if it remains as it is.

        Args:
            model: The encoding of rows.
            body: The body of the stored row; `None` if there is none.

        Raises:
            InvalidRowError: The new row cannot be stored, or has another key.
            UnreadableRowError: The stored row is not valid for the model.
        """
        stored = None if body is None else model.decode(self.key, body)
        self.error = None
        try:
            self.changed = self.change(stored)
        except Exception as error:  # noqa: BLE001 - code of the caller, who gets the error
            self.error = error
            return None
        if self.changed is None:
            return None if body is None else Step(key=self.key, row=None, is_new=False)
        row = model.encode(self.changed)
        if row.key != self.key:
            raise InvalidRowError(model.name, model.key.name, f'the row {self.key!r} must keep its key')
        return None if row.body == body else Step(key=self.key, row=row, is_new=body is None)


def read_steps(model: RowModel[T], changes: Sequence[Change[T]]) -> list[Step]:
    """Encode the rows of changes. Deletions of keys that no row can have are omitted.

    Raises:
        InvalidRowError: A row cannot be stored.
    """
    steps: list[Step] = []
    for change in changes:
        if not isinstance(cast('object', change), Create | Upsert | Delete):
            given = type(change).__name__
            raise InvalidRowError(model.name, None, f'`{given}` is no change. Pass `Create`, `Upsert` and `Delete`')
        if isinstance(change, Delete):
            if (known := model.key_of(change.key)) is not None:
                steps.append(Step(key=known, row=None, is_new=False))
        else:
            row = model.encode(change.item)
            steps.append(Step(key=row.key, row=row, is_new=isinstance(change, Create)))
    return steps


def net_changes(model: str, steps: Sequence[Step], present: Collection[str]) -> dict[str, EncodedRow | None]:
    """Return the row of each key after all steps; `None` for no row.

    Args:
        model: The name of the model, for errors.
        steps: The changes, in order.
        present: Those of their keys that have a row now.

    Raises:
        RowExistsError: A created row exists already.
    """
    after: dict[str, EncodedRow | None] = {}
    for step in steps:
        exists = after[step.key] is not None if step.key in after else step.key in present
        if step.is_new and exists:
            raise RowExistsError(model, step.key)
        after[step.key] = step.row
    return after
