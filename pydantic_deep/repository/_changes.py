"""What several changes come to, for engines that write many rows at once."""

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
    """One change, as engines make it."""

    key: str
    """Of the row that changes."""
    row: EncodedRow | None
    """What is there afterwards; `None` if nothing is."""
    is_new: bool
    """Whether no row may be there before."""


def read_steps(model: RowModel[T], changes: Sequence[Change[T]]) -> list[Step]:
    """Write the rows of changes. A key that no row can have is left out.

    Raises:
        InvalidRowError: A row cannot be kept.
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


def net_changes(model: str, steps: Sequence[Step], here: Collection[str]) -> dict[str, EncodedRow | None]:
    """Return, by key, what is there after all steps in their order: a row, or nothing.

    Args:
        model: Its name, for errors.
        steps: What is done.
        here: Those of their keys that have a row now.

    Raises:
        RowExistsError: A row that is created is there.
    """
    after: dict[str, EncodedRow | None] = {}
    for step in steps:
        is_there = after[step.key] is not None if step.key in after else step.key in here
        if step.is_new and is_there:
            raise RowExistsError(model, step.key)
        after[step.key] = step.row
    return after
