"""The fixtures of the rules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeAlias

import pytest

from pydantic_deep.store._protocol import Store
from pydantic_deep.store._samples import Dialogue
from pydantic_deep.store.records import Decision
from pydantic_deep_backends.snapshots import digest_of

OpenStore: TypeAlias = Callable[[], Awaitable[Store]]
"""Opens a store, each time on the same place."""


WRITERS = 20
"""How many do the same thing at once in the rules about races."""


def as_decision(id: str, status: str = 'approved', **fields: object) -> Decision:
    values: dict[str, object] = {'decision': '{}', 'arguments_digest': digest_of(b'arguments'), **fields}
    return Decision(approval_id=id, status=status, **values)  # pyright: ignore[reportArgumentType] - of a record


class StoreRules:
    """The fixtures of the rules."""

    pytestmark: ClassVar = [pytest.mark.anyio]

    is_durable: ClassVar[bool] = True
    """Whether what was acknowledged is there after all have closed it."""

    @pytest.fixture
    async def store(self, open_store: OpenStore) -> Store:
        return await open_store()

    @pytest.fixture
    def dialogue(self, store: Store) -> Dialogue:
        return Dialogue(store)
