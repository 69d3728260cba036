"""`Repository`: typed rows that change. Strangers implement it, and prove it with `conformance.RepositorySuite`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel

from ._types import Change, Page, Where

T = TypeVar('T', bound=BaseModel)


@runtime_checkable
class Repository(Protocol[T]):
    """Rows of one pydantic model, each with a key of its own.

    Fields that may be filtered and ordered by are named when it is opened; any other name is an `UnknownFieldError`,
    and nothing that a caller sends becomes part of a query's text. What was acknowledged is durable as far as the
    engine says so. Many tasks may use one at once. After `aclose` everything raises `RepositoryClosedError`.
    """

    async def create(self, item: T) -> None:
        """Add a row.

        Raises:
            RowExistsError: There is one with its key.
        """
        ...

    async def get(self, key: str) -> T:
        """Return the row with this key.

        Raises:
            RowNotFoundError: There is none.
        """
        ...

    async def list(
        self, where: Where | None = None, *, order_by: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[T]:
        """Return a page of rows.

        Rows that are added or removed meanwhile neither shift nor repeat those of later pages.

        Args:
            where: Which; all if left out.
            order_by: A field, descending with a `-` before it; rows with equal values, and all without it, follow
                their keys. Null comes first, and last where descending.
            limit: At most how many, from 1 to 1,000.
            cursor: That of the page before, asked with the same `where` and `order_by`.

        Raises:
            UnknownFieldError: A field is not among those that may be asked for.
            InvalidCursorError: The cursor is none of ours, or of another question.
        """
        ...

    async def upsert(self, item: T) -> None:
        """Add a row, or replace the one with its key."""
        ...

    async def delete(self, key: str) -> bool:
        """Remove a row; return whether it was there."""
        ...

    async def count(self, where: Where | None = None) -> int:
        """Return how many rows there are."""
        ...

    async def aclose(self) -> None:
        """Close it. A second call does nothing."""
        ...


@runtime_checkable
class SupportsTransactions(Protocol[T]):
    """A repository that can do several things at once."""

    async def apply(self, changes: Sequence[Change[T]]) -> None:
        """Do all of them in their order, or nothing.

        Raises:
            RowExistsError: A row that is created is there.
        """
        ...
