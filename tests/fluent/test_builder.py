"""Builders are immutable, and contain only their additions."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart

from pydantic_deep.fluent import Conversation, PromptBuilder, prompt
from pydantic_deep.testing import ScriptedModel

from .conftest import Begin, Told, times

pytestmark = pytest.mark.anyio


async def test_builder_used_twice_creates_independent_conversations(begin: Begin, told: Told) -> None:
    """001-10, Requirement 3: `b.user('Question 1').start()` and `b.user('Question 2').start()`."""
    model = ScriptedModel('One.', 'Two.')
    b = begin(Agent(model)).instructions('Be brief.')
    first, second = b.user('Question 1').start(), b.user('Question 2').start()
    assert [await first.run(), await second.run()] == ['One.', 'Two.']
    assert told(first.messages) == ['user: Question 1', 'One.']
    assert told(second.messages) == ['user: Question 2', 'Two.']
    assert [request.instructions for request in model.requests] == ['Be brief.', 'Be brief.']
    assert first.id != second.id
    assert first.messages is not second.messages


def test_each_method_returns_a_new_builder() -> None:
    """001-05, 001-14, 001-33: A builder is immutable."""
    start = prompt(Agent(ScriptedModel(), name='sky'))
    builders: list[PromptBuilder[Any, Conversation[Any, Any]]] = [
        start,
        start.instructions('Be brief.'),
        start.user('Hello'),
        start.assistant('Hi.'),
        start.tools(times),
        start.model('test'),
        start.settings(temperature=0),
    ]
    assert len({id(builder) for builder in builders}) == len(builders)
    assert repr(start) == "<PromptBuilder on a new conversation with 'sky': nothing>"
    with pytest.raises(AttributeError):
        start.user_name = 'Ann'  # pyright: ignore[reportAttributeAccessIssue]


async def test_assistant_message_is_injected_in_the_middle_of_a_conversation(begin: Begin, told: Told) -> None:
    """001-01: injection for continuation."""
    model = ScriptedModel('Four.', 'Because you are wrong.')
    conversation = begin(Agent(model)).user('What is 2 + 2?').start()
    await conversation.run()
    await conversation.continuation.user('Sure?').assistant('No, it is five.').user('Why?').prompt()
    assert told(conversation.messages) == [
        'user: What is 2 + 2?',
        'Four.',
        'user: Sure?',
        'No, it is five.',
        'user: Why?',
        'Because you are wrong.',
    ]
    assert told(model.requests[1].messages) == told(conversation.messages)[:-1]


async def test_prompt_starts_and_runs_a_conversation(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """R9: `.prompt()` starts a conversation and runs it."""
    started: list[Conversation[Any, Any]] = []
    original = Conversation[Any, Any].run

    async def run(self: Conversation[Any, Any]) -> object:
        started.append(self)
        return await original(self)

    monkeypatch.setattr(Conversation, 'run', run)
    assert await begin(Agent(ScriptedModel('Hi.'))).user('Hello').prompt() == 'Hi.'
    [conversation] = started
    assert (conversation.output, conversation.state, len(conversation.messages)) == ('Hi.', 'complete', 2)


def test_continuation_holds_a_reference_and_no_messages() -> None:
    """001-08, 001-12, 001-16, 001-26: Builders do not copy the messages of a long conversation."""
    messages: list[ModelMessage] = [ModelRequest.user_text_prompt('Hello'), ModelResponse([TextPart('Hi.')])] * 5_000
    conversation = Conversation(messages, agent=Agent())
    builder = conversation.continuation.user('And now?')
    assert builder._target is conversation  # pyright: ignore[reportPrivateUsage]
    delta = builder._delta  # pyright: ignore[reportPrivateUsage]
    assert len(delta.messages) == 1
    referents = {id(each) for each in gc.get_referents(builder, delta, delta.messages)}
    assert not referents & {id(message) for message in conversation.messages}
