"""Suspended runs of a conversation, read from the store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pydantic_deep.server.runs import _stored_runs
from pydantic_deep.server.runs._stored_runs import load_running_runs, load_suspended_runs

pytestmark = pytest.mark.anyio


def run(id: str, *, state: str = 'running', owner: str | None = 'dead') -> Any:
    return SimpleNamespace(id=id, state=state, owner=owner)


def store_and_pool(runs: list[Any], orphans: list[Any], *, is_recovering: bool) -> tuple[Any, Any]:
    async def listed(**options: object) -> list[Any]:
        return runs

    async def orphaned(limit: int) -> list[Any]:
        return orphans

    store = SimpleNamespace(owner='me', runs=listed, orphans=orphaned)
    return store, SimpleNamespace(resuming=set[str](), is_recovering=is_recovering)


async def test_run_being_recovered_counts_as_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Orphans of other conversations are ignored. While the server recovers runs, its own orphans are not suspended."""

    async def stays(store: object, run: object) -> bool:
        return False

    monkeypatch.setattr(_stored_runs, 'has_moved_on', stays)  # the real function needs a store
    mine, elsewhere = run('mine'), run('elsewhere')
    starting = store_and_pool([mine], [elsewhere, mine], is_recovering=True)
    started = store_and_pool([mine], [elsewhere, mine], is_recovering=False)

    assert (await load_running_runs(*starting, 'c'), await load_suspended_runs(*starting, 'c')) == ([mine], [])
    assert (await load_running_runs(*started, 'c'), await load_suspended_runs(*started, 'c')) == ([], [mine])
