"""Threads of subagents through the public API: when they are stored, and how they are found."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pydantic_ai import ModelRequestContext, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart

from pydantic_deep import DeepAgentDeps, Subagent, create_deep_agent, open_store
from pydantic_deep.store import Commit, Committed, Store, StoreUnavailableError, VersionFilter
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import ThreadEvent, VersionedAgent

pytestmark = pytest.mark.anyio


def words_of(messages: Sequence[ModelMessage]) -> list[str]:
    """Return prompts, calls, results and answers, in order."""
    words: list[str] = []
    for part in (part for message in messages for part in message.parts):
        match part:
            case UserPromptPart() | TextPart():
                words.append(str(part.content))
            case ToolCallPart():
                words.append(f'call {part.tool_name}')
            case ToolReturnPart():
                words.append(f'result {part.content}')
            case _:
                pass
    return words


def data_of(event: ThreadEvent) -> Mapping[str, Any]:
    return cast('Mapping[str, Any]', event.data)


@dataclass
class Look(AbstractCapability[Any]):
    """Calls a function before each request of an agent, to inspect the store."""

    look: Callable[[RunContext[Any]], Any]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        await self.look(ctx)
        return request_context


@dataclass
class Watched:
    """A main agent and its subagent on a store, with the stored state before each of their requests."""

    agent: VersionedAgent[Any, Any]
    main: list[list[str]] = field(default_factory=list[list[str]])
    """Stored messages of the main conversation before each request of the main agent."""
    child: list[tuple[list[str], list[str], list[ThreadEvent]]] = field(
        default_factory=list[tuple[list[str], list[str], list[ThreadEvent]]]
    )
    """Messages of the thread and of the main conversation, and its events, before each request of the subagent."""


class CommitLog:
    """A store that records each commit and can fail one of them."""

    def __init__(self, store: Store, *, fails_at: int | None = None) -> None:
        self._store = store
        self._fails_at = fails_at
        self.commits: list[Commit] = []
        self.states: list[list[list[str]]] = []
        """Messages of each conversation after each commit."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, commit: Commit) -> Committed:
        self.commits.append(commit)
        if len(self.commits) == self._fails_at:
            raise StoreUnavailableError('The disk is full.')
        committed = await self._store.commit(commit)
        self.states.append(await self.threads())
        return committed

    async def threads(self) -> list[list[str]]:
        """Return the words of each conversation, oldest first."""
        agent = VersionedAgent(create_deep_agent(ScriptedModel()), self._store)
        versions = await self._store.versions(VersionFilter(), limit=1000)
        ids = dict.fromkeys(version.conversation_id for version in reversed(versions))
        return [words_of(await agent.thread(id)) for id in ids]


def delegating() -> Any:
    model = ScriptedModel(call('task', subagent='researcher', description='look up'), call('ls'), 'found it', 'done')
    return create_deep_agent(model, subagents=[Subagent('researcher', 'Looks things up.')])


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store('memory:') as store:
        yield store


@pytest.fixture
def watched(store: Store) -> Watched:
    main_id: list[str] = []

    async def look_main(ctx: RunContext[Any]) -> None:
        main_id[:] = [str(ctx.conversation_id)]
        seen.main.append(words_of(await seen.agent.thread(main_id[0])))

    async def look_child(ctx: RunContext[Any]) -> None:
        events = await seen.agent.events(main_id[0])
        thread = await seen.agent.thread(data_of(events[0])['sub_agent_thread_id'])
        seen.child.append((words_of(thread), words_of(await seen.agent.thread(main_id[0])), events))

    model = ScriptedModel(
        call('task', subagent='researcher', description='look up'), call('ls'), 'found it', call('ls'), 'done'
    )
    researcher = Subagent('researcher', 'Looks things up.', capabilities=[Look(look_child)])
    agent = create_deep_agent(model, subagents=[researcher], capabilities=[Look(look_main)])
    seen = Watched(agent=VersionedAgent(agent, store))
    return seen


async def test_thread_is_linked_and_stored_before_its_subagent_runs(watched: Watched) -> None:
    """The stored state before the first request of a subagent.

    002-06: A delegation creates a new conversation for the subagent.

    002-07: The new conversation is stored while it is empty, before the subagent runs.

    002-08: A `tool_call` event of the main conversation has the data `intent`, `arguments` and `sub_agent_thread_id`.

    002-10: The main agent delegates by calling the tool `task` with the name of a subagent.

    002-11: The thread of the subagent is created and stored before it has any message.

    002-12: The linking event is added to the main conversation before the subagent's first request.

    002-13: The main conversation, with the call that delegates, is stored before the subagent's first request.
    """
    turn = await (await watched.agent.create()).advance('go')

    thread, main, events = watched.child[0]
    assert thread == []
    assert main == ['go', 'call task']
    [event] = events
    assert (event.kind, event.tool_name) == ('tool_call', 'task')
    data = data_of(event)
    assert set(data) == {'intent', 'arguments', 'sub_agent_thread_id'}
    assert data['intent'] == 'look up'
    assert dict(data['arguments']) == {'subagent': 'researcher', 'description': 'look up'}
    assert data['sub_agent_thread_id'] not in ('', turn.conversation_id)


async def test_threads_and_the_main_conversation_are_stored_after_each_step(watched: Watched) -> None:
    """The stored state between the steps of a turn.

    002-14: The subagent's own loop updates its own thread and stores it again and again.

    002-20: A thread is stored after each step of the subagent, not only at its end.

    002-22: The main conversation is stored after each iteration of the main loop.
    """
    await (await watched.agent.create()).advance('go')

    assert [thread for thread, _, _ in watched.child] == [[], ['look up', 'call ls']]
    assert watched.main[0] == []
    assert [words[:2] for words in watched.main[1:]] == [['go', 'call task'], ['go', 'call task']]
    assert watched.main[2][2:] == ['result found it', 'call ls']


async def test_finished_delegation_is_found_from_the_main_conversation(watched: Watched) -> None:
    """The stored state after a turn.

    002-01: Every task is traceable from the main conversation to the subagent's and back, and all threads of a
    conversation are listed by one call.

    002-05: One store is the single source of truth for all threads, of the main agent and of subagents.

    002-15: The subagent's answer is the result of the call in the main conversation.

    002-16: The main conversation gets a `tool_response` event, and is stored with the result.

    002-23: From the finished main conversation, the `tool_call` event is found, and the `sub_agent_thread_id` in it.

    002-24: The finished thread is fetched by that id, and both conversations are shown.
    """
    turn = await (await watched.agent.create()).advance('go')

    called, responded = await watched.agent.events(turn.conversation_id)
    id = data_of(called)['sub_agent_thread_id']
    elsewhere = VersionedAgent(create_deep_agent(ScriptedModel()), watched.agent.store)
    main, thread = await elsewhere.thread(turn.conversation_id), await elsewhere.thread(id)

    assert (called.kind, responded.kind) == ('tool_call', 'tool_response')
    assert called.tool_call_id == responded.tool_call_id
    assert dict(data_of(responded)) == {'sub_agent_thread_id': id, 'status': 'done'}
    assert words_of(main)[:3] == ['go', 'call task', 'result found it']
    assert words_of(thread)[0::3] == ['look up', 'found it']
    [listed] = await turn.subagents(whole_conversation=True)
    assert (listed.conversation_id, listed.run_id, listed.tool_call_id) == (id, turn.run_id, called.tool_call_id)
    [child_run] = await watched.agent.store.runs(conversation_id=id)
    assert child_run.parent_run_id == turn.run_id  # and back


async def test_thread_and_link_are_one_commit(store: Store) -> None:
    """The commit of a delegation.

    002-18: Creating the thread and storing it are one commit.

    002-19: That commit has the link, with `intent`, `arguments` and `sub_agent_thread_id`.
    """
    log = CommitLog(store)
    await (await VersionedAgent(delegating(), cast('Store', log)).create()).advance('go')

    [commit] = [each for each in log.commits if each.delegations]
    [conversation], [root], [link] = commit.conversations, commit.versions, commit.delegations
    assert (root.kind, root.conversation_id, root.message_count) == ('root', conversation.id, 0)
    assert (link.intent, link.child_conversation_id) == ('look up', conversation.id)
    assert json.loads(link.arguments) == {'subagent': 'researcher', 'description': 'look up'}


async def test_failed_commit_leaves_threads_in_an_earlier_state() -> None:
    """002-02: Each turn consists of transactions: after any failure, the store contains an earlier state of the thread."""
    async with open_store('memory:') as store:
        log = CommitLog(store)
        await (await VersionedAgent(delegating(), cast('Store', log)).create()).advance('go')
    assert log.states[-1] == [
        ['go', 'call task', 'result found it', 'done'],
        ['look up', 'call ls', 'result / is empty.', 'found it'],
    ]

    for fails_at in range(2, len(log.commits) + 1):
        async with open_store('memory:') as store:
            failing = CommitLog(store, fails_at=fails_at)
            root = await VersionedAgent(delegating(), cast('Store', failing)).create()
            with pytest.raises(StoreUnavailableError):
                await root.advance('go')
            assert await failing.threads() in log.states


async def test_each_of_several_delegations_is_linked_by_its_own_event(store: Store) -> None:
    """Several delegations of one response.

    002-03: One conversation delegates to several subagents.

    002-09: The link is on the event and not in the metadata of a conversation, so that of several delegations each is
    uniquely traceable.
    """

    def script(messages: list[ModelMessage], info: object) -> Answer:
        asked = words_of(messages)[0]
        if asked != 'go':
            return f'did {asked}'
        delegate = [
            call('task', subagent=name, description=f'{name} {part}')
            for name in ('researcher', 'writer')
            for part in 'ab'
        ]
        return 'done' if len(messages) > 1 else delegate

    subagents = [Subagent('researcher', 'Looks things up.'), Subagent('writer', 'Writes.')]
    agent = VersionedAgent(create_deep_agent(ScriptedModel(then=script), subagents=subagents), store)
    turn = await (await agent.create(metadata={'team': 'a'})).advance('go')

    links = {event.tool_call_id: data_of(event) for event in await agent.events(turn.conversation_id)}
    calls = [part for message in await turn.messages() for part in message.parts if isinstance(part, ToolCallPart)]
    assert len({data['sub_agent_thread_id'] for data in links.values()}) == len(calls) == 4
    for part in calls:
        asked = part.args_as_dict()['description']
        thread = await agent.thread(links[part.tool_call_id]['sub_agent_thread_id'])
        assert words_of(thread) == [asked, f'did {asked}']
    assert dict(turn.metadata) == {'team': 'a'}
    for listed in await turn.subagents():
        assert listed.version_id is not None
        assert dict((await agent.load(listed.version_id)).metadata) == {}


async def test_nested_threads_are_a_tree_below_the_root(store: Store) -> None:
    """002-04: A subagent delegates to further subagents, and the whole tree is readable from the root."""
    leaf = Subagent('leaf', 'Does the work.')
    middle = Subagent('middle', 'Splits the work.', subagents=[leaf], max_depth=2)
    model = ScriptedModel(
        call('task', subagent='middle', description='all of it'),
        call('task', subagent='leaf', description='one part'),
        'part done',
        'all done',
        'done',
    )
    deep = create_deep_agent(model, subagents=[middle])
    agent = VersionedAgent(deep, store, make_deps=lambda: DeepAgentDeps(max_depth=2))
    turn = await (await agent.create()).advance('go')

    [below] = await turn.subagents()
    [lowest] = below.subagents
    assert (below.subagent, lowest.subagent, list(lowest.subagents)) == ('middle', 'leaf', [])
    assert words_of(await agent.thread(lowest.conversation_id)) == ['one part', 'part done']
    assert words_of(await agent.thread(below.conversation_id))[-1] == 'all done'


async def test_threads_of_an_agent_on_two_stores_are_separate() -> None:
    """One agent without a store of its own, on two stores.

    002-17: The tool that delegates works on the store that the agent was given, and makes the link there.

    002-21: The store is opened when the application starts and handed to the agent; two stores share no thread.
    """

    def script(messages: list[ModelMessage], info: object) -> Answer:
        asked = words_of(messages)[0]
        if not asked.startswith('go'):
            return f'did {asked}'
        return 'done' if len(messages) > 1 else call('task', subagent='researcher', description=f'for {asked}')

    agent = create_deep_agent(ScriptedModel(then=script), subagents=[Subagent('researcher', 'Looks things up.')])
    async with open_store('memory:') as one, open_store('memory:') as two:
        turns = [
            await (await VersionedAgent(agent, store).create()).advance(f'go {n}') for n, store in enumerate((one, two))
        ]
        threads = [(await turn.subagents())[0].conversation_id for turn in turns]

        for n, (store, mine, other) in enumerate(((one, *threads), (two, *threads[::-1]))):
            on_it = VersionedAgent(agent, store)
            assert words_of(await on_it.thread(mine)) == [f'for go {n}', f'did for go {n}']
            with pytest.raises(LookupError, match=other):
                await on_it.thread(other)
