"""Immutable versions of agents, through the public API."""

from __future__ import annotations

import ast
import gc
import inspect
import sqlite3
import threading
import uuid
from collections.abc import AsyncGenerator, Generator
from contextlib import closing
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ToolReturnPart

from pydantic_deep import VersionedAgent, create_deep_agent, open_store
from pydantic_deep.store import (
    Commit,
    ConversationRecord,
    NewAsset,
    SqlStore,
    Store,
    StoreCorruptedError,
    VersionNotFoundError,
    new_id,
)
from pydantic_deep.store.engine import Statement
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import AgentVersion, _lru
from pydantic_deep.versions._lru import LRUCache
from pydantic_deep_backends import digest_of

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
async def store() -> AsyncGenerator[SqlStore]:
    async with open_store('memory:') as store:
        yield store


class Reads:
    """Records the statements that an engine reads."""

    def __init__(self, read: Any) -> None:
        self._read = read
        self.statements: list[str] = []

    async def __call__(self, operation: Any) -> Any:
        def noted() -> Any:
            asked = operation()
            statement = next(asked, None)
            while statement is not None:
                self.statements.append(statement.sql)
                try:
                    statement = asked.send((yield statement))
                except StopIteration as end:
                    return end.value

        return await self._read(noted)


def answering(store: Store, **options: Any) -> VersionedAgent[Any, Any]:
    """Return an agent that answers with the number of messages so far."""
    model = ScriptedModel(then=lambda messages, info: f'answer {len(messages)}')
    return VersionedAgent(create_deep_agent(model, **options), store)


def test_cache_lock_guards_only_single_operations() -> None:
    """The lock of the LRU cache.

    000-01a: The lock of the cache is a `threading.RLock`, which guards single operations on a dictionary and nothing
    else.

    000-01b: That lock is never held across an `await`; reading the cache is synchronous, and there is no
    `asyncio.Lock`.
    """
    cache = LRUCache[int](max_entries=2)
    locks = [value for value in vars(cache).values() if isinstance(value, type(threading.RLock()))]
    tree = ast.parse(inspect.getsource(_lru))
    guarded = [node for node in ast.walk(tree) if isinstance(node, ast.With)]

    assert len(locks) == 1
    assert len(guarded) == 2  # in `get` and `set`
    assert {ast.unparse(each.func) for node in guarded for each in ast.walk(node) if isinstance(each, ast.Call)} == {
        'self._values.move_to_end', 'self._values.get', 'self._values.popitem', 'len',
    }  # fmt: skip
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Await | ast.AsyncWith | ast.AsyncFunctionDef)]
    assert 'asyncio' not in inspect.getsource(_lru)
    assert (cache.set('a', 1), cache.get('a')) == (1, 1)


@pytest.mark.slow
async def test_memory_store_evicts_nothing() -> None:
    """000-02a: The store in memory keeps everything until it is deleted or the store is closed; nothing is evicted."""
    async with open_store('memory:evicts-nothing') as store:
        agent = answering(store)
        ids = [(await (await agent.create(name=f'c{n}')).advance(f'prompt {n}')).id for n in range(20)]
        gc.collect()
        prompts = [str((await (await agent.load(id)).messages())[0]) for id in ids]
        assert all(f'prompt {n}' in prompt for n, prompt in enumerate(prompts))

        await agent.delete(ids[0])
        with pytest.raises(VersionNotFoundError):
            await agent.load(ids[0])
        assert await agent.count() == 39
    async with open_store('memory:evicts-nothing') as store:
        assert await answering(store).count() == 0


def test_memory_and_postgresql_share_one_interface() -> None:
    """000-02b: The store in memory is for tests and PostgreSQL for production, behind the same interface and conformance
    suite.
    """
    guide = (ROOT / 'docs/guides/stores.md').read_text()
    suites = [(ROOT / 'tests/store' / name).read_text() for name in ('test_memory.py', 'postgres/test_engine.py')]

    missing = [name for name in dir(Store) if not name.startswith('_') and not hasattr(SqlStore, name)]
    assert missing == []
    assert inspect.signature(open_store).return_annotation == 'AsyncGenerator[SqlStore]'  # for every URL
    assert all('(StoreSuite)' in text for text in suites)
    assert 'memory:' in suites[0]
    assert '| `memory:` |' in guide
    assert '| `postgresql://' in guide


async def test_version_is_identified_by_its_uuid_in_one_store(store: SqlStore) -> None:
    """000-03a: The identity of a version is its UUID, and a version of one store is not in another."""
    version = await answering(store).create(name='Q3')
    same = await answering(store).load(version.id)

    assert uuid.UUID(version.id).version == 7
    assert (same == version, hash(same) == hash(version)) == (True, True)
    async with open_store('memory:') as other:
        mine = await answering(other).create(name='Q3')
        assert mine != version
        with pytest.raises(VersionNotFoundError, match=version.id):
            await answering(other).load(version.id)


async def test_versions_hide_the_store(store: SqlStore) -> None:
    """000-03b: The store is hidden: users call `version.advance()`, `version.messages()` and the like, which use it."""
    root = await answering(store).create()
    turn = await root.advance('go')

    assert len(await turn.messages()) == 2
    assert [each.id for each in await turn.lineage()] == [root.id, turn.id]
    public = {name: getattr(AgentVersion, name) for name in dir(AgentVersion) if not name.startswith('_')}
    methods = [each for each in public.values() if inspect.isfunction(each)]
    assert len(methods) > 10
    for method in methods:
        assert not {'store', 'session', 'connection'} & set(inspect.signature(method).parameters)


async def test_advance_and_with_metadata_create_children(store: SqlStore) -> None:
    """000-05b: `advance()` and `with_metadata()` return a version with a new UUID whose parent is the original: a child."""
    root = await answering(store).create(metadata={'team': 'a'})
    children = [await root.advance('go'), await root.with_metadata({'team': 'b'})]

    assert len({root.id, *(child.id for child in children)}) == 3
    assert [child.parent_id for child in children] == [root.id, root.id]
    assert await root.children() == children
    assert (root.message_count, dict(root.metadata)) == (0, {'team': 'a'})


async def test_clone_shares_conversation_and_messages(store: SqlStore) -> None:
    """000-06a: A version leads to its conversation and its messages; a clone shares them, and costs the same however long
    they are.
    """
    agent = answering(store)
    version = await agent.create()
    rows_by_length: dict[int, dict[str, int]] = {}
    for length in range(1, 7):
        version = await version.advance(f'prompt {length}')
        before = await counts(store)
        clone = await version.clone()
        after = await counts(store)
        rows_by_length[length] = {table: after[table] - before[table] for table in after}
        assert (clone.conversation_id, clone.message_count) == (version.conversation_id, 2 * length)
        assert await clone.messages() == await version.messages()

    assert all(each == {'version': 1, 'entry': 0, 'message': 0, 'conversation': 0} for each in rows_by_length.values())


async def test_messages_are_shared_by_id(store: SqlStore) -> None:
    """000-06b: A version refers to its messages without listing them, and messages are shared by id and never stored twice."""
    agent = answering(store)
    first = await (await agent.create()).advance('CANARY')
    for _ in range(5):
        await first.advance('more')

    assert (await counts(store))['message'] == 2 + 5 * 2
    stored = [each for version in await agent.list() for each in await store.messages(version.record.branch_id, 2)]
    assert len({each.id for each in stored if b'CANARY' in each.body}) == 1
    assert all(isinstance(value, str | int | None) for value in first.record)  # no list of ids
    assert first.record.message_count == 2


async def counts(store: SqlStore) -> dict[str, int]:
    """Return the row counts of some tables."""
    engine: Any = store._engine  # pyright: ignore[reportPrivateUsage] - the test counts rows
    tables = ('version', 'entry', 'message', 'conversation')

    def read() -> Generator[Statement, list[Any], dict[str, int]]:
        found: dict[str, int] = {}
        for table in tables:
            rows = yield Statement(f'SELECT count(*) FROM {table}')
            found[table] = rows[0][0]
        return found

    return await engine.read(read)


async def test_lineage_ends_at_a_root_and_raises_at_a_missing_parent(tmp_path: Path) -> None:
    """000-07: A parent that is missing without having been deleted raises `VersionNotFoundError`; a version without a
    parent ends the lineage normally.
    """
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        root = await answering(store).create()
        child = await root.with_metadata({'a': 1})
        assert [each.id for each in await child.lineage()] == [root.id, child.id]
        assert (await child.lineage()).truncated_at is None
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw, raw:
        raw.execute('DELETE FROM version WHERE number = ?', (root.record.number,))

    async with open_store(url) as store:
        loaded = await answering(store).load(child.id)
        with pytest.raises(VersionNotFoundError, match=root.id) as error:
            await loaded.lineage()
        assert isinstance(error.value, StoreCorruptedError)  # the parent was not deleted through the API


async def test_memory_store_returns_the_same_lineage(tmp_path: Path) -> None:
    """000-08b: A store in memory returns the same lineage, and caches the rows that it has read."""
    kinds: list[list[str]] = []
    for url in ('memory:', f'sqlite:///{tmp_path}/agents.db'):
        async with open_store(url) as store:
            version = await answering(store).create()
            for number in range(5):
                version = await version.advance(f'prompt {number}')
            loaded = await answering(store).load(version.id)
            lineage = await loaded.lineage()
            kinds.append([each.kind for each in lineage])
            engine: Any = store._engine  # pyright: ignore[reportPrivateUsage] - the test counts reads
            reads = Reads(engine.read)
            engine.read = reads
            await loaded.advance('one way')
            await loaded.advance('another way')
            assert len([sql for sql in reads.statements if 'body' in sql]) == 1
    assert kinds[0] == kinds[1] == ['root', *['turn'] * 5]


async def test_versions_and_assets_have_an_identity_and_are_frozen(store: SqlStore) -> None:
    """000-09: Every version and every asset has an identity and a time of creation, and is frozen."""
    version = await answering(store).create(metadata={'team': {'lead': 'ada'}})
    await store.commit(Commit(assets=[NewAsset(digest=digest_of(b'x'), data=b'x')]))
    asset = await store.asset(digest_of(b'x'))

    assert (len(version.id), version.created_at.tzinfo is not None) == (36, True)
    assert (asset.digest, asset.created_at > 0) == (digest_of(b'x'), True)
    for thing, name in ((version, 'id'), (version, 'created_at'), (asset, 'digest'), (asset, 'created_at')):
        with pytest.raises((AttributeError, FrozenInstanceError)):
            setattr(thing, name, 'other')
    frozen: Any = version.metadata
    for change in (lambda: frozen.update(a=1), lambda: frozen['team'].update(lead='bob')):
        with pytest.raises((AttributeError, TypeError)):
            change()


async def test_references_must_be_stored_first(store: SqlStore) -> None:
    """000-11: Everything that a version refers to is stored before it or with it; a version with another reference is
    refused completely, and the rule is documented.
    """
    root = await answering(store).create()
    asset = NewAsset(digest=digest_of(b'x'), data=b'x')
    conversation = ConversationRecord('new', 'a', None, 0)
    orphan = root.record._replace(id=new_id(), number=0, branch_id='nowhere', conversation_id='new')

    with pytest.raises(ValueError, match="no branch 'nowhere'"):
        await store.commit(Commit(assets=[asset], conversations=[conversation], versions=[orphan]))
    assert await store.has_assets([asset.digest]) == set()
    assert await store.conversation('new') is None
    assert 'refer only to rows of the same or an earlier commit' in (ROOT / 'ARCHITECTURE.md').read_text()


async def test_failing_tool_loses_no_progress(store: SqlStore) -> None:
    """000-12: A tool that fails becomes a failed result that the model sees, the model may try again, and `advance()` loses
    no progress for it.
    """
    tries: list[int] = []

    def burn() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise KeyError('fire')
        return 'cooked'

    plain = Agent(ScriptedModel(call('burn'), call('burn'), call('burn'), 'done'), tools=[burn])
    deep = create_deep_agent(ScriptedModel(call('burn'), call('burn'), call('burn'), 'done'), tools=[burn])
    for agent in (deep, plain):
        tries.clear()
        versioned: VersionedAgent[Any, Any] = VersionedAgent(agent, store)
        turn = await (await versioned.create()).advance('go')
        parts = [part for message in await turn.messages() for part in message.parts]
        results = [part for part in parts if isinstance(part, ToolReturnPart)]
        assert (turn.state, turn.output) == ('complete', 'done')
        assert [part.outcome for part in results] == ['failed', 'failed', 'success']
        assert 'KeyError' in results[0].model_response_str()


async def test_streamed_turn_is_stored_step_by_step(store: SqlStore) -> None:
    """000-13c: A streamed turn is stored step by step and never by delta, it ends with one version, and the
    documentation says so.
    """
    model = ScriptedModel(call('ls'), 'one two three four')
    agent = VersionedAgent(create_deep_agent(model), store)
    root = await agent.create()
    stored: list[int] = []
    stream = root.advance_stream('go')
    async for _ in stream:
        stored.append((await counts(store))['message'])

    assert len(stored) > 2
    assert set(stored) == {2}  # messages before this answer: the prompt and the call
    assert [(each.kind, each.state) for each in await agent.list(steps=True)] == [
        ('turn', 'complete'), ('step', 'interrupted'), ('root', 'complete'),
    ]  # fmt: skip
    texts = [
        part.content
        for message in await stream.version.messages()
        for part in message.parts
        if part.part_kind == 'text'
    ]
    assert texts == ['one two three four']
    guide = (ROOT / 'docs/guides/versions.md').read_text()
    assert 'deltas are not stored' in guide
    assert 'stores an `interrupted` version' in guide


async def test_versions_are_listed_and_counted_by_a_part_of_the_name(store: SqlStore) -> None:
    """List and count by name.

    000-14a: `list(limit=100, offset=0, name=None)` is paged, newest first, and finds a part of a name whatever its case.

    000-14b: `count(name=None)` counts with the same filter.
    """
    agent = answering(store)
    names = ['Sales Q3', 'sales q4', 'Costs', '100%_safe', 'ÄRGER']
    versions = [await agent.create(name=name) for name in names]

    assert await agent.list() == versions[::-1]
    assert await agent.list(limit=2, offset=1) == [versions[3], versions[2]]
    for part, found in (('SALES', 2), ('%_', 1), ('ärger', 1), ("' or 1=1 --", 0), ('o', 1)):
        assert len(await agent.list(name=part)) == await agent.count(name=part) == found
    assert await agent.count() == 5
    for _ in range(96):
        await versions[0].clone()
    assert (len(await agent.list()), await agent.count()) == (100, 101)


async def test_versions_of_a_conversation_are_found_by_an_index(tmp_path: Path) -> None:
    """000-18a: Looking versions up by conversation uses an index."""
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        await answering(store).create()
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
        plan = ' '.join(
            row[3] for row in raw.execute('EXPLAIN QUERY PLAN SELECT id FROM version WHERE conversation = 1')
        )

    assert 'USING' in plan
    assert 'INDEX' in plan
    assert 'SCAN' not in plan
