"""Conversations: messages of a turn, stopped turns, and continuation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, UserError
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelRequest, TextContent, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import UsageLimits

from pydantic_deep import Approve, DeepAgentDeps, Deny, create_deep_agent
from pydantic_deep.approvals import NothingPendingError, UnknownApprovalError
from pydantic_deep.fluent import Conversation, ConversationBusyError, MessageList, NothingToAnswerError, prompt
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import ApprovalsPendingError

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


async def test_turn_without_a_user_message_is_not_run(begin: Begin) -> None:
    conversation = begin(Agent(ScriptedModel())).assistant('I am ready.').start()
    assert [message async for message in conversation] == []
    assert (conversation.state, len(conversation.messages)) == ('ready', 1)
    with pytest.raises(NothingToAnswerError):
        await conversation.continuation.prompt()


async def test_messages_without_a_turn_are_not_lost(begin: Begin, told: Told) -> None:
    """001-27: The messages of two builders started one after the other are both sent."""
    conversation = begin(Agent(ScriptedModel('Hi.'))).user('Hello').start()
    conversation.continuation.user('Are you there?').start()
    assert await conversation.run() == 'Hi.'
    assert told(conversation.messages) == ["user: ['Hello', 'Are you there?']", 'Hi.']


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


# Failures


async def test_tools_with_the_same_name_are_refused(begin: Begin, tools: Tools, told: Told) -> None:
    """pydantic-ai raises the error, and the conversation is unchanged."""
    conversation = begin(tools.agent()).tools(tools.a).user('Go').start()
    with pytest.raises(UserError, match='conflicts with existing tool'):
        await conversation.run()
    assert told(conversation.messages) == ['user: Go']


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
    assert await conversation.run() == 'Hi.'  # answers the message added meanwhile


async def test_resuming_without_pending_approvals_raises(begin: Begin) -> None:
    conversation = begin(Agent(ScriptedModel())).user('Hello').start()
    with pytest.raises(NothingPendingError, match=r'No approvals are pending in the conversation .*: it is ready\.'):
        await conversation.resume({})


# The message list


async def test_manually_appended_message_is_answered(begin: Begin, told: Told) -> None:
    """001-14: The end of the list is answered, regardless of who appended it."""
    conversation = begin(Agent(ScriptedModel('Hi.', 'Fine.'))).user('Hello').start()
    await conversation.run()
    conversation.messages.append(ModelRequest([UserPromptPart('How are you?')]))
    assert await conversation.run() == 'Fine.'
    assert told(conversation.messages) == ['user: Hello', 'Hi.', 'user: How are you?', 'Fine.']


async def test_history_can_be_edited_manually(begin: Begin, told: Told) -> None:
    model = ScriptedModel('Hi.', 'Fine.', 'Well.')
    conversation = begin(Agent(model)).user('Hello').start()
    await conversation.run()
    await conversation.continuation.user('How are you?').prompt()
    del conversation.messages[2:]
    await conversation.continuation.user('And you?').prompt()
    assert told(model.requests[2].messages) == ['user: Hello', 'Hi.', 'user: And you?']
    assert told(conversation.messages) == ['user: Hello', 'Hi.', 'user: And you?', 'Well.']


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


async def test_messages_added_after_anext_are_answered(begin: Begin, tools: Tools, told: Told) -> None:
    """A loop over the rest of a turn ends with it; later messages start another turn, for a loop, `anext` and `run`."""
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
