"""An agent with a store: creating, listing, finding and collecting versions."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage

from pydantic_deep import Model, StateBackend
from pydantic_deep.store import StoreError, VersionNotFoundError
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.store.operations import _garbage_collection
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import ConversationNotFoundError, ValidationError, VersionedAgent
from tests.versions.conftest import CountingEngine, MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


async def test_version_of_another_store_is_not_found(make: MakeAgent, store: SpyStore):
    """000-03a: A version exists only in its own store."""
    version = await make().create()
    async with SpyStore(CountingEngine(MemoryEngine.open())) as other:
        elsewhere = VersionedAgent(make().agent, other)

        with pytest.raises(VersionNotFoundError, match=version.id):
            await elsewhere.load(version.id)


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

    One of more than 1,000 rows consists of several transactions.
    """
    agent = make('one')
    lost = await (await agent.create()).advance('lose me')
    conversation = lost.conversation_id
    await agent.delete_line(lost)
    failures = 0
    while True:
        store.counting.fails_at = len(store.counting.writes) + failures
        try:
            report = await agent.gc(0)
        except RuntimeError:
            failures += 1
            assert await store.conversation(conversation) is not None
            assert len(await store.branches(conversation)) == 1
        else:
            break

    store.counting.fails_at = None
    assert failures > 10
    assert report.removed['message'] == 2
    assert await store.conversation(conversation) is None


async def test_failed_gc_is_continued_by_the_next(make: MakeAgent, store: SpyStore, monkeypatch: pytest.MonkeyPatch):
    """A large garbage collection consists of short transactions. One that fails leaves everything that versions need,
    and the next one removes the rest.
    """
    monkeypatch.setattr(_garbage_collection, '_WHOLE', 0)
    agent = make('one', 'two')
    kept = await (await agent.create()).advance('keep me')
    lost = await (await agent.create()).advance('lose me')
    conversation = lost.conversation_id
    await agent.delete_line(lost)
    store.counting.fails_after = 0
    with pytest.raises(RuntimeError, match='power cut'):
        await agent.gc(0)
    assert len(await kept.messages()) == 2

    assert (await agent.gc(0)).removed['message'] == 2
    assert await store.conversation(conversation) is None
    assert len(await kept.messages()) == 2


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
    """000-14c: `find_by_name(name)` returns the versions with exactly this name, case included, newest first."""
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


async def test_conversation_id_that_another_process_chooses_meanwhile_is_taken(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch
):
    agent = make()
    await agent.create(conversation_id='ticket-7')

    async def find_nothing(id: str) -> None:
        return None

    monkeypatch.setattr(agent.store, 'conversation', find_nothing)
    with pytest.raises(ValidationError, match="There is a conversation 'ticket-7' already"):
        await agent.create(conversation_id='ticket-7')
    assert await agent.count() == 1


async def test_any_string_is_accepted_as_a_model(make: MakeAgent):
    """000-04: A model is a plain string; there are constants for known ones, and any other string is accepted."""
    agent = make()

    version = await agent.create(model='house:brand-new-9')

    assert version.model == 'house:brand-new-9'
    assert await agent.list(model='house:brand-new-9') == [version]
    assert type(Model.CLAUDE_OPUS) is str


async def test_unnamed_agent_has_a_default_name(store: SpyStore):
    agent = VersionedAgent(Agent(ScriptedModel('one')), store)

    assert agent.name == 'agent'
    assert (await agent.create()).agent_name == 'agent'


async def test_list_makes_a_fixed_number_of_reads(make: MakeAgent, store: SpyStore):
    agent = make()
    root = await agent.create()
    await agent.list()  # the first one of an open store also counts the rows of its tables
    counts: list[int] = []
    for _ in range(2):
        store.counting.reads.clear()
        await agent.list()
        counts.append(len(store.counting.reads))
        for _ in range(30):
            await root.clone()

    assert counts[0] == counts[1]


def put(path: str, content: str) -> Answer:
    return call('write_file', path=path, content=content)


async def test_deleted_version_cannot_be_advanced(make: MakeAgent, store: SpyStore):
    agent = make(put('/a.txt', 'a'), 'done')
    turn = await (await agent.create(backend=StateBackend())).advance('go')
    handle = await make('never').load(turn.id)
    await agent.delete_line(turn)
    await agent.gc(0)

    with pytest.raises(StoreError):
        await handle.advance('on')

    assert await store.runs(states=['running']) == []
