"""Conditions, pages and changes: the arguments and results of a repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeAlias, TypeVar

from pydantic import BaseModel

T = TypeVar('T', bound=BaseModel)

Scalar: TypeAlias = str | int | float | bool | datetime | None
"""The type of a value in a filter. A `datetime` needs a time zone."""


@dataclass(frozen=True)
class In:
    """The field has one of these values; `None` among them matches null."""

    values: Sequence[Scalar]
    """Up to 10,000 values in one query; an empty sequence matches nothing."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """The field is not null, and within all given bounds."""

    ge: str | int | float | datetime | None = None
    """Inclusive lower bound, or `None`."""
    gt: str | int | float | datetime | None = None
    """Exclusive lower bound, or `None`."""
    le: str | int | float | datetime | None = None
    """Inclusive upper bound, or `None`."""
    lt: str | int | float | datetime | None = None
    """Exclusive upper bound, or `None`."""


@dataclass(frozen=True)
class Prefix:
    """The field is text with this prefix, compared literally: no character is a wildcard."""

    text: str
    """The prefix. Upper and lower case are different."""


Where: TypeAlias = Mapping[str, Scalar | In | Range | Prefix]
"""Conditions keyed by field: a value (`None` for null), or one of the classes above. All must hold."""


@dataclass(frozen=True, kw_only=True)
class Page(Generic[T]):
    """A page of the rows that match."""

    items: list[T]
    """The rows, in the requested order."""
    cursor: str | None
    """The `cursor` argument for the next page; `None` on the last page."""


@dataclass(frozen=True)
class Create(Generic[T]):
    """Adds a row; fails if its key exists."""

    item: T
    """The row to add."""


@dataclass(frozen=True)
class Upsert(Generic[T]):
    """Adds a row, or replaces the one with its key."""

    item: T
    """The row to add."""


@dataclass(frozen=True)
class Delete:
    """Removes a row, if it exists."""

    key: str
    """The key of the row."""


Change: TypeAlias = Create[T] | Upsert[T] | Delete
"""One change within a transaction."""
