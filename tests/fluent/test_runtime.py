"""Conversations on a store: every turn is a version, several handles can share a conversation, and nothing is lost."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryImage,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import Approve, DeepAgentDeps, StateBackend, create_deep_agent
from pydantic_deep._messages.summary_metadata import replaced_messages
from pydantic_deep.fluent import Conversation, MessageList, TurnStoppedError, prompt
from pydantic_deep.store import (
    Commit,
    Committed,
    ConversationRecord,
    Store,
    StoreUnavailableError,
    VersionConflictError,
    open_store,
)
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import VersionedAgent, _history_edit, _messages
from pydantic_deep.versions.recording import _stored_history
from pydantic_deep_backends import digest_of

from .conftest import Begin, Told

pytestmark = pytest.mark.anyio


async def test_conversation_continues_in_another_process(tmp_path: Path, told: Told) -> None:
    """001-02: It continues by its id; injected messages and instructions are stored, tools and models are passed again."""
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        builder = prompt(Agent(ScriptedModel('Arr.')), store=store, conversation_id='dialogue-1')
        conversation = builder.instructions('Talk like a pirate.').assistant('Ahoy.').user('Hello').start()
        assert await conversation.run() == 'Arr.'
        assert conversation.id == 'dialogue-1'
    async with open_store(url) as store:
        model = ScriptedModel('Good.')
        conversation = prompt(Agent(model), store=store, conversation_id='dialogue-1').user('How are you?').start()
        assert await conversation.run() == 'Good.'
        assert told(conversation.messages) == ['Ahoy.', 'user: Hello', 'Arr.', 'user: How are you?', 'Good.']
        assert told(model.requests[0].messages) == told(conversation.messages)[:-1]
        requests = [message for message in conversation.messages if isinstance(message, ModelRequest)]
        assert [request.instructions for request in requests] == ['Talk like a pirate.'] * 2


async def test_load_restores_the_stored_state_before_a_turn(store: Store, told: Told) -> None:
    first = prompt(Agent(ScriptedModel('Hi.')), store=store).user('Hello').start()
    await first.run()
    again = Conversation(agent=Agent(ScriptedModel()), store=store, conversation_id=first.id)
    assert (len(again.messages), again.state, again.head, again.usage.requests) == (0, 'ready', None, 0)
    assert again.pending == []
    async with again as loaded:
        assert loaded is again
        assert told(again.messages) == ['user: Hello', 'Hi.']
        assert (again.state, again.output, again.usage.requests) == ('complete', 'Hi.', 1)
        assert again.head == first.head


async def test_each_turn_is_a_version_and_moves_the_head(store: Store) -> None:
    """C2: The handle moves over versions, which do not change."""
    conversation = prompt(Agent(ScriptedModel('1', '2')), store=store).user('a').start()
    await conversation.run()
    first = conversation.head
    await conversation.continuation.user('b').prompt()
    second = conversation.head
    assert first is not None
    assert second is not None
    assert [version.id for version in await second.lineage()][-2:] == [first.id, second.id]
    assert [first.output, second.output] == ['1', '2']
    assert len(await first.messages()) == 2
    versions = conversation.versions
    assert versions is not None
    assert (await versions.head()).id == second.id


async def test_stopped_turn_is_a_version(store: Store) -> None:
    """C12: It has `state='interrupted'`, and the next turn continues from it."""
    agent = Agent(ScriptedModel(call('a'), 'Fine.'))
    agent.tool_plain(name='a')(lambda: 'A')
    conversation = prompt(agent, store=store).user('Go').start()
    async with conversation:
        await anext(aiter(conversation))
    stopped = conversation.head
    assert stopped is not None
    assert stopped.state == conversation.state == 'interrupted'
    await conversation.continuation.user('Go on').prompt()
    assert conversation.head is not None
    assert stopped.id in [version.id for version in await conversation.head.lineage()]


async def test_usage_grows_while_a_turn_runs(store: Store) -> None:
    agent = Agent(ScriptedModel(call('a'), 'Fine.'))
    agent.tool_plain(name='a')(lambda: 'A')
    conversation = prompt(agent, store=store).user('Go').start()
    assert [conversation.usage.requests async for _ in conversation] == [1, 1, 2]


async def test_approvals_are_answered_in_another_process(tmp_path: Path) -> None:
    url = f'sqlite:///{tmp_path}/agents.db'

    def agent(*steps: Any) -> Any:
        return create_deep_agent(ScriptedModel(*steps), interrupt_on={'write_file': True})

    async with open_store(url) as store:
        conversation = prompt(agent(call('write_file', path='a.txt', content='A')), store=store).user('Write').start()
        await conversation.run()
    async with open_store(url) as store:
        again = await Conversation(agent=agent('Written.'), store=store, conversation_id=conversation.id).load()
        [waiting] = again.pending
        assert again.state == 'awaiting_approval'
        assert await again.resume({waiting.id: Approve()}, by='ann', reason='fine') == 'Written.'
        assert again.head is not None
        assert await (await again.head.files()).read_bytes('/a.txt') == b'A'


# Several handles


async def two_handles(store: Store, model: ScriptedModel) -> list[Conversation[object, str]]:
    """Return two handles of a conversation with one turn."""
    agent = Agent(model)
    first = prompt(agent, store=store).user('Hello').start()
    await first.run()
    return [first, await Conversation(agent=agent, store=store, conversation_id=first.id).load()]


async def test_one_of_two_concurrent_handles_moves_the_head_and_nothing_is_lost(store: Store, told: Told) -> None:
    """001-27, C4: The other raises `VersionConflictError(head, yours)`, and its turn is a branch."""
    both = [asyncio.Event(), asyncio.Event()]

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        part = messages[-1].parts[0]
        assert isinstance(part, UserPromptPart)
        mine = ['a', 'b'].index(str(part.content))
        both[mine].set()
        await both[1 - mine].wait()
        return f'to {part.content}'

    handles = await two_handles(store, ScriptedModel('Hi.', then=answer))
    runs = [handle.continuation.user(name).prompt() for handle, name in zip(handles, 'ab', strict=True)]
    done = await asyncio.gather(*runs, return_exceptions=True)
    [lost] = [index for index, each in enumerate(done) if isinstance(each, BaseException)]
    error, loser, winner = done[lost], handles[lost], handles[1 - lost]
    assert isinstance(error, VersionConflictError)
    assert winner.head is not None
    assert error.head == winner.head.id

    yours = await VersionedAgent(Agent(), store).load(error.yours)
    assert told(await yours.messages())[2:] == [f'user: {"ab"[lost]}', f'to {"ab"[lost]}']
    assert loser.versions is not None
    assert len(await loser.versions.branches()) == 2

    assert told(loser.messages) == told(winner.messages)  # it moved to the head
    assert (loser.head, loser.state) == (winner.head, 'complete')


async def test_stopping_an_overtaken_turn_raises_a_conflict(store: Store, told: Told) -> None:
    """C4, C12: The work of the turn is a branch, and the handle moves to the head."""
    agent = Agent(ScriptedModel('Hi.', call('a'), 'Fine.'))
    agent.tool_plain(name='a')(lambda: 'A')
    one = prompt(agent, store=store).user('Hello').start()
    await one.run()
    other = Conversation(agent=agent, store=store, conversation_id=one.id)
    one.continuation.user('one').start()
    iterator = aiter(one)
    await anext(iterator)
    await other.continuation.user('other').prompt()
    with pytest.raises(VersionConflictError) as caught:
        await one.stop()
    yours = await VersionedAgent(agent, store).load(caught.value.yours)
    assert (yours.state, told(await yours.messages())[2:4]) == ('interrupted', ['user: one', 'call a'])
    assert told(one.messages) == told(other.messages) == ['user: Hello', 'Hi.', 'user: other', 'Fine.']
    with pytest.raises(TurnStoppedError):
        await anext(iterator)


async def test_handle_continues_from_the_state_of_another(store: Store, told: Told) -> None:
    """001-09, 001-16: State is never stale."""
    one, other = await two_handles(store, ScriptedModel('Hi.', '1', '2'))
    await one.continuation.user('one').prompt()
    assert len(other.messages) == 2
    await other.continuation.user('other').prompt()
    assert told(other.messages) == ['user: Hello', 'Hi.', 'user: one', '1', 'user: other', '2']
    await one.load()
    assert told(one.messages) == told(other.messages)


async def test_conflict_over_injected_messages_costs_no_request(
    store: Store, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected messages are a version before the turn, so a late writer gets the conflict before the model request."""
    model = ScriptedModel('Hi.', '1', '2')
    one, other = await two_handles(store, model)
    current = store.conversation
    seen = [await current(other.id)]
    await one.continuation.user('one').prompt()

    async def late(id: str) -> ConversationRecord | None:
        return seen.pop() if seen else await current(id)

    monkeypatch.setattr(store, 'conversation', late)
    with pytest.raises(VersionConflictError):
        await other.continuation.assistant('Well?').user('other').prompt()
    assert len(model.requests) == 2
    assert await other.run() == '2'  # the injected messages are still unanswered and follow those of the other handle
    said = ['user: Hello', 'Hi.', 'user: one', '1', 'Well?', 'user: other', '2']
    assert told(other.messages) == said


async def test_branch_does_not_move_the_head(store: Store, told: Told) -> None:
    """C4: `branch()` corresponds to two turns from one version (000)."""
    agent = Agent(ScriptedModel('Hi.', 'B', 'C', 'A'))
    conversation = prompt(agent, store=store).user('Hello').start()
    await conversation.run()
    branch = conversation.branch()
    assert branch.id == conversation.id
    await branch.continuation.assistant('Or so.').user('b').prompt()
    await branch.continuation.user('c').prompt()
    await conversation.continuation.user('a').prompt()
    assert told(branch.messages)[2:] == ['Or so.', 'user: b', 'B', 'user: c', 'C']
    assert told(conversation.messages)[2:] == ['user: a', 'A']
    assert conversation.versions is not None
    assert await conversation.versions.head() == conversation.head
    assert len(await conversation.versions.branches()) == 2


async def test_instructions_of_a_branch_stay_in_the_branch(store: Store) -> None:
    """Instructions of a branch are stored in its versions; the conversation and its head are unchanged."""
    conversation = prompt(Agent(ScriptedModel('Hi.', 'B', 'A')), store=store).user('Hello').start()
    await conversation.run()
    branch = conversation.branch()

    await branch.continuation.instructions('Be brief.').user('b').prompt()
    await conversation.continuation.user('a').prompt()

    assert branch.head is not None
    assert conversation.head is not None
    assert conversation.versions is not None
    assert (list(branch.head.instructions), list(conversation.head.instructions)) == (['Be brief.'], [])
    assert await conversation.versions.head() == conversation.head


async def test_branch_of_an_unloaded_conversation_starts_at_the_head(store: Store, told: Told) -> None:
    one, _ = await two_handles(store, ScriptedModel('Hi.', 'B'))
    branch = Conversation(agent=Agent(ScriptedModel('B')), store=store, conversation_id=one.id).branch()
    assert await branch.continuation.user('b').prompt() == 'B'
    assert told(branch.messages) == ['user: Hello', 'Hi.', 'user: b', 'B']


async def test_failed_turn_on_a_branch_can_be_run_again(store: Store, told: Told) -> None:
    agent = Agent(ScriptedModel('Hi.', RuntimeError('no'), 'B'))
    conversation = prompt(agent, store=store).user('Hello').start()
    await conversation.run()
    branch = conversation.branch()
    with pytest.raises(RuntimeError):
        await branch.continuation.user('b').prompt()
    assert await branch.run() == 'B'
    assert told(branch.messages) == ['user: Hello', 'Hi.', 'user: b', 'B']


# Agents and transcripts


async def test_versioned_agent_provides_its_store(store: Store) -> None:
    agent = Agent(ScriptedModel('1', '2'), name='sky')
    versioned = VersionedAgent(agent, store)
    root = await versioned.create(name='Q3', metadata={'team': 'sales'})
    conversation = prompt(versioned, conversation_id=root.conversation_id).user('a').start()
    await conversation.run()
    assert conversation.head is not None
    assert (conversation.head.name, conversation.head.parent_id) == ('Q3', root.id)
    assert await prompt(versioned, store=store).user('b').prompt() == '2'
    async with open_store('memory:') as other:
        with pytest.raises(ValueError, match='The versioned agent already has a store'):
            prompt(versioned, store=other).start()


async def test_files_of_deps_are_in_the_versions(store: Store) -> None:
    backend = StateBackend()
    agent = create_deep_agent(ScriptedModel(call('write_file', path='a.txt', content='A'), 'Written.'))
    conversation = prompt(agent, store=store, deps=DeepAgentDeps(backend=backend)).user('Write').start()
    await conversation.run()
    assert await backend.read_bytes('/a.txt') == b'A'
    assert conversation.head is not None
    assert await (await conversation.head.files()).read_bytes('/a.txt') == b'A'


async def test_transcript_moves_between_stores_with_its_media(store: Store, told: Told) -> None:
    """C32: Media are inline in the transcript and assets in each store."""
    picture = BinaryImage(data=b'\x89PNG\r\n\x1a\n\x00\xff', media_type='image/png')
    first = prompt(Agent(ScriptedModel('A cat.')), store=store).user(['What is this?', picture]).start()
    await first.run()
    document = first.messages.to_dict()
    async with open_store('memory:') as other:
        imported = Conversation(MessageList.from_dict(document), agent=Agent(ScriptedModel('Sure.')), store=other)
        assert await imported.continuation.user('Sure?').prompt() == 'Sure.'
        assert (await other.asset(digest_of(picture.data))).data == picture.data
        assert imported.head is not None
        record = imported.head.record
        bodies = b''.join(each.body for each in await other.messages(record.branch_id, record.message_count))
        assert f'asset:{digest_of(picture.data)}'.encode() in bodies
        assert imported.messages.to_dict() == MessageList([*first.messages, *imported.messages[2:]]).to_dict()


def summarizing(*steps: Any) -> Any:
    async def summarize(messages: Sequence[ModelMessage]) -> str:
        return 'Facts: none.'

    room = Summarization(trigger=Messages(4), keep=Messages(2), summarizer=summarize)
    return create_deep_agent(ScriptedModel(*steps), capabilities=[room])


@pytest.mark.parametrize('kept', [False, True])
async def test_export_includes_summarized_messages(store: Store, kept: bool, told: Told) -> None:
    """C3, C32: A store keeps summarized messages beside the history; an exported transcript includes them."""
    agent = summarizing('one', 'two', 'three')
    conversation = prompt(agent, store=store if kept else None).user('a').start()
    await conversation.run()
    nothing_yet = await conversation.export()
    assert nothing_yet == conversation.messages
    await conversation.continuation.user('b').prompt()
    await conversation.continuation.user('c').prompt()
    assert told(conversation.messages)[0] == 'CompactionPart'

    exported = MessageList.from_dict((await conversation.export()).to_dict())
    assert told(exported) == told(conversation.messages)
    went_on = prompt(summarizing('four')).start()
    went_on.messages.extend(exported)
    assert await went_on.continuation.user('d').prompt() == 'four'

    assert told(replaced_messages(exported)) == ['user: a', 'one', 'user: b']
    assert (len(replaced_messages(conversation.messages)) == 0) is kept


# Costs


def long_history(count: int, repeated: int = 1) -> list[ModelMessage]:
    pair: list[ModelMessage] = []
    for number in range(count // 2):
        pair += [
            ModelRequest([UserPromptPart(f'Question {number}. ' * repeated)]),
            ModelResponse([TextPart(f'Answer {number}. ' * repeated)], model_name='m'),
        ]
    return pair


@pytest.mark.slow
async def test_turn_of_a_long_conversation_copies_nothing_and_writes_only_new_messages(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-25, 001-26: None of 10,000 messages is read, written or created again; counted, not timed."""
    counts = {'encoded': 0, 'decoded': 0}

    def counting(name: str, original: Any) -> Any:
        def counted(argument: Any, *more: Any) -> Any:
            counts[name] += len(argument) if isinstance(argument, list) else 1  # pyright: ignore[reportUnknownArgumentType]
            return original(argument, *more)

        return counted

    for module in (_history_edit, _stored_history):
        monkeypatch.setattr(module, 'encode_message', counting('encoded', _messages.encode_message))
    monkeypatch.setattr(_messages, 'decode_messages', counting('decoded', _messages.decode_messages))

    conversation = Conversation(long_history(10_000), agent=Agent(ScriptedModel('1', '2', '3')), store=store)
    await conversation.continuation.user('a').prompt()
    assert counts == {'encoded': 10_002, 'decoded': 0}
    before = list(conversation.messages)

    counts['encoded'] = 0
    await conversation.continuation.user('b').prompt()
    assert counts == {'encoded': 2, 'decoded': 0}
    await conversation.continuation.user('c').assistant('C').user('d').prompt()
    assert counts == {'encoded': 6, 'decoded': 0}
    assert all(old is new for old, new in zip(before, conversation.messages, strict=False))
    assert len(conversation.messages) == 10_008


@pytest.mark.slow
async def test_turn_in_memory_copies_no_message() -> None:
    """001-25, 001-08: The messages of a long conversation are the same objects, in one list, after each turn."""
    model = ScriptedModel('1', '2')
    conversation = Conversation(long_history(10_000), agent=Agent(model))
    messages, before = conversation.messages, list(conversation.messages)
    await conversation.continuation.user('a').prompt()
    async for _ in conversation.continuation.user('b').start():
        pass
    assert conversation.messages is messages
    assert all(old is new for old, new in zip(before, messages, strict=False))
    assert len(messages) == 10_004


async def test_unanswered_calls_of_a_transcript_are_stored_as_interrupted(store: Store) -> None:
    """C12: A store never receives a history that a provider would refuse."""
    called = [ModelRequest([UserPromptPart('Go')]), ModelResponse([ToolCallPart('a', {}, 'one')])]
    conversation = Conversation(called, agent=Agent(ScriptedModel('Fine.')), store=store)
    await conversation.continuation.user('Well?').prompt()
    assert conversation.head is not None
    stored = MessageList(await conversation.head.messages())
    assert [exchange.result and exchange.result.outcome for exchange in stored.exchanges()] == ['interrupted']


@pytest.mark.slow
async def test_long_conversation_uses_memory_only_for_new_messages(begin: Begin) -> None:
    """001-26: The memory of long-lived conversations is bounded or measured.

    It is measured in bytes: ten turns after 2 MB of history take less than a twentieth of it.
    The cache of the last eight versions is filled before the measurement.
    """
    model = ScriptedModel(then=lambda messages, info: 'Fine.')
    conversation = begin(Agent(model)).start()
    conversation.messages.extend(long_history(2_000, repeated=100))
    size = len(str(list(conversation.messages)))
    assert size > 2_000_000

    async def go_on(turns: int) -> None:
        for _ in range(turns):
            await conversation.continuation.user('Go on').prompt()
        model.requests.clear()
        gc.collect()

    tracemalloc.start()
    try:
        await go_on(9)
        before, _ = tracemalloc.get_traced_memory()
        await go_on(10)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < size / 20


class Slow:
    """Delays the commit that ends a run."""

    def __init__(self, store: Store) -> None:
        self._commit = store.commit
        self.ends = asyncio.Event()
        self.go = asyncio.Event()

    async def commit(self, commit: Commit) -> Committed:
        if commit.ends:
            self.ends.set()
            await self.go.wait()
        return await self._commit(commit)


async def _cancelled_at_its_end(store: Store, agent: Agent[Any, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a conversation whose turn was cancelled three times while the store wrote its end."""
    slow = Slow(store)
    monkeypatch.setattr(store, 'commit', slow.commit)
    conversation = prompt(agent, store=store).user('Go.').start()
    task = asyncio.create_task(conversation.run())
    await slow.ends.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    slow.go.set()
    await asyncio.wait([task])
    assert task.cancelled()
    return conversation


async def test_turn_cancelled_while_its_end_is_written_is_complete(
    store: Store, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-21, C12: A turn can be aborted at any moment; the store and the handle agree."""
    agent = Agent(ScriptedModel('Done.', 'More.'))
    conversation = await _cancelled_at_its_end(store, agent, monkeypatch)
    assert (conversation.state, conversation.output, conversation.head.state) == ('complete', 'Done.', 'complete')
    assert await conversation.continuation.user('On.').prompt() == 'More.'
    assert told(conversation.messages) == ['user: Go.', 'Done.', 'user: On.', 'More.']


async def test_approvals_stay_pending_if_the_turn_is_cancelled_at_its_end(
    store: Store, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = create_deep_agent(
        ScriptedModel(call('write_file', path='/a', content='x'), 'Done.'), interrupt_on={'write_file': True}
    )
    conversation = await _cancelled_at_its_end(store, agent, monkeypatch)
    assert conversation.state == 'awaiting_approval'
    assert told(conversation.messages) == ['user: Go.', 'call write_file']
    (waiting,) = conversation.pending
    assert await conversation.resume({waiting.id: Approve()}) == 'Done.'


async def test_turn_stopped_twice_preserves_its_work(store: Store, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second stop awaits the first and does not interrupt its writes."""
    slow = Slow(store)
    monkeypatch.setattr(store, 'commit', slow.commit)
    agent = Agent(ScriptedModel(call('work'), call('hang')))
    hangs = asyncio.Event()

    @agent.tool_plain
    def work() -> str:
        return 'worked'

    @agent.tool_plain
    async def hang() -> None:
        hangs.set()
        await asyncio.Event().wait()

    conversation = prompt(agent, store=store).user('Go.').start()
    task = asyncio.create_task(conversation.run())
    await hangs.wait()
    stops = [asyncio.create_task(conversation._turn.stop()) for _ in range(2)]  # pyright: ignore[reportOptionalMemberAccess, reportPrivateUsage]  # two that hold it
    await slow.ends.wait()
    task.cancel()
    await asyncio.sleep(0)
    slow.go.set()
    await asyncio.wait([task, *stops])
    assert (conversation.state, conversation.head is not None) == ('interrupted', True)
    kept = ['user: Go.', 'call work', 'work: worked', 'call hang']
    assert told(conversation.messages) == [*kept, 'hang: interrupted']
    again = await Conversation(agent=agent, store=store, conversation_id=conversation.id).load()
    assert (told(again.messages)[:4], again.state, again.head) == (kept, 'interrupted', conversation.head)


async def test_turn_with_unstored_end_is_included_in_the_next_turn(
    store: Store, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next turn receives its messages up to the last step, and they are stored with it."""
    commit, is_full = store.commit, True

    async def fail(commits: Commit) -> Committed:
        if is_full and commits.ends:
            raise StoreUnavailableError('the disk is full')
        return await commit(commits)

    monkeypatch.setattr(store, 'commit', fail)
    agent = Agent(ScriptedModel(call('work'), 'Done.', 'On.'))
    agent.tool_plain(name='work')(lambda: 'worked')
    conversation = prompt(agent, store=store).user('Go.').start()
    with pytest.raises(StoreUnavailableError):
        await conversation.run()
    assert (conversation.state, told(conversation.messages)[:2]) == ('suspended', ['user: Go.', 'call work'])
    is_full = False
    assert await conversation.continuation.user('Go on.').prompt() == 'On.'
    assert [told(conversation.messages)[at] for at in (0, 1, -2, -1)] == [
        'user: Go.',
        'call work',
        'user: Go on.',
        'On.',
    ]
    again = await Conversation(agent=agent, store=store, conversation_id=conversation.id).load()
    assert told(again.messages) == told(conversation.messages)
