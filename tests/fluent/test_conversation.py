"""Conversations: what is told of a turn, what stays of one that is stopped, and what comes after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, UserError
from pydantic_ai.exceptions import ModelHTTPError, UsageLimitExceeded
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextContent,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import UsageLimits

from pydantic_deep import Approve, DeepAgentDeps, Deny, create_deep_agent
from pydantic_deep.approvals import NothingPendingError, UnknownApprovalError
from pydantic_deep.fluent import (
    Conversation,
    ConversationBusyError,
    MessageList,
    NothingToAnswerError,
    TurnStoppedError,
    prompt,
)
from pydantic_deep.store import Store
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import ApprovalsPendingError

from .conftest import Begin, Told

pytestmark = pytest.mark.anyio

INTERRUPTED = ['user: Go', 'call a + call b', 'a: interrupted + b: interrupted']


class Tools:
    """Two tools that note that they ran; one of them waits to be let go on, where that is wanted."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.is_running = anyio.Event()
        self.may_end = anyio.Event()
        self.may_end.set()

    async def a(self) -> str:
        self.ran.append('a')
        return 'A'

    async def b(self) -> str:
        self.is_running.set()
        await self.may_end.wait()
        self.ran.append('b')
        return 'B'

    def agent(self, *steps: Any, **options: Any) -> Agent[object, str]:
        return Agent(ScriptedModel(*steps), tools=[self.a, self.b], **options)


@pytest.fixture
def tools() -> Tools:
    return Tools()


async def has_ended(store: Store, tool: str) -> bool:
    """Return whether the store has the result of a call: until then it is one that may not have ended."""
    calls = await store.calls([run.id for run in await store.runs()])
    return any(call.tool_name == tool and call.status == 'done' for call in calls)


PARALLEL = [call('a'), call('b')]


# What a turn tells


async def test_a_turn_yields_each_message_when_it_is_complete(begin: Begin, tools: Tools, told: Told) -> None:
    """001-09: a response before its calls run, their results before they are sent, and the list is current at each."""
    conversation = begin(tools.agent([*PARALLEL, 'Wait.'], 'Done.')).user('Go').start()
    steps: list[tuple[list[str], int, list[str]]] = []
    async for message in conversation:
        assert conversation.messages[-1] is message
        assert conversation.state == 'running'
        steps.append((told([message]), len(conversation.messages), sorted(tools.ran)))
    assert steps == [
        (['call a + call b + Wait.'], 2, []),
        (['a: A + b: B'], 3, ['a', 'b']),
        (['Done.'], 4, ['a', 'b']),
    ]
    assert (conversation.state, conversation.output) == ('complete', 'Done.')
    assert told(conversation.messages) == ['user: Go', 'call a + call b + Wait.', 'a: A + b: B', 'Done.']
    assert conversation.usage.requests == 2


async def test_a_call_and_its_result_are_one_once_they_are_complete(begin: Begin, tools: Tools) -> None:
    """C11: `exchanges` has a call without its result until there is one."""
    conversation = begin(tools.agent(PARALLEL, 'Done.')).user('Go').start()
    seen = [
        [(pair.call.tool_name, pair.result and pair.result.content) for pair in conversation.messages.exchanges()]
        async for _ in conversation
    ]
    assert seen == [[('a', None), ('b', None)], [('a', 'A'), ('b', 'B')], [('a', 'A'), ('b', 'B')]]


async def test_a_turn_is_run_to_its_end(begin: Begin, tools: Tools) -> None:
    conversation = begin(tools.agent(PARALLEL, 'Done.')).user('Go').start()
    assert conversation.output is None
    assert await conversation.run() == 'Done.'
    assert len(conversation.messages) == 4


async def test_text_comes_as_it_is_written(begin: Begin, tools: Tools) -> None:
    conversation = begin(tools.agent(['Let me see.', *PARALLEL], 'All is done.')).user('Go').start()
    texts = [text async for text in conversation.text_stream()]
    assert ''.join(texts) == 'Let me see.All is done.'
    assert len(texts) > 2
    assert (conversation.state, len(conversation.messages)) == ('complete', 4)


async def test_text_is_left_as_messages_are(begin: Begin, tools: Tools) -> None:
    """Whoever stops reading text stops the turn."""
    conversation = begin(tools.agent(['Let me see.', *PARALLEL], 'Done.')).user('Go').start()
    async with aclosing(conversation.text_stream()) as texts:
        await anext(texts)
    assert tools.ran == []
    assert conversation.state == 'interrupted'


async def test_a_typed_output_ends_with_its_tool_result(begin: Begin, told: Told) -> None:
    class Sum(BaseModel):
        value: int

    agent = Agent(ScriptedModel(call('final_result', value=3)), output_type=Sum)
    conversation = begin(agent).user('1 + 2?').start()
    yielded = [message async for message in conversation]
    assert told(yielded) == ['call final_result', 'final_result: Final result processed.']
    assert conversation.output == Sum(value=3)


async def test_a_turn_of_a_deep_agent_keeps_todos_and_files_for_the_next(begin: Begin) -> None:
    """Fresh deps are made once, not for every turn."""
    model = ScriptedModel(
        call('write_file', path='a.txt', content='A'), 'Written.', call('read_file', path='a.txt'), 'Read.'
    )
    conversation = begin(create_deep_agent(model)).user('Write').start()
    await conversation.run()
    await conversation.continuation.user('Read').prompt()
    results = [str(exchange.result and exchange.result.content) for exchange in conversation.messages.exchanges()]
    assert results[-1].endswith('A')
    assert conversation.usage.requests == 4


async def test_usage_limits_of_deps_apply(begin: Begin, tools: Tools) -> None:
    deps = DeepAgentDeps(usage_limits=UsageLimits(request_limit=1))
    agent = create_deep_agent(ScriptedModel(call('ls'), 'Never.'))
    conversation = begin(agent, deps=deps).user('Go').start()
    with pytest.raises(UsageLimitExceeded):
        await conversation.run()
    assert conversation.state == 'failed'


# Continuation


async def test_a_continuation_is_there_before_during_and_after_a_turn(begin: Begin, tools: Tools, told: Told) -> None:
    """R8, 001-07, 001-12, 001-20, 001-32: and it goes on from where the conversation is when it is started."""
    conversation = begin(tools.agent(PARALLEL, 'One.', 'Two.', 'Three.', 'Four.')).user('Go').start()
    before = conversation.continuation.user('before')
    during: list[Any] = []
    async for message in conversation:
        during.append(conversation.continuation.user(f'during {len(told([message]))}'))
    after = conversation.continuation.user('after')
    assert len(during) == 3

    for builder in (before, during[0], after):
        assert builder.start() is conversation
        await conversation.run()
    assert told(conversation.messages)[3:] == [
        'One.',
        'user: before',
        'Two.',
        'user: during 1',
        'Three.',
        'user: after',
        'Four.',
    ]


async def test_a_turn_is_stopped_early_and_gone_on_from(begin: Begin, tools: Tools, told: Told) -> None:
    """001-04, 001-21, 001-35, C12: one message is taken; what was pending is interrupted, and never run."""
    conversation = begin(tools.agent(PARALLEL, 'Something else.')).user('Go').start()
    async for _ in conversation:
        break
    assert told(conversation.messages) == INTERRUPTED[:2]
    assert await conversation.continuation.user('Something else').prompt() == 'Something else.'
    assert told(conversation.messages) == [*INTERRUPTED, 'user: Something else', 'Something else.']
    assert tools.ran == []
    assert conversation.state == 'complete'


async def test_what_is_done_stays_when_a_turn_is_stopped(begin: Begin, tools: Tools, told: Told) -> None:
    """001-21: results that were told are kept, although the model was not sent them."""
    conversation = begin(tools.agent(PARALLEL, 'Fine.')).user('Go').start()
    async for message in conversation:
        if isinstance(message, ModelRequest):
            break
    await conversation.stop()
    assert (conversation.state, sorted(tools.ran)) == ('interrupted', ['a', 'b'])
    assert told(conversation.messages) == ['user: Go', 'call a + call b', 'a: A + b: B']
    await conversation.continuation.user('Go on').prompt()
    assert told(conversation.messages)[2:] == ['a: A + b: B', 'user: Go on', 'Fine.']
    assert len(tools.ran) == 2


async def test_stopping_a_turn_interrupts_running_calls_and_preserves_others(
    begin: Begin, tools: Tools, told: Told, store: Store
) -> None:
    """C12: of two parallel calls one has ended, and one has not."""
    tools.may_end = anyio.Event()
    conversation = begin(tools.agent(PARALLEL, 'Fine.')).user('Go').start()

    running = asyncio.create_task(conversation.run())
    await tools.is_running.wait()
    while conversation.versions is not None and not await has_ended(store, 'a'):
        await anyio.lowlevel.checkpoint()
    await conversation.stop()
    with pytest.raises(TurnStoppedError, match='was stopped, or another one was started'):
        await running
    assert tools.ran == ['a']
    assert told(conversation.messages) == ['user: Go', 'call a + call b', 'a: A + b: interrupted']
    tools.may_end.set()
    await conversation.continuation.user('Go on').prompt()
    assert tools.ran == ['a']


async def test_a_conversation_is_left_as_a_context(begin: Begin, tools: Tools, told: Told) -> None:
    async with begin(tools.agent(PARALLEL, 'Fine.')).user('Go').start() as conversation:
        message = await anext(aiter(conversation))
        assert told([message]) == ['call a + call b']
    assert conversation.state == 'interrupted'
    assert told(conversation.messages) == INTERRUPTED
    assert tools.ran == []


async def test_a_loop_over_a_replaced_turn_raises(begin: Begin, tools: Tools, told: Told) -> None:
    """001-27: a turn that nobody waits for is stopped by the next one, and its loop does not end as if it were done."""
    conversation = begin(tools.agent(PARALLEL, 'Inner.')).user('Go').start()

    async def read() -> None:
        async for _ in conversation:
            assert await conversation.continuation.user('Something else').prompt() == 'Inner.'

    with pytest.raises(TurnStoppedError) as caught:
        await read()
    assert caught.value.conversation_id == conversation.id
    assert told(conversation.messages) == [*INTERRUPTED, 'user: Something else', 'Inner.']


async def test_a_conversation_is_an_iterator(begin: Begin, tools: Tools, told: Told) -> None:
    """001-04, 001-21: async iteration can take one message (`await conversation.__anext__()`, `anext(conversation)`),
    and the rest later, by `anext` or in a loop. At its end, and where nothing was asked, it stops.
    """
    conversation = begin(tools.agent(PARALLEL, 'One.', PARALLEL, 'Two.')).user('Go').start()
    assert isinstance(conversation, AsyncIterator)
    assert told([await conversation.__anext__(), await anext(conversation)]) == ['call a + call b', 'a: A + b: B']
    assert told([message async for message in conversation]) == ['One.']
    assert conversation.state == 'complete'
    with pytest.raises(StopAsyncIteration):
        await anext(conversation)
    assert await anext(conversation, None) is None

    again = conversation.continuation.user('Again').start()
    assert told([await anext(again), await anext(again), await anext(conversation)])[2] == 'Two.'
    assert await anext(again, None) is None


async def test_one_message_is_taken_and_another_turn_begun(begin: Begin, tools: Tools, told: Told) -> None:
    """001-04, 001-07, 001-35: the conversation is left after one message and continued with a new request, whose
    messages are those that come next; what was pending is interrupted, and never run.
    """
    conversation = begin(tools.agent(PARALLEL, 'Else.', PARALLEL)).user('Go').start()
    assert told([await anext(conversation)]) == ['call a + call b']
    other = conversation.continuation.user('Something else').start()
    assert told([await anext(other)]) == ['Else.']
    assert await anext(conversation, None) is None
    assert told(conversation.messages) == [*INTERRUPTED, 'user: Something else', 'Else.']
    assert tools.ran == []

    await anext(conversation.continuation.user('Stop').start())
    await conversation.stop()
    assert await anext(conversation, None) is None
    assert conversation.state == 'interrupted'


async def test_a_message_is_taken_by_one_at_a_time(begin: Begin, tools: Tools) -> None:
    """001-27: who asks for a message while somebody else waits for one is refused, and nothing has changed."""
    tools.may_end = anyio.Event()
    conversation = begin(tools.agent(PARALLEL, 'One.')).user('Go').start()
    await anext(conversation)
    waiting = asyncio.create_task(conversation.__anext__())
    await tools.is_running.wait()
    with pytest.raises(ConversationBusyError):
        await anext(conversation)
    tools.may_end.set()
    assert isinstance(await waiting, ModelRequest)
    assert await anext(conversation) == conversation.messages[-1]


async def test_a_turn_that_was_replaced_is_not_gone_on_with(begin: Begin, tools: Tools) -> None:
    conversation = begin(tools.agent(PARALLEL, 'Inner.')).user('Go').start()
    await anext(conversation)
    conversation.messages.append(ModelRequest.user_text_prompt('Else'))
    await conversation.run()
    with pytest.raises(TurnStoppedError):
        await anext(conversation)
    assert await anext(conversation, None) is None


async def test_no_message_is_emitted_twice(begin: Begin) -> None:
    conversation = begin(Agent(ScriptedModel('Hi.'))).user('Hello').start()
    assert len([message async for message in conversation]) == 1
    assert [message async for message in conversation] == []
    with pytest.raises(NothingToAnswerError, match=r'Add one with `conversation.continuation.user\('):
        await conversation.run()
    assert conversation.output == 'Hi.'


async def test_who_says_nothing_gets_no_answer(begin: Begin) -> None:
    conversation = begin(Agent(ScriptedModel())).assistant('I am ready.').start()
    assert [message async for message in conversation] == []
    assert (conversation.state, len(conversation.messages)) == ('ready', 1)
    with pytest.raises(NothingToAnswerError):
        await conversation.continuation.prompt()


async def test_messages_without_a_turn_are_not_lost(begin: Begin, told: Told) -> None:
    """001-27: two builders that are started one after the other have both said something."""
    conversation = begin(Agent(ScriptedModel('Hi.'))).user('Hello').start()
    conversation.continuation.user('Are you there?').start()
    assert await conversation.run() == 'Hi.'
    assert told(conversation.messages) == ["user: ['Hello', 'Are you there?']", 'Hi.']


# Several builders at once


async def test_one_turn_runs_at_a_time(begin: Begin, tools: Tools, told: Told) -> None:
    """001-27, C4: whoever starts while somebody waits is refused, nothing has changed, and the builder works later."""
    tools.may_end = anyio.Event()
    conversation = begin(tools.agent(PARALLEL, 'Fine.', 'Later.')).user('Go').start()
    other = conversation.continuation.user('Me too')
    running = asyncio.create_task(conversation.run())
    await tools.is_running.wait()
    before = told(conversation.messages)
    for refused in (other.prompt(), conversation.run(), conversation.resume(), anext(aiter(conversation))):
        with pytest.raises(ConversationBusyError) as caught:
            await refused
        assert caught.value.conversation_id == conversation.id
    with pytest.raises(ConversationBusyError, match=r'continue separately with `conversation.branch\(\)`'):
        other.start()
    assert told(conversation.messages) == before
    tools.may_end.set()
    assert await running == 'Fine.'
    assert await other.prompt() == 'Later.'
    assert told(conversation.messages)[-2:] == ['user: Me too', 'Later.']


async def test_of_two_one_shots_at_once_one_is_refused(begin: Begin, told: Told) -> None:
    """001-27: whichever task comes first."""
    conversation = begin(Agent(ScriptedModel('Hi.', 'A', 'B'))).user('Hello').start()
    await conversation.run()
    builders = [conversation.continuation.user(name) for name in 'ab']
    done = await asyncio.gather(*(builder.prompt() for builder in builders), return_exceptions=True)
    assert [type(each) for each in done] == [str, ConversationBusyError]
    assert told(conversation.messages) == ['user: Hello', 'Hi.', 'user: a', 'A']


async def test_conversations_share_no_message_that_can_be_changed(begin: Begin, told: Told) -> None:
    """001-10, 001-33: conversations of builders with a common beginning, and branches, share no mutable message, and
    what a builder was given is not changed with what was handed to it.
    """
    content: list[Any] = [TextContent('Hello')]
    builder = begin(Agent(ScriptedModel())).user(content).assistant('Hi.')
    content[0].content = 'changed'
    first, second = builder.user('1').start(), builder.user('2').start()
    branch = first.branch()
    for conversation in (first, branch):
        for message in conversation.messages:
            for part in message.parts:
                part.content = ['changed']  # pyright: ignore[reportAttributeAccessIssue] - of any kind
    assert told(second.messages) == ["user: [TextContent(content='Hello')]", 'Hi.', 'user: 2']
    assert told(builder.start().messages) == told(second.messages)[:2]
    assert not {id(message) for message in first.messages} & {id(message) for message in branch.messages}


async def test_a_branch_continues_independently(begin: Begin, told: Told) -> None:
    """C4: `branch()` makes two that share what was before."""
    answers = {'left': 'L', 'right': 'R'}

    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        last = messages[-1].parts[-1]
        assert isinstance(last, UserPromptPart)
        return answers.get(str(last.content), 'Hi.')

    model = ScriptedModel(then=answer)
    conversation = begin(Agent(model)).instructions('Be brief.').user('Hello').start()
    await conversation.run()
    branch = conversation.branch()
    assert (branch.state, branch.output, branch.usage.requests) == ('complete', 'Hi.', 1)
    left, right = branch.continuation.user('left'), conversation.continuation.user('right')
    assert await asyncio.gather(left.prompt(), right.prompt()) == ['L', 'R']
    assert told(branch.messages) == ['user: Hello', 'Hi.', 'user: left', 'L']
    assert told(conversation.messages) == ['user: Hello', 'Hi.', 'user: right', 'R']
    assert (branch.usage.requests, conversation.usage.requests) == (2, 2)
    assert {request.instructions for request in model.requests} == {'Be brief.'}
    assert await conversation.continuation.user('right').prompt() == 'R'
    assert await branch.continuation.user('left').prompt() == 'L'


# What goes wrong


async def test_a_turn_that_no_model_answered_can_be_asked_again(begin: Begin, told: Told) -> None:
    model = ScriptedModel('Hi.', ModelHTTPError(503, 'm'), 'Fine.')
    conversation = begin(Agent(model)).user('Hello').start()
    await conversation.run()
    with pytest.raises(ModelHTTPError):
        await conversation.continuation.assistant('Well?').user('How are you?').prompt()
    assert conversation.state == 'failed'
    assert told(conversation.messages) == ['user: Hello', 'Hi.', 'Well?', 'user: How are you?']
    assert await conversation.run() == 'Fine.'
    assert told(conversation.messages)[-2:] == ['user: How are you?', 'Fine.']
    assert len(conversation.messages) == 5


async def test_what_a_turn_did_before_it_failed_stays(begin: Begin, tools: Tools, told: Told) -> None:
    conversation = begin(tools.agent(PARALLEL, ModelHTTPError(503, 'm'), 'Fine.')).user('Go').start()
    with pytest.raises(ModelHTTPError):
        await conversation.run()
    assert (conversation.state, conversation.output) == ('failed', None)
    assert [line for line in told(conversation.messages) if line] == ['user: Go', 'call a + call b', 'a: A + b: B']
    assert await conversation.continuation.user('Again').prompt() == 'Fine.'
    assert len(tools.ran) == 2


async def test_a_turn_that_cannot_begin_leaves_the_conversation_as_it_was(begin: Begin, told: Told) -> None:
    conversation = begin(Agent(ScriptedModel('Hi.'))).user('Hello').start()
    conversation.continuation.model('nonsense').start()
    with pytest.raises(UserError, match='Unknown model'):
        await conversation.run()
    assert (conversation.state, told(conversation.messages)) == ('failed', ['user: Hello'])
    assert await conversation.continuation.model(ScriptedModel('Hi.')).prompt() == 'Hi.'


async def test_tools_of_one_name_are_refused(begin: Begin, tools: Tools, told: Told) -> None:
    """The error is that of pydantic-ai, and the conversation is as it was."""
    conversation = begin(tools.agent()).tools(tools.a).user('Go').start()
    with pytest.raises(UserError, match='conflicts with existing tool'):
        await conversation.run()
    assert told(conversation.messages) == ['user: Go']


async def test_who_is_cancelled_stops_the_turn(begin: Begin, tools: Tools, told: Told, store: Store) -> None:
    """Cancellation is safe: what was done is kept, what runs is interrupted, and nothing runs on."""
    tools.may_end = anyio.Event()
    conversation = begin(tools.agent(PARALLEL, 'Fine.')).user('Go').start()
    running = asyncio.create_task(conversation.run())
    await tools.is_running.wait()
    while conversation.versions is not None and not await has_ended(store, 'a'):
        await anyio.lowlevel.checkpoint()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert conversation.state == 'interrupted'
    assert told(conversation.messages) == ['user: Go', 'call a + call b', 'a: A + b: interrupted']
    assert await conversation.continuation.user('Go on').prompt() == 'Fine.'
    assert tools.ran == ['a']


async def test_a_scope_that_is_cancelled_stops_the_turn(begin: Begin, tools: Tools) -> None:
    tools.may_end = anyio.Event()
    conversation = begin(tools.agent(PARALLEL, 'Fine.')).user('Go').start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(conversation.run)
        await tools.is_running.wait()
        tasks.cancel_scope.cancel()
    assert (conversation.state, tools.ran) == ('interrupted', ['a'])


async def test_a_turn_that_is_cancelled_before_it_was_answered_can_be_asked_again(begin: Begin, told: Told) -> None:
    asked, never = anyio.Event(), anyio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        asked.set()
        await never.wait()
        raise AssertionError

    conversation = begin(Agent(ScriptedModel(answer, 'Hi.'))).user('Hello').start()
    running = asyncio.create_task(conversation.run())
    await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (conversation.state, told(conversation.messages)) == ('interrupted', ['user: Hello'])
    assert await conversation.run() == 'Hi.'
    assert told(conversation.messages) == ['user: Hello', 'Hi.']


async def test_to_stop_what_does_not_run_is_nothing(begin: Begin, told: Told) -> None:
    conversation = begin(Agent(ScriptedModel('Hi.'))).user('Hello').start()
    await conversation.stop()
    assert await conversation.run() == 'Hi.'
    await conversation.stop()
    assert conversation.state == 'complete'


async def test_an_iteration_that_was_never_begun_runs_nothing(begin: Begin) -> None:
    model = ScriptedModel('Hi.')
    conversation = begin(Agent(model)).user('Hello').start()
    iterator = aiter(conversation)
    assert isinstance(iterator, AsyncGenerator)
    await iterator.aclose()
    assert (model.requests, conversation.state) == ([], 'ready')


# Approvals


def gated(*steps: Any) -> Any:
    return create_deep_agent(ScriptedModel(*steps), interrupt_on={'write_file': True})


async def test_a_turn_pauses_for_approval_and_resumes(begin: Begin, told: Told) -> None:
    agent = gated([call('write_file', path='a.txt', content='A'), call('ls')], 'Written.')
    conversation = begin(agent).user('Write').start()
    yielded = [message async for message in conversation]
    assert told(yielded)[0] == 'call write_file + call ls'
    assert isinstance(yielded[-1], ModelRequest)
    assert isinstance(conversation.output, DeferredToolRequests)
    assert conversation.state == 'awaiting_approval'
    [waiting] = conversation.pending
    assert (waiting.tool, waiting.arguments['path']) == ('write_file', 'a.txt')
    assert await conversation.resume({waiting.id: Approve()}) == 'Written.'
    assert (conversation.state, conversation.pending) == ('complete', [])
    outcomes = [exchange.result and exchange.result.outcome for exchange in conversation.messages.exchanges()]
    assert outcomes == ['success', 'success']


async def test_what_a_person_denies_does_not_run(begin: Begin) -> None:
    conversation = begin(gated(call('write_file', path='a.txt', content='A'), 'As you wish.')).user('Write').start()
    await conversation.run()
    assert await conversation.resume({conversation.pending[0].id: Deny('No.')}, by='ann') == 'As you wish.'
    [exchange] = conversation.messages.exchanges()
    assert exchange.result is not None
    assert exchange.result.outcome == 'denied'


async def test_pending_approvals_must_be_answered_before_the_next_turn(begin: Begin) -> None:
    conversation = begin(gated(call('write_file', path='a.txt', content='A'), 'Done.', 'Hi.')).user('Write').start()
    await conversation.run()
    [waiting] = conversation.pending
    with pytest.raises(ApprovalsPendingError) as caught:
        await conversation.continuation.user('Hello?').prompt()
    assert caught.value.pending == (waiting.id,)
    with pytest.raises(UnknownApprovalError):
        await conversation.resume({'nonsense': Approve()})
    assert (conversation.state, len(conversation.pending)) == ('awaiting_approval', 1)
    assert await conversation.resume({waiting.id: Approve()}) == 'Done.'
    assert await conversation.run() == 'Hi.'  # to what was said meanwhile


async def test_resuming_without_pending_approvals_raises(begin: Begin) -> None:
    conversation = begin(Agent(ScriptedModel())).user('Hello').start()
    with pytest.raises(NothingPendingError, match=r'No approvals are pending in the conversation .*: it is ready\.'):
        await conversation.resume({})


# The list


async def test_messages_may_be_written_by_hand(begin: Begin, told: Told) -> None:
    """001-14: what is at the end of the list is answered, whoever has put it there."""
    conversation = begin(Agent(ScriptedModel('Hi.', 'Fine.'))).user('Hello').start()
    await conversation.run()
    conversation.messages.append(ModelRequest([UserPromptPart('How are you?')]))
    assert await conversation.run() == 'Fine.'
    assert told(conversation.messages) == ['user: Hello', 'Hi.', 'user: How are you?', 'Fine.']


async def test_a_history_is_changed_by_hand(begin: Begin, told: Told) -> None:
    model = ScriptedModel('Hi.', 'Fine.', 'Well.')
    conversation = begin(Agent(model)).user('Hello').start()
    await conversation.run()
    await conversation.continuation.user('How are you?').prompt()
    del conversation.messages[2:]
    await conversation.continuation.user('And you?').prompt()
    assert told(model.requests[2].messages) == ['user: Hello', 'Hi.', 'user: And you?']
    assert told(conversation.messages) == ['user: Hello', 'Hi.', 'user: And you?', 'Well.']


async def test_results_of_tools_before_the_words_of_a_user_are_history(begin: Begin, told: Told) -> None:
    """A transcript may end with both in one message."""
    messages = MessageList(
        [
            ModelRequest([UserPromptPart('Go')]),
            ModelResponse([ToolCallPart('a', {}, 'one')]),
            ModelRequest([ToolReturnPart('a', 'A', 'one'), UserPromptPart('And?')]),
        ]
    )
    model = ScriptedModel('Done.')
    conversation = begin(Agent(model)).start()
    conversation.messages.extend(messages)
    assert await conversation.run() == 'Done.'
    assert told(model.requests[0].messages) == ['user: Go', 'call a', 'a: A + user: And?']


async def test_a_list_that_ends_with_results_has_nothing_to_answer(begin: Begin) -> None:
    conversation = begin(Agent(ScriptedModel())).start()
    conversation.messages.append(ModelResponse([ToolCallPart('a', {}, 'one')]))
    conversation.messages.append(ModelRequest([ToolReturnPart('a', 'A', 'one')]))
    with pytest.raises(NothingToAnswerError):
        await conversation.run()


async def test_unanswered_calls_of_a_transcript_are_interrupted(begin: Begin, told: Told) -> None:
    """C12: they are never run later, not even by an agent that has such a tool."""
    ran: list[str] = []
    agent = Agent(ScriptedModel('Fine.'))
    agent.tool_plain(name='a')(lambda: ran.append('a'))
    conversation = begin(agent).start()
    called = ModelResponse([ToolCallPart('a', {}, 'one')])
    conversation.messages.extend([ModelRequest([UserPromptPart('Go')]), called])
    assert await conversation.continuation.user('Well?').prompt() == 'Fine.'
    assert ran == []
    assert [exchange.result and exchange.result.outcome for exchange in conversation.messages.exchanges()] == [
        'interrupted'
    ]


async def test_a_transcript_is_taken_while_a_turn_runs(begin: Begin, tools: Tools, told: Told) -> None:
    """001-14: serializable at any point."""
    conversation = begin(tools.agent(PARALLEL, 'Done.')).user('Go').start()
    lengths = [len(MessageList.from_dict(conversation.messages.to_dict())) async for _ in conversation]
    assert lengths == [2, 3, 4]


def test_a_conversation_says_what_it_is() -> None:
    conversation = prompt(Agent(ScriptedModel()), conversation_id='dialogue-1').user('Hello').start()
    assert repr(conversation) == '<Conversation dialogue-1: ready, 1 messages>'
    assert (conversation.head, conversation.versions) == (None, None)


async def test_a_conversation_has_a_deep_agent_unless_it_is_given_another(told: Told) -> None:
    conversation = Conversation([ModelRequest([UserPromptPart('Hello')])])
    assert await conversation.continuation.model(ScriptedModel('Hi.')).prompt() == 'Hi.'


async def test_a_turn_that_anext_has_begun_is_run_to_its_end(begin: Begin, tools: Tools, told: Told) -> None:
    """`run` goes on with the turn that `anext` has begun, and what is said after it is another turn."""
    conversation = begin(tools.agent(PARALLEL, 'One.', 'Two.')).user('Go').start()
    assert told([await anext(conversation)]) == ['call a + call b']
    assert await conversation.run() == 'One.'
    assert conversation.state == 'complete'
    assert await anext(conversation, None) is None
    conversation.messages.append(ModelRequest.user_text_prompt('And?'))
    assert told([message async for message in conversation]) == ['Two.']


async def test_messages_added_after_anext_are_answered(begin: Begin, tools: Tools, told: Told) -> None:
    """A loop over the rest of a turn ends it: what is said then is another turn, for a loop, `anext` and `run`."""
    conversation = begin(tools.agent(PARALLEL, 'One.', 'Two.', 'Three.', 'Four.')).user('Go').start()
    await anext(conversation)
    assert told([message async for message in conversation]) == ['a: A + b: B', 'One.']
    conversation.messages.append(ModelRequest.user_text_prompt('And?'))
    assert told([message async for message in conversation]) == ['Two.']
    conversation.messages.append(ModelRequest.user_text_prompt('And?'))
    assert told([await anext(conversation)]) == ['Three.']
    assert await anext(conversation, None) is None
    conversation.messages.append(ModelRequest.user_text_prompt('And?'))
    assert await conversation.run() == 'Four.'
    with pytest.raises(NothingToAnswerError):
        await conversation.run()
