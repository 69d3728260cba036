"""`Repository`: the protocol of mutable, typed rows. Test an implementation with `conformance.RepositorySuite`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel

from ._types import Change, Page, Where

T = TypeVar('T', bound=BaseModel)


@runtime_checkable
class Repository(Protocol[T]):
    """Rows of one pydantic model, each with a unique key.

    The fields for filters and ordering are declared when the repository is opened. Any other field raises an
    `UnknownFieldError`, and no argument becomes part of a query's text. Acknowledged changes are durable within the
    guarantees of the engine. Many tasks may use a repository concurrently. After `aclose` every method raises
    `RepositoryClosedError`.
    """

    async def create(self, item: T) -> None:
        """Add a row.

        Raises:
            RowExistsError: A row has this key already.
        """
        ...

    async def get(self, key: str) -> T:
        """Return the row with this key.

        Raises:
            RowNotFoundError: No row has this key.
        """
        ...

    async def list(
        self, where: Where | None = None, *, order_by: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[T]:
        """Return a page of rows.

        Rows that are added or removed meanwhile neither shift nor repeat the rows of later pages.

        Args:
            where: Conditions on the rows; all rows by default.
            order_by: A field, prefixed with `-` for descending order. Rows with equal values, and all rows without
                `order_by`, are in the order of their keys. Null is the smallest value.
            limit: Maximum number of rows, from 1 to 1,000.
            cursor: The cursor of the previous page, with the same `where` and `order_by`.

        Raises:
            UnknownFieldError: A field is not among the declared ones.
            InvalidCursorError: The cursor is malformed, or belongs to another query.
        """
        ...

    async def upsert(self, item: T) -> None:
        """Add a row, or replace the one with its key."""
        ...

    async def delete(self, key: str) -> bool:
        """Remove a row; return whether it existed."""
        ...

    async def count(self, where: Where | None = None) -> int:
        """Return the number of rows that match."""
        ...

    async def aclose(self) -> None:
        """Close the repository. A second call does nothing."""
        ...


@runtime_checkable
class SupportsTransactions(Protocol[T]):
    """A repository with transactions."""

    async def apply(self, changes: Sequence[Change[T]]) -> None:
        """Apply all changes in order, or none of them.

        Raises:
            RowExistsError: A created row exists already.
        """
        ...


@runtime_checkable
class SupportsUpdates(Protocol[T]):
    """A repository that can replace a row by a function of it. All repositories of this package can."""

    async def update(self, key: str, change: Callable[[T | None], T | None]) -> T | None:
        """Replace a row by a function of it, and return the new row.

        No other change of the row happens between its reading and its writing, in any process: concurrent updates are
        applied one after the other.

        Args:
            key: The key of the row.
            change: Returns the new row for the stored one; `None` is no row, both as its argument and as its result. It
                may be called several times, in any thread. If it raises an error, nothing is written.

        Raises:
            InvalidRowError: The new row cannot be stored, or has another key.
        """
        ...
