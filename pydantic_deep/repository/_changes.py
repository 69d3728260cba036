"""The net effect of several changes, for engines that write many rows at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

from ._model import EncodedRow, RowModel
from ._types import Change, Create, Delete
from .errors import RowExistsError

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


def read_steps(model: RowModel[T], changes: Sequence[Change[T]]) -> list[Step]:
    """Encode the rows of changes. Deletions of keys that no row can have are omitted.

    Raises:
        InvalidRowError: A row cannot be stored.
    """
    steps: list[Step] = []
    for change in changes:
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
