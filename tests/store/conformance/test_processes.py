"""The rules about crashed processes and claims of directories fail for a store that violates them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pydantic_deep.store import Commit, Committed, RunRecord, SqlStore
from tests.store.conformance.conftest import RULES, OpenRule, check_open_violation

pytestmark = pytest.mark.anyio


class Unfenced(SqlStore):
    """Lets everybody commit for a run."""

    async def commit(self, commit: Commit) -> Committed:
        return await super().commit(replace(commit, fence=None))


class Impatient(SqlStore):
    """Takes running runs for orphans, and claims them every time."""

    async def orphans(self, limit: int = 1000) -> list[RunRecord]:
        return await self.runs(states=['running'], limit=limit)

    async def claim_run(self, run_id: str) -> bool:
        return True


class Crowded(SqlStore):
    """Lets everybody work in a directory."""

    async def claim_workspace(self, backend: str, run_id: str, version_id: str | None) -> bool:
        return True


@pytest.mark.parametrize(
    ('kind', 'rule'),
    [
        (Unfenced, RULES.test_fence_lets_only_the_owner_of_a_running_run_commit),
        (Impatient, RULES.test_runs_of_closed_stores_are_orphans_and_those_of_open_stores_are_not),
        (Impatient, RULES.test_orphan_is_claimed_once),
        (Crowded, RULES.test_one_running_run_works_in_a_directory),
        (Crowded, RULES.test_interrupted_checkout_must_be_repeated_before_a_run),
        (Crowded, RULES.test_one_of_several_concurrent_claims_of_a_directory_succeeds),
    ],
)
async def test_wrong_claim_violates_a_rule(kind: type[SqlStore], rule: OpenRule) -> None:
    await check_open_violation(kind, rule)
