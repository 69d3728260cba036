"""The rules about commits fail for a store that violates them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pydantic_deep.store import Commit, Committed, SqlStore
from tests.store.conformance.conftest import RULES, DialogueRule, check_dialogue_violation

pytestmark = pytest.mark.anyio


class Halfway(SqlStore):
    """Stores assets before the rest of a commit."""

    async def commit(self, commit: Commit) -> Committed:
        await super().commit(Commit(assets=commit.assets))
        return await super().commit(commit)


class Quiet(SqlStore):
    """Ignores commits that it cannot store."""

    async def commit(self, commit: Commit) -> Committed:
        try:
            return await super().commit(commit)
        except (LookupError, ValueError):
            return await super().commit(Commit())


class Lossy(SqlStore):
    """Loses the settings of versions."""

    async def commit(self, commit: Commit) -> Committed:
        versions = [version._replace(model_settings='{}') for version in commit.versions]
        return await super().commit(replace(commit, versions=versions))


@pytest.mark.parametrize(
    ('kind', 'rule'),
    [
        (Halfway, RULES.test_failed_commit_stores_nothing),
        (Quiet, RULES.test_ids_are_used_once),
        (Quiet, RULES.test_referenced_version_must_exist),
        (Quiet, RULES.test_referenced_contents_must_exist),
        (Lossy, RULES.test_committed_rows_are_read_unchanged),
    ],
)
async def test_wrong_commit_violates_a_rule(kind: type[SqlStore], rule: DialogueRule) -> None:
    await check_dialogue_violation(kind, rule)
