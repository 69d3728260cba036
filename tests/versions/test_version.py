"""Versions: identity, ancestry and deletion."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart

from pydantic_deep.store import (
    Commit,
    ConversationRecord,
    NewAsset,
    VersionNotFoundError,
    new_id,
    open_store,
)
from pydantic_deep.store.sql._commit_rows import size_of
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import VersionedAgent
from pydantic_deep_backends import digest_of

from .conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


async def test_version_id_is_a_uuid(make: MakeAgent):
    """000-03a: The identity of a version is a UUID."""
    version = await make().create(name='Q3')

    assert uuid.UUID(version.id).version == 7
    assert version.kind == 'root'
    assert version.state == 'complete'
    assert version.parent_id is None


async def test_clone_is_a_sibling_in_the_same_conversation(make: MakeAgent, store: SpyStore):
    """000-05a: `clone()` returns a version with a new UUID and the same parent: a sibling."""
    agent = make('one', name='analyst')
    root = await agent.create(name='Q3', metadata={'team': 'a'}, model_settings={'temperature': 0.5})
    version = await root.advance('go')
    store.commits.clear()

    clone = await version.clone()

    assert clone.id != version.id
    assert clone.parent_id == version.parent_id == root.id
    assert clone.cloned_from == version.id
    assert clone.conversation_id == version.conversation_id
    assert await clone.messages() == await version.messages()
    assert (clone.name, dict(clone.metadata), clone.model_settings) == ('Q3', {'team': 'a'}, {'temperature': 0.5})
    assert (clone.output, clone.tree, clone.kind) == (version.output, version.tree, version.kind)
    [commit] = store.commits
    assert commit.append is None  # no message is written or copied


async def test_clone_of_a_root_is_a_root(make: MakeAgent):
    """000-05a: A clone has the same parent, or none."""
    root = await make().create()

    clone = await root.clone()

    assert clone.parent_id is None
    assert [version.id for version in await clone.lineage()] == [clone.id]


async def test_clone_has_no_alias_named_copy(make: MakeAgent):
    """000-05c: The method is called `clone`, and no method is called `copy`."""
    version = await make().create()

    assert hasattr(version, 'clone')
    assert not hasattr(version, 'copy')


async def test_advance_creates_a_child(make: MakeAgent):
    """000-05b: `advance` returns a child."""
    root = await make('one').create(name='Q3', metadata={'team': 'a'})

    child = await root.advance('go')

    assert child.parent_id == root.id
    assert child.conversation_id == root.conversation_id
    assert (child.kind, child.state, child.output) == ('turn', 'complete', 'one')
    assert (child.name, dict(child.metadata)) == ('Q3', {'team': 'a'})
    assert await root.children() == [child]
    assert root.message_count == 0


async def test_with_metadata_creates_a_child_and_preserves_the_rest(make: MakeAgent, store: SpyStore):
    """000-05b: `with_metadata` returns a child."""
    root = await make('one').create(name='Q3', metadata={'team': 'a'}, model_settings={'temperature': 0.5})
    version = await root.advance('go')

    child = await version.with_metadata({'team': 'b', 'tags': ['x', {'y': None}]}, name='Q4')
    cooler = await child.with_metadata(model_settings={'temperature': 0.0})

    assert (child.parent_id, child.kind) == (version.id, 'edit')
    assert (child.name, child.metadata['team'], child.metadata['tags']) == ('Q4', 'b', ('x', {'y': None}))
    assert child.model_settings == {'temperature': 0.5}
    assert (cooler.name, cooler.metadata, cooler.model_settings) == ('Q4', child.metadata, {'temperature': 0.0})
    assert await cooler.messages() == await version.messages()
    assert dict(version.metadata) == {'team': 'a'}


@pytest.mark.parametrize('metadata', [{'x': object()}, {'x': float('nan')}, {'x': {1, 2}}])
async def test_metadata_that_json_cannot_represent_are_refused(make: MakeAgent, metadata: dict[str, object]):
    agent = make()
    with pytest.raises(ValueError, match=r'^metadata: JSON cannot hold this'):
        await agent.create(metadata=metadata)
    root = await agent.create()
    with pytest.raises(ValueError, match=r'^metadata: JSON cannot hold this'):
        await root.with_metadata(metadata)
    assert await agent.count() == 1


async def test_lineage_is_root_first(make: MakeAgent):
    """000-07: A lineage is root first; `parent_id is None` ends it."""
    root = await make('one', 'two').create()
    first = await root.advance('a')
    second = await first.advance('b')

    lineage = await second.lineage()

    assert list(lineage) == [root, first, second]
    assert lineage.truncated_at is None


async def test_lineage_of_any_depth_is_one_query(make: MakeAgent, store: SpyStore):
    """000-08a: A lineage of any depth is one recursive query."""
    version = await make().create()
    counts: list[tuple[int, int]] = []
    for depth in (1, 20):
        for _ in range(depth):
            version = await version.with_metadata({'depth': depth})
        store.counting.reads.clear()
        lineage = await version.lineage()
        recursive = sum('RECURSIVE' in sql.upper() for sql in store.counting.reads)
        counts.append((recursive, len(store.counting.reads)))
        assert len(lineage) == (2 if depth == 1 else 22)
    assert [recursive for recursive, _ in counts] == [1, 1]
    assert counts[0] == counts[1]  # a fixed number of other queries: names and deps of all versions at once


async def test_missing_parent_raises(tmp_path: Path):
    """000-07, C5: A reference to a missing parent is corruption."""
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        root = await VersionedAgent(Agent(ScriptedModel()), store).create()
        child = await root.with_metadata({'a': 1})
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw, raw:
        raw.execute('DELETE FROM version WHERE number = ?', (root.record.number,))

    async with open_store(url) as store:
        loaded = await VersionedAgent(Agent(ScriptedModel()), store).load(child.id)
        with pytest.raises(VersionNotFoundError):
            await loaded.lineage()


async def test_deleting_a_parent_preserves_its_children(make: MakeAgent):
    """000-17: Deleting a parent keeps its children, and a lineage ends where a parent was deleted."""
    agent = make('one', 'two')
    root = await agent.create()
    first = await root.advance('a')
    second = await first.advance('b')

    await agent.delete(first)

    loaded = await agent.load(second.id)
    lineage = await loaded.lineage()
    assert list(lineage) == [second]
    assert lineage.truncated_at == first.id
    assert loaded.parent_id == first.id
    assert len(await loaded.messages()) == 4
    with pytest.raises(VersionNotFoundError, match=first.id):
        await agent.load(first.id)


async def test_version_with_a_deleted_parent_can_advance(make: MakeAgent):
    """000-17, C7: A version with a deleted parent can be loaded and advanced."""
    agent = make('one', 'two', 'three')
    first = await (await agent.create()).advance('a')
    second = await first.advance('b')
    await agent.delete(first.id)
    await agent.gc(0)

    third = await second.advance('c')

    assert third.output == 'three'
    assert [each.id for each in await third.lineage()] == [second.id, third.id]
    assert len(await (await agent.load(third.id)).messages()) == 6


async def test_delete_line_stops_at_the_shared_ancestor(make: MakeAgent):
    """C7: Deleting a line stops at the first version that another line shares."""
    agent = make('one', 'two', 'three', 'four')
    root = await agent.create()
    shared = await root.advance('a')
    kept = await shared.advance('b')
    alt = await shared.advance('c')
    tip = await alt.advance('d')

    deleted = await agent.delete_line(tip)

    assert deleted >= 2
    assert {version.id for version in await agent.list()} == {root.id, shared.id, kept.id}
    assert len(await (await agent.load(kept.id)).messages()) == 4


async def test_turn_can_branch_from_an_older_version(make: MakeAgent):
    """000-06b: Content is shared, and never duplicated."""
    agent = make('one', 'two', 'three')
    root = await agent.create()
    first = await root.advance('a')
    second = await first.advance('b')
    alt = await first.advance('c')

    records = [await agent.store.messages(v.record.branch_id, v.message_count) for v in (second, alt)]

    assert [record.id for record in records[0][:2]] == [record.id for record in records[1][:2]]
    assert records[0][2].id != records[1][2].id
    texts = [[p.content for m in await v.messages() if isinstance(m, ModelResponse) for p in m.parts if isinstance(p, TextPart)] for v in (second, alt)]  # fmt: skip
    assert texts == [['one', 'two'], ['one', 'three']]


async def test_version_with_a_missing_reference_is_refused(store: SpyStore, make: MakeAgent):
    """000-11, C6: A version that refers to a missing record is refused, and none of its commit is stored."""
    root = await make().create()
    asset = NewAsset(digest=digest_of(b'x'), data=b'x')
    orphan = root.record._replace(id=new_id(), number=0, branch_id='nowhere', conversation_id='new')

    with pytest.raises(ValueError, match="no branch 'nowhere'"):
        await store.commit(
            Commit(assets=[asset], conversations=[ConversationRecord('new', 'a', None, 0)], versions=[orphan])
        )

    assert await store.has_assets([asset.digest]) == set()
    assert await store.conversation('new') is None


async def test_clone_is_one_commit_without_messages(make: MakeAgent, store: SpyStore):
    """000-06a: The cost of a clone does not depend on the length of the conversation."""
    agent = make(then=lambda messages, info: 'answer')
    version = await agent.create()
    sizes: list[int] = []
    for turn in range(20):
        version = await version.advance(f'prompt {turn:03}')
        store.commits.clear()
        await version.clone()
        sizes.append(sum(size_of(commit) for commit in store.commits))
        assert len(store.commits) == 1

    assert max(sizes) - min(sizes) <= 8
