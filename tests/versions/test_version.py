"""Versions: identity, ancestry and queries."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart

from pydantic_deep import Model
from pydantic_deep.store import (
    Commit,
    ConversationRecord,
    NewAsset,
    VersionNotFoundError,
    new_id,
    open_store,
)
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import ConversationNotFoundError, ValidationError, VersionedAgent
from pydantic_deep_backends import digest_of

from .conftest import CountingEngine, MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


async def test_version_id_is_a_uuid(make: MakeAgent):
    """000-03a: The identity of a version is a UUID."""
    version = await make().create(name='Q3')

    assert uuid.UUID(version.id).version == 7
    assert version.kind == 'root'
    assert version.state == 'complete'
    assert version.parent_id is None


async def test_versions_with_the_same_id_are_equal(make: MakeAgent):
    agent = make()
    version = await agent.create(name='Q3')
    other = await agent.create(name='Q3')

    assert version == await agent.load(version.id)
    assert version != other
    assert version != version.id
    assert len({version, await agent.load(version.id[:18]), other}) == 2


async def test_repr_describes_the_version(make: MakeAgent):
    agent = make()
    named, nameless = await agent.create(name='Q3'), await agent.create()

    assert repr(named) == f"<AgentVersion {named.id} 'Q3': root, complete, 0 messages, main>"
    assert repr(nameless) == f'<AgentVersion {nameless.id}: root, complete, 0 messages, main>'
    assert repr(agent) == "VersionedAgent('deep-agent', 'memory:')"
    assert named.created_at.tzinfo is UTC
    assert abs(named.created_at - datetime.now(UTC)) < timedelta(minutes=5)


async def test_version_of_another_store_is_not_found(make: MakeAgent, store: SpyStore):
    """000-03a: A version exists only in its own store."""
    version = await make().create()
    async with SpyStore(CountingEngine(MemoryEngine.open())) as other:
        elsewhere = VersionedAgent(make().agent, other)

        with pytest.raises(VersionNotFoundError, match=version.id):
            await elsewhere.load(version.id)


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
    """000-05c: It is called `clone`, and there is no `copy`."""
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


async def test_gc_removes_only_unreachable_content(make: MakeAgent, store: SpyStore):
    """000-10, C7: A garbage collection removes what no version reaches, and nothing else."""
    agent = make('one', 'two', then=lambda messages, info: 'more')
    kept = await (await agent.create(name='kept')).advance('keep me')
    lost = await (await agent.create(name='lost')).advance('lose me')
    before = await kept.messages()
    await agent.delete_line(lost)

    report = await agent.gc(0)

    assert report.removed['message'] == 2
    assert report.removed['conversation'] == 1
    assert await (await agent.load(kept.id)).messages() == before
    assert (await kept.advance('go on')).output == 'more'
    assert set((await agent.gc(0)).removed.values()) <= {0}


async def test_failed_gc_removes_nothing(make: MakeAgent, store: SpyStore):
    """000-10: A garbage collection removes conversations, messages and assets in one transaction: any failure rolls
    everything back.
    """
    agent = make('one')
    lost = await (await agent.create()).advance('lose me')
    conversation = lost.conversation_id
    await agent.delete_line(lost)
    store.counting.writes.clear()
    await agent.gc(3600)  # marks garbage, and shows the number of statements of a collection
    count = len(store.counting.writes)

    for stop in range(1, count):
        store.counting.fails_after = stop
        with pytest.raises(RuntimeError, match='power cut'):
            await agent.gc(0)
        assert await store.conversation(conversation) is not None

    assert (await agent.gc(0)).removed['message'] == 2
    assert await store.conversation(conversation) is None


async def test_list_is_newest_first_and_paged(make: MakeAgent):
    """000-14a: Versions are listed newest first, in pages."""
    agent = make()
    versions = [await agent.create(name=f'v{index}') for index in range(5)]

    assert await agent.list() == versions[::-1]
    assert await agent.list(limit=2, offset=1) == [versions[3], versions[2]]
    assert await agent.list(limit=2, offset=4) == [versions[0]]
    assert await agent.list(offset=5) == []


async def test_list_returns_a_hundred_by_default(make: MakeAgent):
    """000-14a: The default limit is 100."""
    agent = make()
    root = await agent.create()
    for _ in range(101):
        await root.clone()

    assert len(await agent.list()) == 100
    assert await agent.count() == 102


async def test_name_filter_is_a_case_insensitive_substring(make: MakeAgent):
    """000-14a, 000-14b: Versions are found by a part of their name, ignoring case."""
    agent = make()
    for name in ('Sales Q3', 'sales q4', 'Costs', '100%_safe', 'ÄRGER'):
        await agent.create(name=name)

    assert [version.name for version in await agent.list(name='SALES')] == ['sales q4', 'Sales Q3']
    assert [version.name for version in await agent.list(name='%_')] == ['100%_safe']
    assert [version.name for version in await agent.list(name="' or 1=1 --")] == []
    assert await agent.count(name='sales') == 2
    assert await agent.count() == 5


async def test_find_by_name_is_exact_and_case_sensitive(make: MakeAgent):
    """000-14c: `find_by_name(name)` returns the versions whose name is exactly that, case included, newest first."""
    agent = make('one')
    root = await agent.create(name='Q3')
    newest = await root.advance('go')

    assert await agent.find_by_name('Q3') == [newest, root]
    assert await agent.find_by_name('Q3', limit=1, offset=1) == [root]
    assert await agent.find_by_name('q3') == []
    assert await agent.find_by_name('Q') == []


async def test_find_by_name_excludes_failed_turns(make: MakeAgent):
    """A failed turn inherits the name of its conversation; a search by name must not return it."""
    agent = make(then=_raises)
    root = await agent.create(name='Q3')
    with pytest.raises(ConnectionError):
        await root.advance('go')

    assert {version.state for version in await agent.list(name='Q3')} == {'complete', 'failed'}
    assert await agent.find_by_name('Q3') == [root]


def _raises(messages: list[ModelMessage], info: object) -> str:
    raise ConnectionError('The model is away.')


async def test_unknown_thread_and_conversation_ids_raise_everywhere(make: MakeAgent):
    """A thread id that is not in the store raises; it never gives an empty list."""
    agent = make('one')
    root = await agent.create()
    unknown = agent.conversation('unknown')
    other = agent.conversation(root.conversation_id)

    for ask in (
        agent.thread('unknown'),
        agent.events('unknown'),
        unknown.head(),
        unknown.branches(),
        unknown.messages(),
        unknown.advance('go'),
    ):
        with pytest.raises(ConversationNotFoundError, match="no conversation 'unknown'") as error:
            await ask
        assert error.value.conversation_id == 'unknown'
    assert await agent.events(root.conversation_id) == []
    assert len(await other.branches()) == 1


async def test_versions_are_found_by_model_metadata_and_date(make: MakeAgent):
    """000-14d: Versions are also found by model, metadata and date."""
    agent = make('one')
    first = await agent.create(metadata={'team': 'a', 'year': 2026, 'open': True, 'note': None})
    second = await agent.create(metadata={'team': 'b', "it's": 'x'})
    turn = await second.advance('go')

    assert await agent.list(metadata={'team': 'a', 'year': 2026, 'open': True}) == [first]
    assert await agent.list(metadata={"it's": 'x'}) == [turn, second]
    assert await agent.list(metadata={"x' or 1=1": 'x'}) == []
    assert turn.model == 'scripted:scripted'
    assert await agent.list(model='scripted:scripted') == [turn]
    assert await agent.list(since=second.created_at) == [turn, second]
    assert await agent.list(until=second.created_at) == [first]
    assert await agent.count(since=second.created_at, until=turn.created_at) == 1


async def test_versions_of_a_conversation_are_listed(make: MakeAgent):
    """000-18b: The versions of a conversation, clones included, are listed."""
    agent = make('one', 'two')
    root = await agent.create()
    turn = await root.advance('a')
    clone = await turn.clone()
    await (await agent.create()).advance('b')

    assert await agent.list(conversation_id=root.conversation_id) == [clone, turn, root]
    assert await agent.count(conversation_id=root.conversation_id) == 3


async def test_only_versions_of_the_agent_are_listed(store: SpyStore, make: MakeAgent):
    one, two = make(name='one'), make(name='two')
    first, second = await one.create(), await two.create()

    assert await one.list() == [first]
    assert await two.list() == [second]


async def test_steps_are_listed_on_request(make: MakeAgent):
    agent = make(call('ls'), 'done')
    turn = await (await agent.create()).advance('go')

    assert [version.kind for version in await agent.list()] == ['turn', 'root']
    assert [version.kind for version in await agent.list(steps=True)] == ['turn', 'step', 'root']
    assert await agent.count(steps=True) == 3
    [step] = await turn.steps()
    assert (step.kind, step.message_count, step.parent_id) == ('step', 2, turn.parent_id)
    assert await step.steps() == []
    root = (await turn.lineage())[0]
    assert await root.children() == [turn]
    assert await root.children(steps=True) == [step, turn]


async def test_conversation_id_can_be_chosen(make: MakeAgent):
    agent = make()
    root = await agent.create(conversation_id='ticket-7')

    assert root.conversation_id == 'ticket-7'
    with pytest.raises(ValidationError, match="'ticket-7'") as caught:
        await agent.create(conversation_id='ticket-7')
    assert caught.value.field == 'conversation_id'
    assert await agent.count() == 1


async def test_any_string_is_accepted_as_a_model(make: MakeAgent):
    """000-04: A model is a plain string; there are constants for known ones, and any other string is accepted."""
    agent = make()

    version = await agent.create(model='house:brand-new-9')

    assert version.model == 'house:brand-new-9'
    assert await agent.list(model='house:brand-new-9') == [version]
    assert type(Model.CLAUDE_OPUS) is str


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


async def test_messages_can_be_sliced(make: MakeAgent, store: SpyStore):
    version = await (await (await make('one', 'two').create()).advance('a')).advance('b')
    history = await version.messages()

    assert await version.messages(start=1) == history[1:]
    assert await version.messages(start=1, stop=3) == history[1:3]
    assert await version.messages(stop=99) == history
    assert await version.messages(start=7) == []
    assert [type(message) for message in history] == [ModelRequest, ModelResponse] * 2


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


async def test_unnamed_agent_has_a_default_name(store: SpyStore):
    agent = VersionedAgent(Agent(ScriptedModel('one')), store)

    assert agent.name == 'agent'
    assert (await agent.create()).agent_name == 'agent'
