"""Any pydantic-ai agent can be versioned: other deps, outputs and capabilities, and rewritten histories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    CallDeferred,
    DeferredToolRequests,
    ModelRetry,
    RunContext,
    Tool,
    ToolFailed,
    ToolReturn,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingCalls, DeltaThinkingPart, FunctionModel

from pydantic_deep import Approve, DeepAgentDeps, Filesystem, StateBackend, as_workspace, create_deep_agent
from pydantic_deep.store import VersionFilter
from pydantic_deep.streaming import STREAM_EVENTS, RunEvents, stream_events
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import Recorder, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def words(messages: Sequence[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart | TextPart)]


async def test_agent_without_our_deps_is_versioned(make_plain: MakeAgent):
    version = await (await make_plain('one').create()).advance('go')

    assert (version.output, version.todos, version.tree, version.agent_name) == ('one', [], None, 'agent')
    assert await version.file_tree() is not None
    assert len(await version.file_tree()) == 0


async def test_agent_uses_its_own_deps(store: SpyStore):
    seen: list[object] = []
    agent = Agent(ScriptedModel('one', 'two'), deps_type=int)

    @agent.instructions
    def tell(ctx: RunContext[int]) -> str:
        seen.append(ctx.deps)
        return f'You are {ctx.deps}.'

    versioned = VersionedAgent(agent, store, make_deps=lambda: 7)
    first = await (await versioned.create()).advance('a')
    second = await first.advance('b', deps=8)

    assert seen == [7, 8]
    assert bool(await first.replay())
    replay = await second.replay()
    assert replay.difference is not None
    assert replay.difference.part == 'instructions'


async def test_output_validators_and_retries_are_steps_of_a_turn(store: SpyStore):
    agent = Agent(ScriptedModel('short', 'long enough', 'x', 'y', 'z'), retries=1)

    @agent.output_validator
    def is_long(text: str) -> str:
        if len(text) < 6:
            raise ModelRetry('longer')
        return text

    versioned = VersionedAgent(agent, store)
    root = await versioned.create()
    turn = await root.advance('go')

    assert turn.output == 'long enough'
    assert turn.message_count == 4
    assert bool(await turn.replay())
    with pytest.raises(UnexpectedModelBehavior):
        await turn.advance('again')
    failed = (await versioned.list(limit=1))[0]
    assert (failed.state, failed.parent_id) == ('failed', turn.id)


async def test_deferred_calls_pause_the_turn(make_plain: MakeAgent):
    """External tools need no approval: their results are passed to `resume`."""

    def order() -> str:
        raise CallDeferred(metadata={'ticket': 7})

    agent = make_plain(call('order'), 'done', tools=[order], output_type=[str, DeferredToolRequests])
    paused = await (await agent.create()).advance('go')

    requests = paused.deferred_tool_requests
    assert requests is not None
    assert (paused.kind, paused.state) == ('pause', 'awaiting_approval')
    assert [each.tool_name for each in requests.calls] == ['order']
    assert requests.metadata == {'call-1': {'ticket': 7}}
    assert (await paused.replay()).difference is None


async def test_tools_that_require_approval_pause_a_plain_agent(make_plain: MakeAgent):
    agent = make_plain(call('pay'), 'done', output_type=[str, DeferredToolRequests])
    ran: list[str] = []

    @agent.agent.tool_plain(requires_approval=True)  # type: ignore[attr-defined]
    def pay() -> str:
        ran.append('paid')
        return 'paid'

    paused = await (await agent.create()).advance('go')
    assert ran == []
    done = await paused.resume({paused.pending[0].id: Approve()})

    assert (done.output, ran) == ('done', ['paid'])
    assert bool(await done.replay())


async def test_tool_call_ids_may_repeat(make_plain: MakeAgent, store: SpyStore):
    results = iter(['first', 'second', 'third'])

    def look() -> str:
        return next(results)

    same = ToolCallPart('look', {}, tool_call_id='x')
    agent = make_plain(same, same, 'done', same, 'again', tools=[look])
    turn = await (await agent.create()).advance('go')
    later = await turn.advance('more')

    returned = [part.content for m in await later.messages() for part in m.parts if isinstance(part, ToolReturnPart)]
    assert returned == ['first', 'second', 'third']
    assert [entry.status for entry in await store.calls([turn.run_id or ''])] == ['done', 'done']
    assert bool(await turn.replay())
    assert bool(await later.replay())


async def test_harness_capabilities_work_in_versions(store: SpyStore):
    harness = pytest.importorskip('pydantic_ai_harness.filesystem', reason='the harness is not installed')
    files = StateBackend({'/a.txt': 'hello'})
    agent = Agent[Any, str](
        ScriptedModel(call('read_file', path='a.txt'), 'done'),
        capabilities=[_Workspace(files), harness.FileSystem()],
    )
    turn = await (await VersionedAgent(agent, store).create()).advance('go')

    assert turn.output == 'done'
    assert 'hello' in str(await turn.messages())
    assert bool(await turn.replay())


@dataclass
class _Workspace(AbstractCapability[Any]):
    files: Any

    def get_workspace(self, ctx: RunContext[Any], *, ref: Any) -> Any:
        return as_workspace(self.files) if ref is None else None


async def test_our_capabilities_work_on_any_agent(make_plain: MakeAgent):
    files = StateBackend()
    agent = make_plain(call('write_file', path='/a', content='x'), 'done', capabilities=[Filesystem(backend=files)])

    turn = await (await agent.create()).advance('go')

    assert turn.output == 'done'
    assert await files.read_bytes('/a') == b'x'


async def test_recorder_alone_creates_a_conversation_for_each_run(store: SpyStore):
    agent = Agent(ScriptedModel('one', 'two', 'three'), name='plain', capabilities=[Recorder(store=store)])

    first = await agent.run('a')
    await agent.run('b')
    third = await agent.run('c', message_history=first.all_messages(), conversation_id=first.conversation_id)

    versioned = VersionedAgent(agent, store)
    assert len(await store.conversations()) == 2
    versions = await store.versions(VersionFilter(conversation_id=first.conversation_id))
    assert [version.kind for version in versions] == ['turn', 'turn', 'root']
    assert versions[0].parent_id == versions[1].id
    assert words(await versioned.thread(first.conversation_id)) == ['a', 'one', 'c', 'three']
    assert third.output == 'three'


async def test_recorder_alone_stores_an_unknown_history(store: SpyStore):
    elsewhere = await Agent(ScriptedModel('one')).run('a')
    agent = Agent(ScriptedModel('two', 'three'), name='plain', capabilities=[Recorder(store=store)])

    result = await agent.run('b', message_history=elsewhere.all_messages())
    other = await agent.run('c', message_history=elsewhere.all_messages()[:1], conversation_id=result.conversation_id)

    assert result.conversation_id == other.conversation_id
    versions = await VersionedAgent(agent, store).list(conversation_id=result.conversation_id)
    assert [version.kind for version in versions] == ['turn', 'edit', 'root', 'turn', 'edit', 'root']
    assert words(await versions[0].messages()) == ['a', 'c', 'three']
    assert [version for version in versions if words(await version.messages()) == ['a', 'one', 'b', 'two']]


async def test_recorder_alone_continues_a_history_with_media(store: SpyStore):
    agent = Agent(ScriptedModel('one', 'two'), capabilities=[Recorder(store=store)])
    first = await agent.run(['a', BinaryContent(b'\x89PNG', media_type='image/png')])
    second = await agent.run('b', message_history=first.all_messages(), conversation_id=first.conversation_id)

    versions = await store.versions(VersionFilter(conversation_id=second.conversation_id))
    assert [version.kind for version in versions] == ['turn', 'turn', 'root']


async def test_recorder_of_a_turn_replaces_the_recorder_of_the_agent(store: SpyStore):
    agent = Agent(ScriptedModel('one'), name='plain', capabilities=[Recorder(store=store)])

    turn = await (await VersionedAgent(agent, store).create()).advance('a')

    assert turn.output == 'one'
    assert len(await store.conversations()) == 1
    assert [version.kind for version in await store.versions()] == ['turn', 'root']


async def test_turn_continues_from_a_version_made_by_a_recorder_alone(make: MakeAgent, store: SpyStore):
    agent = make('one', 'two')
    await agent.agent.run('a', deps=DeepAgentDeps(), capabilities=[Recorder(store=store)])
    [_, root] = await agent.list()

    turn = await root.advance('b')

    assert (root.kind, words(await turn.messages())) == ('root', ['b', 'two'])


@dataclass
class Page:
    title: str


def fails(error: type[Exception]) -> str:
    raise error('half \ud83d')


HALVES: dict[str, Callable[[], object]] = {
    'a text': lambda: 'half \ud83d',
    'a key and a value': lambda: {'half \ud83d': ['half \ud83d']},
    'an object': lambda: Page('half \ud83d'),
    'content and metadata': lambda: ToolReturn('ok', content='half \ud83d', metadata={'half \ud83d': 'half \ud83d'}),
    'a retry': lambda: fails(ModelRetry),
    'a failure': lambda: fails(ToolFailed),
}


@pytest.mark.parametrize('effect', ['read', 'external'])
@pytest.mark.parametrize('result', HALVES.values(), ids=HALVES)
async def test_half_of_a_surrogate_pair_in_a_result_does_not_end_the_turn(
    store: SpyStore, result: Callable[[], object], effect: str
):
    """A tool passes on half of a surrogate pair, which neither a store nor a request can contain. It is escaped in the
    next request, in the stream, in the version and in the ledger.
    """
    requests: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        requests.append(ModelMessagesTypeAdapter.dump_json(messages).decode())
        return ModelResponse([TextPart('done')])

    agent = create_deep_agent(
        ScriptedModel(call('fetch'), answer), tools=[Tool(result, name='fetch', metadata={'effect': effect})]
    )
    async with (await VersionedAgent(agent, store).create()).advance_stream('go') as turn:
        events = [event async for event in stream_events(turn.events(), RunEvents())]
        version = turn.version
    assert version is not None
    assert (version.state, version.output) == ('complete', 'done')
    assert all(STREAM_EVENTS.dump_json(event) for event in events)
    assert r'half \\ud83d' in requests[0]
    stored = await version.messages()
    assert r'half \\ud83d' in ModelMessagesTypeAdapter.dump_json(stored).decode()


@pytest.mark.parametrize('is_streamed', [False, True])
async def test_halves_of_surrogate_pairs_in_a_response_are_joined_or_escaped(store: SpyStore, is_streamed: bool):
    """A server that splits a stream within a surrogate pair delivers two halves, and one that cuts an answer off may
    deliver one. The answer is stored, and the next turn can be sent.
    """

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ThinkingPart('half \ud83d'), TextPart('pair \ud83d\ude00, half \ud83d')])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaThinkingCalls]:
        yield {0: DeltaThinkingPart(content='half \ud83d')}
        for piece in ('pair \ud83d', '\ude00, half \ud83d'):
            yield piece

    agent = create_deep_agent(FunctionModel(respond, stream_function=stream))
    start = await VersionedAgent(agent, store).create()
    if is_streamed:
        async with start.advance_stream('go') as turn:
            assert ''.join([text async for text in turn]) == r'pair 😀, half \ud83d'
            version = turn.version
    else:
        version = await start.advance('go')
    assert version is not None
    assert version.output == r'pair 😀, half \ud83d'
    assert words(await version.messages()) == ['go', r'pair 😀, half \ud83d']
    again = await version.advance('go on')
    assert again.state == 'complete'
