"""Summaries of stored conversations: nothing is stored twice or lost, and turns can be replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, ModelRetry
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from pydantic_deep import Approve, StateBackend, create_deep_agent, open_store
from pydantic_deep._messages.summary_metadata import find_summary, is_summary, read_summary
from pydantic_deep.store import Commit, Committed, SqlStore, StoreUnavailableError, open_engine
from pydantic_deep.summarization import Messages, Summarization, Tokens
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import AgentVersion, Recorder, VersionedAgent
from pydantic_deep.versions.recording._presummary_history import summaries_since

pytestmark = pytest.mark.anyio

When = Callable[[Commit], bool]
Version = AgentVersion[Any, Any]


class MortalStore(SqlStore):
    """Store of a process that crashes: from a given commit on, every commit fails."""

    dies_before: When | None = None
    is_dead = False

    async def commit(self, commit: Commit) -> Committed:
        if self.dies_before is not None and self.dies_before(commit):
            self.is_dead = True
        if self.is_dead:
            raise StoreUnavailableError('The process is dead.')
        return await super().commit(commit)


class World:
    """State that survives a crash: the number of summaries written, and the calls of tools."""

    def __init__(self, url: str, steps: int = 8) -> None:
        self.url = url
        self.steps = steps
        self.written = 0
        self.given: list[Sequence[ModelMessage]] = []
        self.ran: list[int] = []
        self.asked = 0

    async def summarize(self, messages: Sequence[ModelMessage]) -> str:
        self.written += 1
        self.given.append(messages)
        return f'Facts: summary {self.written}.'

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> Answer:
        """Make this many calls in each turn, counted since the last prompt or summary."""
        self.asked += 1
        numbers = [
            part.args_as_dict()['n']
            for message in messages
            if isinstance(message, ModelResponse)
            for part in message.tool_calls
            if part.tool_name == 'work'
        ]
        last = max(numbers, default=-1)
        is_new_turn = any(isinstance(part, UserPromptPart) for part in messages[-1].parts)
        if not is_new_turn and (last + 1) % self.steps == 0:
            return f'done {last}'
        return call('work', n=last + 1)

    def agent(self, store: SqlStore, **options: Any) -> VersionedAgent[Any, Any]:
        toolset = FunctionToolset[Any]()

        @toolset.tool_plain
        def work(n: int) -> str:
            """Work."""
            self.ran.append(n)
            return f'result {n} ' + 'x' * 50

        summarization = Summarization(trigger=Messages(8), keep=Messages(4), summarizer=self.summarize)
        agent = create_deep_agent(
            ScriptedModel(then=self.answer),
            toolsets=[toolset],
            capabilities=[summarization],
            summarization=False,
            **options,
        )
        return VersionedAgent(agent, store)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(f'sqlite:///{tmp_path}/store.db')


@pytest.fixture
async def store(world: World) -> AsyncGenerator[MortalStore]:
    async with MortalStore(await open_engine(world.url)) as store:
        yield store


def results(messages: Sequence[ModelMessage]) -> list[str]:
    return [
        str(part.content).split(' x')[0]
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart) and part.tool_name == 'work'
    ]


def summary_of(messages: Sequence[ModelMessage]) -> CompactionPart:
    part = find_summary(messages)
    assert part is not None
    return part


async def test_turn_with_several_summaries_is_stored(world: World, store: MortalStore) -> None:
    world.steps = 16
    first = await (await world.agent(store).create(backend=StateBackend())).advance('go')
    assert world.written >= 3
    assert first.output == 'done 15'
    messages = await first.messages()
    assert len(messages) <= 9
    assert summary_of(messages).content == f'The user asked first:\ngo\n\nFacts: summary {world.written}.'
    assert read_summary(summary_of(messages)).messages is None
    assert first.branch.startswith('main.')
    assert world.ran == list(range(16))


async def test_every_step_of_a_summarized_turn_is_in_the_lineage(world: World, store: MortalStore) -> None:
    first = await (await world.agent(store).create(backend=StateBackend())).advance('go')
    assert set(results(await _all(first))) == {f'result {n}' for n in range(8)}


@pytest.mark.slow
async def test_turn_with_summaries_is_replayed_exactly(world: World, store: MortalStore) -> None:
    world.steps = 16
    first = await (await world.agent(store).create(backend=StateBackend())).advance('go')
    second = await first.advance('go on')
    written, ran = world.written, list(world.ran)
    for turn in (first, second):
        replay = await turn.replay()
        assert (bool(replay), replay.difference, replay.output) == (True, None, turn.output)
    assert (world.written, world.ran) == (written, ran)


async def test_summary_stores_no_message_twice(world: World, store: MortalStore) -> None:
    world.steps = 30
    stored = Counter[str]()
    bodies: list[int] = []

    def count(commit: Commit) -> bool:
        for each in commit.append.messages if commit.append else ():
            if each.body is not None:
                stored[each.id] += 1
                bodies.append(len(each.body))
        return False

    store.dies_before = count
    first = await (await world.agent(store).create(backend=StateBackend())).advance('go')
    assert world.written >= 5
    # A prompt, 30 steps of two messages, an answer, and the summaries.
    assert set(stored.values()) == {1}
    assert len(stored) <= 1 + 2 * 30 + 1 + world.written
    largest_message = 1_500
    assert max(bodies) < largest_message
    assert len(await first.messages()) < 10


async def search_in(store: SqlStore, version: Version, query: str) -> str:
    """Return the result of a search in a version, in a new run."""
    model = ScriptedModel(call('search_history', query=query), 'found')
    summarization = Summarization(trigger=(), keep=Messages(4))
    agent = VersionedAgent(create_deep_agent(model, capabilities=[summarization], summarization=False), store)
    await (await agent.load(version.id)).advance('?')
    return str(model.requests[1].tool_returns[-1].content)


async def test_replaced_messages_are_found_in_the_store(world: World, store: MortalStore) -> None:
    world.steps = 16
    first = await (await world.agent(store).create(backend=StateBackend())).advance('go')
    second = await first.advance('go on')
    assert 'result 3 x' in await search_in(store, second, 'result 3')
    assert 'user: go' in await search_in(store, second, 'go')


async def test_search_within_a_turn_finds_messages_replaced_in_it(world: World, store: MortalStore) -> None:
    asked: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        said = world.answer(messages, info)
        if find_summary(messages) and not asked:
            asked.append('')
            return call('search_history', query='result 0')
        return said

    agent = world.agent(store)
    with agent.agent.override(model=ScriptedModel(then=answer)):
        first = await (await agent.create(backend=StateBackend())).advance('go')
    contents = [
        str(part.content)
        for message in await _all(first)
        for part in message.parts
        if isinstance(part, ToolReturnPart) and part.tool_name == 'search_history'
    ]
    assert 'result 0 x' in contents[0]


async def test_replaced_messages_without_calls_are_stored(tmp_path: Path) -> None:
    async def writes(messages: Sequence[ModelMessage]) -> str:
        return 'Facts: none.'

    rejected = [f'draft {n}' for n in range(9)]

    async with SqlStore(await open_engine(f'sqlite:///{tmp_path}/s.db')) as store:
        summarization = Summarization(trigger=Messages(8), keep=Messages(2), summarizer=writes)
        model = ScriptedModel(*rejected, 'final')
        inner = Agent[Any, str](model, capabilities=[summarization], retries={'output': 20})

        @inner.output_validator
        def _(output: str) -> str:
            if output != 'final':
                raise ModelRetry(f'Not {output}.')
            return output

        agent = VersionedAgent(inner, store)
        root = await agent.create(backend=StateBackend())
        first = await root.advance('go')
        assert find_summary(await first.messages()) is not None
        assert 'draft 0' in await search_in(store, first, 'draft 0')
        assert (await first.replay()).difference is None


async def test_search_in_a_branch_finds_only_messages_of_its_lineage(world: World, store: MortalStore) -> None:
    world.steps = 2
    root = await world.agent(store).create(backend=StateBackend())
    first = await root.advance('first turn')  # no summary yet
    assert find_summary(await first.messages()) is None
    left = await (await first.advance('left alpha')).advance('left beta')
    right = await (await first.advance('right gamma')).advance('right delta')
    later = await left.advance('left epsilon')
    assert find_summary(await left.messages()) is not None
    assert find_summary(await right.messages()) is not None
    assert 'left alpha' in await search_in(store, later, 'alpha')
    assert 'None of these words' in await search_in(store, later, 'gamma')
    assert 'right gamma' in await search_in(store, right, 'gamma')
    assert 'None of these words' in await search_in(store, right, 'alpha')
    # A version from before any summary has nothing to search.
    assert 'No message was replaced' in await search_in(store, first, 'turn')


async def test_diff_load_clone_and_merge_work_across_a_summary(world: World, store: MortalStore) -> None:
    agent = world.agent(store)
    root = await agent.create(backend=StateBackend())
    first = await root.advance('go')
    second = await first.advance('go on')
    other = await first.advance('another way')
    difference = await first.diff(second)
    assert difference is not None
    again = await agent.load(first.id)
    assert [message.parts for message in await again.messages()] == [m.parts for m in await first.messages()]
    clone = await first.clone()
    assert [message.parts for message in await clone.messages()] == [m.parts for m in await first.messages()]
    await second.merge(other)
    lineage = [version.id for version in await second.lineage()]
    assert lineage[0] == root.id
    assert first.id in lineage


async def test_gc_keeps_replaced_messages(world: World, store: MortalStore) -> None:
    world.steps = 16
    agent = world.agent(store)
    first = await (await agent.create(backend=StateBackend())).advance('go')
    await agent.gc(grace_seconds=0)
    assert 'result 3 x' in await search_in(store, first, 'result 3')
    replay = await first.replay()
    assert replay.difference is None


# ---------------------------------------------------------------------------------------------------------- recoveries


def is_nth_start(number: int) -> When:
    return lambda commit: any(
        each.status == 'started' and each.arguments.replace(' ', '') == f'{{"n":{number}}}' for each in commit.calls
    )


@pytest.mark.slow
@pytest.mark.parametrize('number', range(8))
async def test_run_that_crashed_at_any_call_recovers_with_its_stored_summaries(world: World, number: int) -> None:
    async with MortalStore(await open_engine('memory:')) as store:
        await (await world.agent(store).create(backend=StateBackend())).advance('go')
    whole_turn, world.written, world.ran = world.written, 0, []
    async with MortalStore(await open_engine(world.url)) as store:
        store.dies_before = is_nth_start(number)
        root = await world.agent(store).create(backend=StateBackend())
        with pytest.raises(StoreUnavailableError):
            await root.advance('go')
    ran = list(world.ran)
    assert ran == list(range(number))
    async with MortalStore(await open_engine(world.url)) as store:
        agent = world.agent(store)
        (version,) = await agent.recover()
        assert version.output == 'done 7'
        assert world.ran == list(range(8))
        # A stored summary is not written again, a summary lost in the crash is.
        assert whole_turn <= world.written <= whole_turn + 1
        assert _summaries(await version.messages()) == 1
        again = await version.replay()
        assert (again.difference, again.output) == (None, 'done 7')
        assert set(results(await _all(version))) == {f'result {n}' for n in range(8)}


def _summaries(messages: Sequence[ModelMessage]) -> int:
    return sum(is_summary(part) for message in messages for part in message.parts)


async def _all(version: Version) -> list[ModelMessage]:
    return [message for each in [*await version.steps(), version] for message in await each.messages()]


async def test_approval_pending_across_a_summary_is_resumed(world: World, store: MortalStore) -> None:
    agent = world.agent(store, interrupt_on={'write_file': True})

    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        said = world.answer(messages, info)
        done = [part for m in messages for part in m.parts if isinstance(part, ToolReturnPart)]
        if isinstance(said, str) and not any(part.tool_name == 'write_file' for part in done):
            return call('write_file', path='/a.txt', content='a')
        return said

    with agent.agent.override(model=ScriptedModel(then=answer)):
        paused = await (await agent.create(backend=StateBackend())).advance('go')
        assert find_summary(await paused.messages()) is not None
        (pending,) = paused.pending
        ended = await paused.resume({pending.id: Approve()})
    assert ended.output == 'done 7'
    assert await (await ended.files()).read_bytes('/a.txt') == b'a'


async def test_summary_request_is_not_part_of_the_recording(tmp_path: Path) -> None:
    image = BinaryContent(b'\x89PNG' + b'0' * 5_000, media_type='image/png')
    steps = [call('work', n=n) for n in range(4)]
    url = f'sqlite:///{tmp_path}/s.db'
    async with SqlStore(await open_engine(url)) as store:
        model = ScriptedModel(*steps, 'Facts: an image.', 'done', model_name='gpt-5.2')
        inner = Agent[Any, str](model, capabilities=[Summarization(trigger=Messages(8), keep=Messages(4))])

        @inner.tool_plain
        def work(n: int) -> str:
            return f'result {n}'

        agent = VersionedAgent(inner, store)
        first = await (await agent.create()).advance(['What is this?', image])
        assert summary_of(await first.messages()).content == (
            'The user asked first:\nWhat is this?\n\nFacts: an image.'
        )
        assert first.usage.requests == 6
        assert 'What is this?' in await search_in(store, first, 'what is this')
        replay = await first.replay()
        assert (replay.difference, replay.output) == (None, 'done')
        assert len(model.requests) == 6


class Compacts(ScriptedModel):
    """A model whose provider supports compaction."""

    async def compact_messages(
        self, request_context: ModelRequestContext, *, instructions: str | None = None
    ) -> ModelResponse:
        part = CompactionPart(content='What was.', provider_name='scripted', id='c')
        return ModelResponse(parts=[part], model_name='scripted', provider_name='scripted')


async def test_provider_compaction_is_replayed_unchanged(tmp_path: Path) -> None:
    async with SqlStore(await open_engine(f'sqlite:///{tmp_path}/s.db')) as store:
        model = Compacts(*(call('work', n=n) for n in range(9)), 'done')
        summarization = Summarization(trigger=Messages(8), keep=Messages(4), summarizer='provider')
        inner = Agent[Any, str](model, capabilities=[summarization])

        @inner.tool_plain
        def work(n: int) -> str:
            return f'result {n}'

        agent = VersionedAgent(inner, store)
        first = await (await agent.create()).advance('go')
        messages = await first.messages()
        assert isinstance(messages[0], ModelResponse)
        assert summary_of(messages).content == 'What was.'
        replay = await first.replay()
        assert (replay.difference, replay.output) == (None, 'done')
        assert 'user: go' in await search_in(store, first, 'go')


@pytest.mark.parametrize('by_tokens', [False, True])
async def test_turn_with_an_overflow_is_replayed(tmp_path: Path, by_tokens: bool) -> None:
    async def writes(messages: Sequence[ModelMessage]) -> str:
        return 'Facts: none.'

    async with SqlStore(await open_engine(f'sqlite:///{tmp_path}/s.db')) as store:
        too_long = ModelContextWindowExceededError('m', 'too long')
        steps = [call('work', n=n) for n in range(3)]
        model = ScriptedModel(*steps, too_long, *(call('work', n=n) for n in (3, 4)), too_long, 'done', 'more')
        keep = Tokens(30) if by_tokens else Messages(2)
        inner = Agent[Any, str](model, capabilities=[Summarization(trigger=(), keep=keep, summarizer=writes)])

        @inner.tool_plain
        def work(n: int) -> str:
            return f'result {n} ' + 'x' * 80

        agent = VersionedAgent(inner, store)
        first = await (await agent.create()).advance('go')
        second = await first.advance('and?')
        assert [await _difference(turn) for turn in (first, second)] == [None, None]


async def _difference(turn: Version) -> object:
    replay = await turn.replay()
    assert replay.output == turn.output
    return replay.difference


async def test_crashed_run_with_an_overflow_recovers_with_its_summary(tmp_path: Path) -> None:
    written: list[int] = []

    async def writes(messages: Sequence[ModelMessage]) -> str:
        written.append(len(messages))
        return 'Facts: none.'

    def agent_on(store: SqlStore, model: ScriptedModel) -> VersionedAgent[Any, Any]:
        summarization = Summarization(trigger=(), keep=Messages(2), summarizer=writes)
        inner = Agent[Any, str](model, capabilities=[summarization], name='agent')

        @inner.tool_plain
        def work(n: int) -> str:
            return f'result {n} ' + 'x' * 80

        return VersionedAgent(inner, store)

    url = f'sqlite:///{tmp_path}/s.db'
    async with MortalStore(await open_engine(url)) as store:
        store.dies_before = is_nth_start(4)
        too_long = ModelContextWindowExceededError('m', 'too long')
        steps = [call('work', n=n) for n in range(5)]
        agent = agent_on(store, ScriptedModel(*steps[:3], too_long, *steps[3:]))
        with pytest.raises(StoreUnavailableError):
            await (await agent.create()).advance('go')
    assert len(written) == 1
    async with MortalStore(await open_engine(url)) as store:
        agent = agent_on(store, ScriptedModel(call('work', n=4), 'done'))
        (version,) = await agent.recover()
        assert version.output == 'done'
        assert _summaries(await version.messages()) == 1
        assert len(written) == 1
        assert await _difference(version) is None


async def test_rewritten_history_has_no_summary(tmp_path: Path) -> None:
    async with SqlStore(await open_engine(f'sqlite:///{tmp_path}/s.db')) as store:
        agent = VersionedAgent(Agent[Any, str](ScriptedModel('one')), store)
        first = await (await agent.create()).advance('go')
        conversation = agent.conversation(first.conversation_id)
        await conversation.move_to(first)
        contents: list[ModelMessage] = [
            ModelRequest(parts=[UserPromptPart('Other')]),
            ModelResponse(parts=[TextPart('Way')]),
        ]
        anew = await conversation.set(contents)
        assert await summaries_since(store, anew.record, first.record) == []
        assert [message.parts for message in await anew.earlier_messages()] == [
            message.parts for message in await first.messages()
        ]


async def test_recorder_before_its_start_stores_nothing() -> None:
    async with open_store('memory:') as store:
        recorder = Recorder(store=store)
        ctx: Any = None
        await recorder.persist(ctx, [])
        recorder.record_billed_attempts([])
        assert await recorder.earlier_messages(ctx) == []
        assert recorder.next_summary() is None


async def test_cost_of_a_summary_counts_in_the_cost_of_the_run() -> None:
    priced = ModelResponse(
        parts=[TextPart('Facts: none.')],
        provider_name='openai',
        model_name='gpt-4o-mini',
        usage=RequestUsage(input_tokens=1_000, output_tokens=100),
    )
    model = ScriptedModel(then=lambda messages, info: replace(priced))
    summarization = Summarization(trigger=Messages(2), keep=Messages(1))
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(model, capabilities=[summarization]), store)
        first = await (await agent.create()).advance('a')
        second = await first.advance('b')
        one, two = [Decimal((await store.run(each.run_id or '')).cost or 0) for each in (first, second)]  # pyright: ignore[reportOptionalMemberAccess]
        assert one > 0
        assert two == 2 * one
