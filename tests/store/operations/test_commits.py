"""A commit takes as many statements for many records as for one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pydantic_deep.store import Commit, SqlStore, new_id
from pydantic_deep.store._samples import sample_call, sample_delegation, sample_request, sample_run
from tests.store.operations.conftest import CountedEngine

pytestmark = pytest.mark.anyio


def runs(run_id: str, count: int) -> Commit:
    return Commit(runs=[sample_run('c') for _ in range(count)])


def calls(run_id: str, count: int) -> Commit:
    return Commit(calls=[sample_call(run_id, 'response', f'call {number}') for number in range(count)])


def requests(run_id: str, count: int) -> Commit:
    return Commit(requests=[sample_request(run_id, number) for number in range(count)])


def delegations(run_id: str, count: int) -> Commit:
    return Commit(delegations=[sample_delegation(run_id, new_id()) for _ in range(count)])


@pytest.mark.parametrize('make', [runs, calls, requests, delegations])
async def test_number_of_statements_does_not_depend_on_the_number_of_records(
    store: SqlStore, make: Callable[[str, int], Commit]
) -> None:
    taken: list[int] = []
    for count in (1, 50):
        run = sample_run('c')
        await store.commit(Commit(runs=[run]))
        CountedEngine.take()
        await store.commit(make(run.id, count))
        taken.append(CountedEngine.take())
    assert taken[0] == taken[1]
