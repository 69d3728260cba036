"""Turns: they run as far as they are read, and can be stopped, left and replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import anyio.lowlevel
import pytest
from pydantic_ai import Agent, UserError
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models.function import AgentInfo

from pydantic_deep.fluent import ConversationBusyError, NothingToAnswerError, TurnStoppedError
from pydantic_deep.store import Store
from pydantic_deep.testing import Answer, ScriptedModel

from .conftest import INTERRUPTED, PARALLEL, Begin, Told, Tools

pytestmark = pytest.mark.anyio


async def has_ended(store: Store, tool: str) -> bool:
    """Return whether the store has the result of a call: until then it is one that may not have ended."""
    calls = await store.calls([run.id for run in await store.runs()])
    return any(call.tool_name == tool and call.status == 'done' for call in calls)


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


async def test_a_turn_that_anext_has_begun_is_run_to_its_end(begin: Begin, tools: Tools, told: Told) -> None:
    """`run` goes on with the turn that `anext` has begun, and what is said after it is another turn."""
    conversation = begin(tools.agent(PARALLEL, 'One.', 'Two.')).user('Go').start()
    assert told([await anext(conversation)]) == ['call a + call b']
    assert await conversation.run() == 'One.'
    assert conversation.state == 'complete'
    assert await anext(conversation, None) is None
    conversation.messages.append(ModelRequest.user_text_prompt('And?'))
    assert told([message async for message in conversation]) == ['Two.']
