"""The rules about contents fail for a store that violates them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pydantic_deep.store import AssetRecord, Commit, Committed, SqlStore
from pydantic_deep_backends import digest_of
from tests.store.conformance.conftest import (
    RULES,
    DialogueRule,
    StoreRule,
    check_dialogue_violation,
    check_store_violation,
)

pytestmark = pytest.mark.anyio


class Trimming(SqlStore):
    """Loses zero bytes at the end of contents."""

    async def asset(self, digest: str) -> AssetRecord:
        asset = await super().asset(digest)
        return replace(asset, data=asset.data.rstrip(b'\0'))


class Correcting(SqlStore):
    """Corrects digests, and removes characters that it cannot store."""

    async def commit(self, commit: Commit) -> Committed:
        assets = [replace(asset, digest=digest_of(asset.data)) for asset in commit.assets]
        versions = [version._replace(name=_storable(version.name)) for version in commit.versions]
        return await super().commit(replace(commit, assets=assets, versions=versions))


def _storable(text: str | None) -> str | None:
    return text and text.encode(errors='ignore').decode().replace('\0', '')


@pytest.mark.parametrize(
    ('kind', 'rule'),
    [
        (Trimming, RULES.test_contents_are_read_unchanged),
        (Correcting, RULES.test_contents_must_match_their_digest),
    ],
)
async def test_changed_contents_violate_a_rule(kind: type[SqlStore], rule: StoreRule) -> None:
    await check_store_violation(kind, rule)


@pytest.mark.parametrize('rule', [RULES.test_unstorable_text_is_refused])
async def test_changed_text_violates_a_rule(rule: DialogueRule) -> None:
    await check_dialogue_violation(Correcting, rule)
