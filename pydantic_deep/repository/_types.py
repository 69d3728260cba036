"""What a repository is asked for, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeAlias, TypeVar

from pydantic import BaseModel

T = TypeVar('T', bound=BaseModel)

Scalar: TypeAlias = str | int | float | bool | datetime | None
"""What a field that is filtered by may hold. A `datetime` needs a time zone."""


@dataclass(frozen=True)
class In:
    """The field has one of these values; `None` among them means that it may be null."""

    values: Sequence[Scalar]
    """Up to 10,000 in one question; none matches nothing."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """The field is not null and lies between these, as far as they are given."""

    ge: str | int | float | datetime | None = None
    """At least this."""
    gt: str | int | float | datetime | None = None
    """More than this."""
    le: str | int | float | datetime | None = None
    """At most this."""
    lt: str | int | float | datetime | None = None
    """Less than this."""


@dataclass(frozen=True)
class Prefix:
    """The field is text that begins with this, character by character: nothing in it is a pattern."""

    text: str
    """The beginning."""


Where: TypeAlias = Mapping[str, Scalar | In | Range | Prefix]
"""By the name of a field, what it must be: a value (`None` for null), or one of the conditions. All must hold."""


@dataclass(frozen=True, kw_only=True)
class Page(Generic[T]):
    """Some of the rows that were asked for."""

    items: list[T]
    """The rows, in order."""
    cursor: str | None
    """What to ask the next page with; `None` if this is the last."""


@dataclass(frozen=True)
class Create(Generic[T]):
    """Add a row that is not there."""

    item: T
    """The row."""


@dataclass(frozen=True)
class Upsert(Generic[T]):
    """Add a row, or replace the one with its key."""

    item: T
    """The row."""


@dataclass(frozen=True)
class Delete:
    """Remove a row, if it is there."""

    key: str
    """Its key."""


Change: TypeAlias = Create[T] | Upsert[T] | Delete
"""One thing that a transaction does."""
