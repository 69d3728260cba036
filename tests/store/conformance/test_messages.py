"""The rules about messages and branches fail for a store that violates them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pydantic_deep.store import Commit, Committed, MessageRecord, SqlStore
from tests.store.conformance.conftest import RULES, DialogueRule, check_dialogue_violation

pytestmark = pytest.mark.anyio


class FromTheStart(SqlStore):
    """Reads the messages of a branch from its start."""

    async def messages(self, branch_id: str, stop: int, *, start: int = 0) -> list[MessageRecord]:
        return await super().messages(branch_id, stop)


class Unnamed(SqlStore):
    """Ignores the names of new branches."""

    async def commit(self, commit: Commit) -> Committed:
        if commit.append is None:
            return await super().commit(commit)
        return await super().commit(replace(commit, append=replace(commit.append, fork_name=None)))


class Forking(SqlStore):
    """Creates a branch for every append."""

    async def commit(self, commit: Commit) -> Committed:
        if commit.append is None:
            return await super().commit(commit)
        return await super().commit(replace(commit, append=replace(commit.append, is_fork=True)))


@pytest.mark.parametrize(
    ('kind', 'rule'),
    [
        (FromTheStart, RULES.test_messages_are_read_in_the_requested_range),
        (Unnamed, RULES.test_branch_is_created_with_the_requested_name_or_not_at_all),
        (Forking, RULES.test_append_at_the_tip_extends_the_branch),
        (Forking, RULES.test_concurrent_appends_at_one_position_all_have_a_history),
    ],
)
async def test_wrong_branch_violates_a_rule(kind: type[SqlStore], rule: DialogueRule) -> None:
    await check_dialogue_violation(kind, rule)
