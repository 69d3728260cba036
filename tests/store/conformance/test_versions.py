"""The rules about heads and queries for versions fail for a store that violates them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pydantic_deep.store import (
    Commit,
    Committed,
    HeadMove,
    SqlStore,
    VersionFilter,
    VersionRecord,
)
from tests.store.conformance.conftest import RULES, DialogueRule, check_dialogue_violation

pytestmark = pytest.mark.anyio

EVERYTHING = VersionFilter()


class LastWins(SqlStore):
    """Moves heads wherever they are."""

    async def commit(self, commit: Commit) -> Committed:
        return await super().commit(replace(commit, heads=[await self._expected(move) for move in commit.heads]))

    async def _expected(self, move: HeadMove) -> HeadMove:
        conversation = await self.conversation(move.conversation_id)
        return replace(move, expected_id=conversation.head_id if conversation else move.expected_id)


class Guessing(SqlStore):
    """Finds the newest version whose id begins with any text."""

    async def version(self, id: str) -> VersionRecord:
        found = [version for version in await self.versions() if version.id.startswith(id)]
        return found[0] if found else await super().version(id)


class Restarting(SqlStore):
    """Ignores the position of a page and the case of names."""

    async def versions(
        self, filter: VersionFilter = EVERYTHING, *, limit: int = 100, offset: int = 0, before: int | None = None
    ) -> list[VersionRecord]:
        name = filter.exact_name
        return await super().versions(replace(filter, exact_name=name and name.lower()), limit=limit, offset=offset)


@pytest.mark.parametrize(
    ('kind', 'rule'),
    [
        (LastWins, RULES.test_head_move_with_a_wrong_expectation_raises),
        (Guessing, RULES.test_unambiguous_prefix_of_an_id_is_sufficient),
        (Guessing, RULES.test_invalid_id_is_not_found),
        (Restarting, RULES.test_pages_are_newest_first_and_stable),
        (Restarting, RULES.test_filters_select_versions),
    ],
)
async def test_wrong_version_violates_a_rule(kind: type[SqlStore], rule: DialogueRule) -> None:
    await check_dialogue_violation(kind, rule)
