"""Which runs of a conversation are suspended, as a server reads it from the store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pydantic_deep.server.runs import _stored_run_events
from pydantic_deep.server.runs._stored_run_events import suspended_in, working_in

pytestmark = pytest.mark.anyio


def run(id: str, *, state: str = 'running', owner: str | None = 'dead') -> Any:
    return SimpleNamespace(id=id, state=state, owner=owner)


def state_of(runs: list[Any], orphans: list[Any], *, is_recovering: bool) -> Any:
    async def listed(**options: object) -> list[Any]:
        return runs

    async def orphaned(limit: int) -> list[Any]:
        return orphans

    store = SimpleNamespace(owner='me', runs=listed, orphans=orphaned)
    return SimpleNamespace(store=store, hub=SimpleNamespace(resuming=set[str](), is_recovering=is_recovering))


async def test_a_run_that_a_starting_server_is_about_to_resume_counts_as_one_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Orphans of other conversations do not count; while the server recovers, its own do not wait for a person."""

    async def stays(store: object, run: object) -> bool:
        return False

    monkeypatch.setattr(_stored_run_events, 'has_moved_on', stays)  # which asks a whole store
    mine, elsewhere = run('mine'), run('elsewhere')
    starting = state_of([mine], [elsewhere, mine], is_recovering=True)
    started = state_of([mine], [elsewhere, mine], is_recovering=False)

    assert (await working_in(starting, 'c'), await suspended_in(starting, 'c')) == ([mine], [])
    assert (await working_in(started, 'c'), await suspended_in(started, 'c')) == ([], [mine])
