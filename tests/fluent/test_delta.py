"""The additions of a builder to a conversation."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.messages import ImageUrl, UserPromptPart

from pydantic_deep.fluent import EmptyMessageError, prompt
from pydantic_deep.testing import ScriptedModel

from .conftest import Begin, Told, times

pytestmark = pytest.mark.anyio


def test_repr_shows_the_additions() -> None:
    builder = (
        prompt(Agent(name='sky'))
        .instructions('a')
        .assistant('b')
        .user('c')
        .tools(times)
        .model(ScriptedModel())
        .settings(temperature=0, max_tokens=9)
    )
    assert repr(builder) == snapshot(
        "<PromptBuilder on a new conversation with 'sky': 2 messages, 1 instructions, 1 toolsets, model scripted:scripted, settings {'temperature': 0, 'max_tokens': 9}>"
    )
    assert repr(prompt(Agent(name='sky')).model('test')) == snapshot(
        "<PromptBuilder on a new conversation with 'sky': model 'test'>"
    )


async def test_assistant_messages_are_stripped_and_stay_in_order(begin: Begin, told: Told) -> None:
    """R1, 001-01, 001-29: Assistant messages are injected in order, without surrounding whitespace."""
    model = ScriptedModel('Fine.')
    conversation = (
        begin(Agent(model))
        .assistant('\n  I am ready.  ')
        .user('Who are you?')
        .assistant(' A pirate. ')
        .assistant('Arr.')
        .user('And')
        .user('how are you?')
        .start()
    )
    injected = ['I am ready.', 'user: Who are you?', 'A pirate. + Arr.', 'user: And + user: how are you?']
    assert told(conversation.messages) == injected
    assert await conversation.run() == 'Fine.'
    sent = ['I am ready.', 'user: Who are you?', 'A pirate. + Arr.', "user: ['And', 'how are you?']"]
    assert told(model.requests[0].messages) == sent
    assert told(conversation.messages) == [*sent, 'Fine.']


@pytest.mark.parametrize('empty', ['', '  \n'])
def test_empty_messages_are_refused(empty: str) -> None:
    builder = prompt(Agent())
    with pytest.raises(EmptyMessageError, match=r'The message of the assistant is empty. Remove it'):
        builder.assistant(empty)
    with pytest.raises(EmptyMessageError, match='user'):
        builder.user(empty)
    with pytest.raises(EmptyMessageError, match='instructions'):
        builder.instructions(empty)
    with pytest.raises(EmptyMessageError, match='user'):
        builder.user([])


async def test_user_message_can_contain_media(begin: Begin) -> None:
    model = ScriptedModel('A cat.')
    picture = ImageUrl(url='https://example.com/cat.png')
    assert await begin(Agent(model)).user(['What is this?', picture]).prompt() == 'A cat.'
    [message] = model.requests[0].messages
    assert isinstance(message.parts[0], UserPromptPart)
    assert message.parts[0].content == ['What is this?', picture]
