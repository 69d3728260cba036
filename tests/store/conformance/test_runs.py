"""The rules about runs, calls and requests fail for a store that violates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pydantic_deep.store import CallRecord, Commit, Committed, DelegationRecord, RequestRecord, SqlStore
from tests.store.conformance.conftest import (
    RULES,
    DialogueRule,
    StoreRule,
    check_dialogue_violation,
    check_store_violation,
)

pytestmark = pytest.mark.anyio


class Reversed(SqlStore):
    """Lists the newest first."""

    async def calls(self, run_ids: Sequence[str]) -> list[CallRecord]:
        return (await super().calls(run_ids))[::-1]

    async def requests(self, run_id: str) -> list[RequestRecord]:
        return (await super().requests(run_id))[::-1]


class Unfiltered(SqlStore):
    """Lists all delegations."""

    async def delegations(
        self, *, parent_run_id: str | None = None, child_conversation_id: str | None = None
    ) -> list[DelegationRecord]:
        return await super().delegations()


class Hoarding(SqlStore):
    """Keeps results of calls and prompts that messages have."""

    async def commit(self, commit: Commit) -> Committed:
        return await super().commit(replace(commit, settled_calls=(), clears_prompt_of=None))


@pytest.mark.parametrize(
    ('kind', 'rule'),
    [
        (Reversed, RULES.test_calls_are_listed_in_the_order_of_their_start),
        (Reversed, RULES.test_requests_are_ordered_and_replaced_if_committed_again),
        (Unfiltered, RULES.test_delegations_are_found_by_parent_and_by_child),
    ],
)
async def test_wrong_list_violates_a_rule(kind: type[SqlStore], rule: StoreRule) -> None:
    await check_store_violation(kind, rule)


@pytest.mark.parametrize('rule', [RULES.test_result_and_prompt_are_removed_when_a_message_has_them])
async def test_duplicate_contents_violate_a_rule(rule: DialogueRule) -> None:
    await check_dialogue_violation(Hoarding, rule)
