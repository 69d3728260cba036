"""Helpers of the tests in this folder: each rule must fail for a store that violates it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from pydantic_deep.store import SqlStore, Store, new_id
from pydantic_deep.store._samples import Dialogue
from pydantic_deep.store.conformance import OpenStore, StoreSuite
from pydantic_deep.store.memory import MemoryEngine

RULES = StoreSuite()

FAILURES = (AssertionError, pytest.fail.Exception)

DialogueRule = Callable[[Dialogue], Awaitable[None]]
StoreRule = Callable[[Store], Awaitable[None]]
OpenRule = Callable[[OpenStore], Awaitable[None]]


async def check_store_violation(kind: type[SqlStore], rule: StoreRule) -> None:
    """Check that a rule about one store fails for this kind of store."""
    async with kind(MemoryEngine.open()) as store:
        with pytest.raises(FAILURES):
            await rule(store)


async def check_dialogue_violation(kind: type[SqlStore], rule: DialogueRule) -> None:
    """Check that a rule about a dialogue fails for this kind of store."""
    await check_store_violation(kind, lambda store: rule(Dialogue(store)))


async def check_open_violation(kind: type[SqlStore], rule: OpenRule, *, is_shared: bool = True) -> None:
    """Check that a rule about several open stores fails for this kind of store, on one database or on several."""
    name = new_id()
    async with AsyncExitStack() as stack:

        async def open_one() -> Store:
            return await stack.enter_async_context(kind(MemoryEngine.open(name if is_shared else '')))

        with pytest.raises(FAILURES):
            await rule(open_one)
