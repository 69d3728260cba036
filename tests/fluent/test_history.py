"""The history of a conversation: the messages that the next turn starts from."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart

from pydantic_deep import Approve, create_deep_agent
from pydantic_deep.approvals import NothingPendingError, UnknownApprovalError
from pydantic_deep.fluent import MessageList, NothingToAnswerError
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import ApprovalsPendingError
from tests.fluent.conftest import PARALLEL, Begin, Told, Tools

pytestmark = pytest.mark.anyio


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


def gated(*steps: Any) -> Any:
    return create_deep_agent(ScriptedModel(*steps), interrupt_on={'write_file': True})


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


def contents(messages: list[ModelMessage]) -> list[object]:
    return [getattr(part, 'content', None) for message in messages for part in message.parts]


@pytest.mark.anyio
async def test_loaded_transcript_uses_the_system_prompt_of_the_new_agent(begin: Begin) -> None:
    """001-06, 001-18: Configuration is added once where a transcript is loaded, and none comes with it."""
    first = begin(Agent(ScriptedModel('One.'), system_prompt='Old.')).user('1').start()
    await first.run()
    model = ScriptedModel('Two.', 'Three.')
    loaded = begin(Agent(model, system_prompt='New.')).start()
    loaded.messages.extend(MessageList.from_dict(first.messages.to_dict()))
    await loaded.continuation.user('2').prompt()
    await loaded.continuation.user('3').prompt()
    for request in model.requests:
        assert contents(request.messages)[:3] == ['New.', '1', 'One.']
        assert str(request.messages).count('New.') == 1


@pytest.mark.anyio
async def test_history_that_starts_with_a_response_gets_the_system_prompt(begin: Begin) -> None:
    model = ScriptedModel('Yes.')
    await begin(Agent(model, system_prompt='New.')).assistant('Ready?').user('Go').prompt()
    assert contents(model.requests[0].messages) == ['New.', 'Ready?', 'Go']


@pytest.mark.anyio
async def test_manual_system_prompt_is_the_only_one(begin: Begin) -> None:
    model = ScriptedModel('Yes.')
    conversation = begin(Agent(model, system_prompt='New.')).start()
    own = ModelRequest([SystemPromptPart('Own.'), UserPromptPart('1')])
    conversation.messages.extend([own, ModelResponse([TextPart('One.')])])
    await conversation.continuation.user('2').prompt()
    assert 'New.' not in str(model.requests[0].messages)
