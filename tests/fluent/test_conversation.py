"""Conversations: messages of a turn, stopped turns, and continuation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelRequest, TextContent, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import UsageLimits

from pydantic_deep import Approve, DeepAgentDeps, Deny, create_deep_agent
from pydantic_deep.fluent import Conversation, ConversationBusyError, MessageList, prompt
from pydantic_deep.testing import Answer, ScriptedModel, call

from .conftest import INTERRUPTED, PARALLEL, Begin, Told, Tools

pytestmark = pytest.mark.anyio


# Messages of a turn


async def test_typed_output_ends_with_its_tool_result(begin: Begin, told: Told) -> None:
    class Sum(BaseModel):
        value: int

    agent = Agent(ScriptedModel(call('final_result', value=3)), output_type=Sum)
    conversation = begin(agent).user('1 + 2?').start()
    yielded = [message async for message in conversation]
    assert told(yielded) == ['call final_result', 'final_result: Final result processed.']
    assert conversation.output == Sum(value=3)


async def test_deep_agent_preserves_todos_and_files_for_the_next_turn(begin: Begin) -> None:
    """Fresh deps are created once, not for every turn."""
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


async def test_continuation_is_available_before_during_and_after_a_turn(begin: Begin, tools: Tools, told: Told) -> None:
    """R8, 001-07, 001-12, 001-20, 001-32: A builder continues from the state at the time it is started."""
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


async def test_leaving_the_context_stops_the_turn(begin: Begin, tools: Tools, told: Told) -> None:
    async with begin(tools.agent(PARALLEL, 'Fine.')).user('Go').start() as conversation:
        message = await anext(aiter(conversation))
        assert told([message]) == ['call a + call b']
    assert conversation.state == 'interrupted'
    assert told(conversation.messages) == INTERRUPTED
    assert tools.ran == []


async def test_conversation_is_an_iterator(begin: Begin, tools: Tools, told: Told) -> None:
    """001-04, 001-21: async iteration can take one message (`await conversation.__anext__()`, `anext(conversation)`),
    and the rest later, by `anext` or in a loop. It stops at the end of the turn, and if nothing was asked."""
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


# Concurrent builders


async def test_one_of_two_concurrent_prompts_is_refused(begin: Begin, told: Told) -> None:
    """001-27: The task that comes first wins."""
    conversation = begin(Agent(ScriptedModel('Hi.', 'A', 'B'))).user('Hello').start()
    await conversation.run()
    builders = [conversation.continuation.user(name) for name in 'ab']
    done = await asyncio.gather(*(builder.prompt() for builder in builders), return_exceptions=True)
    assert [type(each) for each in done] == [str, ConversationBusyError]
    assert told(conversation.messages) == ['user: Hello', 'Hi.', 'user: a', 'A']


async def test_conversations_share_no_mutable_message(begin: Begin, told: Told) -> None:
    """001-10, 001-33: Conversations from builders with a common start, and branches, share no mutable message; changing
    an argument later does not change a builder."""
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


async def test_branch_continues_independently(begin: Begin, told: Told) -> None:
    """C4: `branch()` creates a second conversation that shares the previous messages."""
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


# Approvals


def gated(*steps: Any) -> Any:
    return create_deep_agent(ScriptedModel(*steps), interrupt_on={'write_file': True})


async def test_turn_pauses_for_approval_and_resumes(begin: Begin, told: Told) -> None:
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


async def test_denied_call_does_not_run(begin: Begin) -> None:
    conversation = begin(gated(call('write_file', path='a.txt', content='A'), 'As you wish.')).user('Write').start()
    await conversation.run()
    assert await conversation.resume({conversation.pending[0].id: Deny('No.')}, by='ann') == 'As you wish.'
    [exchange] = conversation.messages.exchanges()
    assert exchange.result is not None
    assert exchange.result.outcome == 'denied'


# The message list


async def test_transcript_can_be_taken_while_a_turn_runs(begin: Begin, tools: Tools, told: Told) -> None:
    """001-14: A transcript is serializable at any point."""
    conversation = begin(tools.agent(PARALLEL, 'Done.')).user('Go').start()
    lengths = [len(MessageList.from_dict(conversation.messages.to_dict())) async for _ in conversation]
    assert lengths == [2, 3, 4]


def test_repr_describes_the_conversation() -> None:
    conversation = prompt(Agent(ScriptedModel()), conversation_id='dialogue-1').user('Hello').start()
    assert repr(conversation) == '<Conversation dialogue-1: ready, 1 messages>'
    assert (conversation.head, conversation.versions) == (None, None)


async def test_conversation_uses_a_deep_agent_by_default(told: Told) -> None:
    conversation = Conversation([ModelRequest([UserPromptPart('Hello')])])
    assert await conversation.continuation.model(ScriptedModel('Hi.')).prompt() == 'Hi.'
