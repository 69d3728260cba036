"""The fixtures of the rules, and the rows that tests of repositories share."""

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
    """Opens a repository, each time on the same place."""

    def __call__(self, model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Awaitable[Repository[T]]:
        """Open one for rows of a model."""
        ...


class Shade(StrEnum):
    """Values of a field."""

    LIGHT = 'light'
    """One."""
    DARK = 'dark'
    """Another."""


class Sample(BaseModel):
    """A row with a field of each kind."""

    id: str
    """The key."""
    name: str | None = None
    """Text, or null."""
    count: int | None = None
    """An integer, or null."""
    weight: float = 0.0
    """A number."""
    is_done: bool = False
    """A bool."""
    made_at: datetime | None = None
    """A moment, or null."""
    owner: UUID | None = None
    """A UUID, or null."""
    shade: Shade = Shade.LIGHT
    """One of a few."""
    notes: list[str] = Field(default_factory=list[str])
    """What cannot be asked by."""


FIELDS: Final = ('name', 'count', 'weight', 'is_done', 'made_at', 'owner', 'shade')
"""Of `Sample`, those that can be asked by."""


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
"""Text that means something to somebody, and to a repository is text."""


NOON: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)


ONE, TWO = UUID(int=1), UUID(int=2)


SAMPLES: Final = (
    Sample(id='a', name='alpha', count=1, weight=0.5, made_at=NOON, owner=ONE),
    Sample(id='b', name='Alpha', count=2, weight=-1.0, is_done=True, made_at=NOON + timedelta(microseconds=1)),
    Sample(id='c', name=None, count=2, weight=2.0, shade=Shade.DARK, owner=TWO),
    Sample(id='d', name='alphabet', count=None, weight=2.0, is_done=True, made_at=NOON - timedelta(days=1)),
    Sample(id='e', name='', count=-3, weight=1e300, shade=Shade.DARK),
)
"""What the fixture `five` creates. A suite may override it, to create them faster."""


def keys(page: Page[Sample]) -> str:
    """Return the keys of rows, which are letters."""
    return ''.join(row.id for row in page.items)


async def apply(rows: Repository[Sample], changes: Sequence[Change[Sample]]) -> None:
    if not isinstance(cast('object', rows), SupportsTransactions):
        pytest.skip('It has no transactions.')
    await cast('SupportsTransactions[Sample]', rows).apply(changes)


class RepositoryRules:
    """The fixtures of the rules."""

    pytestmark: ClassVar = [pytest.mark.anyio]

    is_shared: ClassVar[bool] = True
    """Whether those that are opened on one place see the rows of each other."""

    is_durable: ClassVar[bool] = True
    """Whether what was acknowledged is there after all have closed it."""

    @pytest.fixture
    async def rows(self, open_repository: OpenRepository) -> Repository[Sample]:
        """A repository without rows."""
        return await open_repository(Sample, fields=FIELDS)

    @pytest.fixture
    async def five(self, rows: Repository[Sample]) -> Repository[Sample]:
        """One with `SAMPLES`."""
        for row in SAMPLES:
            await rows.create(row)
        return rows

    def needs_sharing(self) -> None:
        """Skip a rule where nobody sees the rows of another."""
        if not self.is_shared:
            pytest.skip('Nobody else sees its rows.')
