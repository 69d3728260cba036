"""The base class of the rules, with their fixtures, and sample rows for the tests of repositories."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import ClassVar, Final, Protocol, TypeVar, cast
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from pydantic_deep.repository._protocol import Repository, SupportsTransactions
from pydantic_deep.repository._types import Change, Page

T = TypeVar('T', bound=BaseModel)


class OpenRepository(Protocol):
    """Opens a repository; every call opens the same database."""

    def __call__(self, model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Awaitable[Repository[T]]:
        """Open a repository for rows of a model."""
        ...


class Shade(StrEnum):
    """An enum for a field of `Sample`."""

    LIGHT = 'light'
    DARK = 'dark'


class Sample(BaseModel):
    """A row with a field of each kind."""

    id: str
    name: str | None = None
    count: int | None = None
    weight: float = 0.0
    is_done: bool = False
    made_at: datetime | None = None
    owner: UUID | None = None
    shade: Shade = Shade.LIGHT
    notes: list[str] = Field(default_factory=list[str])
    """A field that cannot be used in filters."""


FIELDS: Final = ('name', 'count', 'weight', 'is_done', 'made_at', 'owner', 'shade')
"""The filterable fields of `Sample`."""


ODD_TEXTS: Final = (
    ' ',
    "it's",
    "' OR '1'='1",
    "'; DROP TABLE rows_sample; --",
    '"; DROP TABLE rows_sample; --',
    '?1',
    '$1',
    '%',
    '_',
    '\\',
    '{}',
    'NULL',
    'null',
    'é',
    'e\u0301',
    '日本語',
    '🙂',
    '\u202e',
    'a\nb',
    '\x01',
    '\uffff',
)
"""Texts with a special meaning in some language, which a repository must treat literally."""


NOON: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)


ONE, TWO = UUID(int=1), UUID(int=2)


SAMPLES: Final = (
    Sample(id='a', name='alpha', count=1, weight=0.5, made_at=NOON, owner=ONE),
    Sample(id='b', name='Alpha', count=2, weight=-1.0, is_done=True, made_at=NOON + timedelta(microseconds=1)),
    Sample(id='c', name=None, count=2, weight=2.0, shade=Shade.DARK, owner=TWO),
    Sample(id='d', name='alphabet', count=None, weight=2.0, is_done=True, made_at=NOON - timedelta(days=1)),
    Sample(id='e', name='', count=-3, weight=1e300, shade=Shade.DARK),
)
"""The rows that the fixture `five` creates. A suite may override it to create them faster."""


def keys(page: Page[Sample]) -> str:
    """Return the keys of rows, which are single letters."""
    return ''.join(row.id for row in page.items)


async def apply(rows: Repository[Sample], changes: Sequence[Change[Sample]]) -> None:
    if not isinstance(cast('object', rows), SupportsTransactions):
        pytest.skip('It has no transactions.')
    await cast('SupportsTransactions[Sample]', rows).apply(changes)


class RepositoryRules:
    """Base class of the rules, with their fixtures."""

    pytestmark: ClassVar[list[pytest.MarkDecorator]] = [pytest.mark.anyio]

    is_shared: ClassVar[bool] = True
    """Whether repositories on the same database see each other's rows."""

    is_durable: ClassVar[bool] = True
    """Whether acknowledged rows remain after all repositories on the database have been closed."""

    @pytest.fixture
    async def rows(self, open_repository: OpenRepository) -> Repository[Sample]:
        """A repository without rows."""
        return await open_repository(Sample, fields=FIELDS)

    @pytest.fixture
    async def five(self, rows: Repository[Sample]) -> Repository[Sample]:
        """A repository with `SAMPLES`."""
        for row in SAMPLES:
            await rows.create(row)
        return rows

    def needs_sharing(self) -> None:
        """Skip a rule that needs several repositories on the same rows."""
        if not self.is_shared:
            pytest.skip('Nobody else sees its rows.')
