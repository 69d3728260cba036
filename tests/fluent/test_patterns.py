"""The code patterns of the requirements for conversations, verbatim, and the rejected alternatives.

`llm` is `prompt(agent)`, and `LLMConversation` is `Conversation`; all other names are those of the requirements.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage

from pydantic_deep.fluent import Conversation as LLMConversation
from pydantic_deep.fluent import MessageList, PromptBuilder, prompt
from pydantic_deep.testing import ScriptedModel, call

from .conftest import Begin, Told

pytestmark = pytest.mark.anyio


async def test_pattern_1_fresh_conversation(begin: Begin, told: Told) -> None:
    """001-19, 001-29: `llm.agent().assistant().request().prompt_conversation()`."""
    model = ScriptedModel('Four.')
    llm = begin(Agent(model))
    conversation = (
        llm.agent('You are a mathematician.')
        .assistant('I only answer with numbers in words.')
        .context('All numbers are whole.')
        .request('What is 2 + 2?')
        .prompt_conversation()
    )
    async for _ in conversation:
        pass
    assert told(conversation.messages) == [
        'I only answer with numbers in words.',
        "user: ['All numbers are whole.', 'What is 2 + 2?']",
        'Four.',
    ]
    assert model.requests[0].instructions == 'You are a mathematician.'


async def test_pattern_2_continuation_on_the_same_object(begin: Begin, told: Told) -> None:
    """001-12, 001-20, 001-32: `conversation.continuation.request().prompt_conversation()`."""
    conversation = begin(Agent(ScriptedModel('Four.', 'Six.'))).request('What is 2 + 2?').prompt_conversation()
    await conversation.run()
    again = conversation.continuation.request('Plus 2?').prompt_conversation()
    assert again is conversation
    async for _ in conversation:
        pass
    assert told(conversation.messages) == ['user: What is 2 + 2?', 'Four.', 'user: Plus 2?', 'Six.']


async def test_pattern_3_early_continuation(begin: Begin, told: Told) -> None:
    """001-04, 001-07, 001-21, 001-35: One message is taken, and a follow-up continues from it."""
    ran: list[str] = []
    agent = Agent(ScriptedModel([call('look'), 'Let me look.'], 'Never mind, then.'))
    agent.tool_plain(name='look')(lambda: ran.append('look'))
    conversation = begin(agent).request('What is in the box?').prompt_conversation()
    builder = conversation.continuation
    async for message in conversation:
        assert told([message]) == ['call look + Let me look.']
        break
    await builder.request('Leave it.').prompt_conversation().run()
    assert told(conversation.messages) == [
        'user: What is in the box?',
        'call look + Let me look.',
        'look: interrupted',
        'user: Leave it.',
        'Never mind, then.',
    ]
    assert ran == []


async def test_pattern_4_restoring_under_another_provider(told: Told) -> None:
    """001-22, 001-30, 001-34: `to_dict` -> `from_dict` -> `LLMConversation(messages)` -> `.provider().tools()`."""
    conversation = prompt(Agent(ScriptedModel('Four.'))).request('What is 2 + 2?').prompt_conversation()
    await conversation.run()
    saved = json.dumps(conversation.messages.to_dict())

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    messages = MessageList.from_dict(json.loads(saved))
    restored = LLMConversation(messages)
    assert restored.messages is messages
    builder = restored.continuation.provider('anthropic').tools(double)
    assert "model 'anthropic:claude-opus" in repr(builder)

    model = ScriptedModel(call('double', number=4), 'Eight.')
    assert await builder.model(model).request('Doubled?').prompt() == 'Eight.'
    assert 'double' in model.requests[0].tool_names
    assert told(restored.messages)[-2:] == ['double: 8', 'Eight.']


async def test_transcript_loads_under_any_configuration(told: Told) -> None:
    """001-34: Serialization is independent of models: a transcript loads under any configuration.

    R6, R7, C3: no settings, tools or instructions come with it.
    """
    first = ScriptedModel(call('look'), 'A cat.')
    agent = Agent(first, instructions='Look well.', tools=[lambda: 'x'], model_settings={'temperature': 1})
    agent.tool_plain(name='look')(lambda: 'A cat')
    conversation = prompt(agent).settings(max_tokens=7).user('What is in the box?').start()
    await conversation.run()
    document = conversation.messages.to_dict()
    assert not any(word in json.dumps(document) for word in ('temperature', 'max_tokens', 'parameters'))

    second = ScriptedModel('Yes.')
    other = LLMConversation(MessageList.from_dict(document), agent=Agent(second))
    assert await other.continuation.user('Sure?').prompt() == 'Yes.'
    [request] = second.requests
    assert (request.instructions, request.tool_names, request.settings or {}) == (None, [], {})
    assert told(request.messages)[:3] == ['user: What is in the box?', 'call look', 'look: A cat']


def test_each_class_has_one_role() -> None:
    """001-03, 001-08, 001-13, 001-23, 001-24, 001-31: data, execution and composition are three classes, no more.

    The rejected alternatives: a conversation that is immutable, builders that change, configuration on builders for
    good, and a class apart that executes.
    """
    messages = MessageList()
    conversation = LLMConversation(messages, agent=Agent(ScriptedModel()))
    builder = conversation.continuation.instructions('Be brief.').user('Hello')
    assert list(vars(conversation.messages)) == ['_messages']  # messages are only in the list
    assert conversation.messages is messages  # the conversation has no copy
    assert PromptBuilder.__slots__ == ('_delta', '_target')
    delta: Any = builder._delta  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(dataclasses.FrozenInstanceError):
        delta.messages = ()
    assert builder.start() is conversation
    assert not hasattr(builder, '__aiter__')  # only the conversation executes
    assert 'config' not in inspect.signature(MessageList.from_dict).parameters
    # Started again, it adds its messages again: a builder has no execution state.
    assert len(builder.start().messages) == 1
    assert len(conversation.messages[0].parts) == 2


def test_golden_transcript_can_be_continued(golden: Path, every_kind: list[ModelMessage]) -> None:
    """001-28: An old transcript can start a conversation."""
    conversation = LLMConversation(MessageList.load(golden / 'format_1.json'))
    builder = conversation.continuation.user('Go on.')
    assert len(builder.start().messages) == len(every_kind) + 1
