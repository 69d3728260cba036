"""The base class of the rules, with their fixtures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeAlias

import pytest

from pydantic_deep.store._protocol import Store
from pydantic_deep.store._samples import Dialogue
from pydantic_deep.store.records import Decision
from pydantic_deep_backends.snapshots import digest_of

OpenStore: TypeAlias = Callable[[], Awaitable[Store]]
"""Opens a store; every call opens the same database."""


WRITERS = 20
"""Number of concurrent writers in the rules about races."""


def as_decision(id: str, status: str = 'approved', **fields: object) -> Decision:
    values: dict[str, object] = {'decision': '{}', 'arguments_digest': digest_of(b'arguments'), **fields}
    return Decision(approval_id=id, status=status, **values)  # pyright: ignore[reportArgumentType] - of a record


class StoreRules:
    """Base class of the rules, with their fixtures."""

    pytestmark: ClassVar[list[pytest.MarkDecorator]] = [pytest.mark.anyio]

    is_durable: ClassVar[bool] = True
    """Whether acknowledged data remains after all stores on the database have been closed."""

    @pytest.fixture
    async def store(self, open_store: OpenStore) -> Store:
        return await open_store()

    @pytest.fixture
    def dialogue(self, store: Store) -> Dialogue:
        return Dialogue(store)
