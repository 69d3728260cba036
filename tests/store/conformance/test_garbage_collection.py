"""The rules about deletion and garbage collection fail for a store that violates them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pydantic_deep.store import Commit, Committed, GarbageReport, SqlStore, VersionNotFoundError
from tests.store.conformance.conftest import (
    RULES,
    DialogueRule,
    StoreRule,
    check_dialogue_violation,
    check_store_violation,
)

pytestmark = pytest.mark.anyio


class Eager(SqlStore):
    """Removes garbage at once."""

    async def gc(self, grace_seconds: float = 3600) -> GarbageReport:
        return await super().gc(0)


class Hoarding(SqlStore):
    """Never removes garbage."""

    async def gc(self, grace_seconds: float = 3600) -> GarbageReport:
        return await super().gc(10**6)


class Forgetful(SqlStore):
    """Does not record running runs."""

    async def commit(self, commit: Commit) -> Committed:
        runs = [run._replace(state='failed') for run in commit.runs]
        return await super().commit(replace(commit, runs=runs))


class Unbroken(SqlStore):
    """Deletes the whole line of a version."""

    async def delete(self, id: str, *, exclusive: bool = False) -> None:
        if not await self.delete_line(id):
            raise VersionNotFoundError(id)


@pytest.mark.parametrize(
    ('kind', 'rule'),
    [
        (Unbroken, RULES.test_deleting_a_version_preserves_its_children_and_their_history),
        (Hoarding, RULES.test_gc_removes_unreachable_objects),
        (Hoarding, RULES.test_gc_cuts_a_branch_after_its_last_version),
        (Eager, RULES.test_marked_object_that_is_committed_again_is_preserved),
        (Forgetful, RULES.test_gc_preserves_objects_of_running_runs),
        (Forgetful, RULES.test_base_of_a_running_run_is_not_deleted_with_a_line),
    ],
)
async def test_wrong_collection_violates_a_rule(kind: type[SqlStore], rule: DialogueRule) -> None:
    await check_dialogue_violation(kind, rule)


@pytest.mark.parametrize(('kind', 'rule'), [(Eager, RULES.test_gc_marks_first_and_removes_later)])
async def test_early_collection_violates_a_rule(kind: type[SqlStore], rule: StoreRule) -> None:
    await check_store_violation(kind, rule)
