"""The rules about approvals fail for a store that violates them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pydantic_deep.store import ApprovalRecord, ApprovalStatus, Decision, SqlStore
from tests.store.conformance.conftest import RULES, DialogueRule, check_dialogue_violation

pytestmark = pytest.mark.anyio


class OneByOne(SqlStore):
    """Stores decisions one by one, so that an error leaves the decisions before it."""

    async def decide(self, decisions: Sequence[Decision]) -> list[ApprovalRecord]:
        decided: list[ApprovalRecord] = []
        for decision in decisions:
            decided += await super().decide([decision])
        return decided


class Unclaimed(SqlStore):
    """Gives the answers of a version to every run."""

    async def claim_approvals(self, version_id: str, run_id: str) -> list[ApprovalRecord]:
        approvals = await self.approvals(version_id=version_id, status=None)
        return [approval._replace(resumed_by=run_id) for approval in approvals]


class Unfiltered(SqlStore):
    """Lists all approvals for every status."""

    async def approvals(
        self,
        *,
        status: ApprovalStatus | None = 'pending',
        version_id: str | None = None,
        agent_name: str | None = None,
        limit: int = 100,
    ) -> list[ApprovalRecord]:
        return await super().approvals(status=None, version_id=version_id, agent_name=agent_name, limit=limit)


@pytest.mark.parametrize(
    ('kind', 'rule'),
    [
        (OneByOne, RULES.test_decisions_are_stored_together_or_not_at_all),
        (Unclaimed, RULES.test_one_run_claims_the_answers_of_a_version),
        (Unfiltered, RULES.test_approvals_are_listed_oldest_first),
        (Unfiltered, RULES.test_approval_expires),
    ],
)
async def test_wrong_approval_violates_a_rule(kind: type[SqlStore], rule: DialogueRule) -> None:
    await check_dialogue_violation(kind, rule)
