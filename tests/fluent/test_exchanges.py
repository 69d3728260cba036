"""Calls and their results, paired."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart

from pydantic_deep.fluent import MessageList, NothingToAnswerError
from pydantic_deep.testing import ScriptedModel

from .conftest import PARALLEL, Begin, Told, Tools

pytestmark = pytest.mark.anyio


async def test_calls_and_results_are_paired_once_complete(begin: Begin, tools: Tools) -> None:
    """C11: `exchanges` contains a call without a result until it has one."""
    conversation = begin(tools.agent(PARALLEL, 'Done.')).user('Go').start()
    seen = [
        [(pair.call.tool_name, pair.result and pair.result.content) for pair in conversation.messages.exchanges()]
        async for _ in conversation
    ]
    assert seen == [[('a', None), ('b', None)], [('a', 'A'), ('b', 'B')], [('a', 'A'), ('b', 'B')]]


async def test_tool_results_before_a_user_message_are_history(begin: Begin, told: Told) -> None:
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


async def test_list_that_ends_with_results_has_nothing_to_answer(begin: Begin) -> None:
    conversation = begin(Agent(ScriptedModel())).start()
    conversation.messages.append(ModelResponse([ToolCallPart('a', {}, 'one')]))
    conversation.messages.append(ModelRequest([ToolReturnPart('a', 'A', 'one')]))
    with pytest.raises(NothingToAnswerError):
        await conversation.run()


async def test_unanswered_calls_of_a_transcript_are_interrupted(begin: Begin, told: Told) -> None:
    """C12: They never run later, not even with an agent that has such a tool."""
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
