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
    """Return whether the store has the result of a call; until then the call may still be running."""
    calls = await store.calls([run.id for run in await store.runs()])
    return any(call.tool_name == tool and call.status == 'done' for call in calls)


async def test_turn_yields_each_message_when_it_is_complete(begin: Begin, tools: Tools, told: Told) -> None:
    """001-09: A response is yielded before its calls run, results before they are sent, and the list is always current."""
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


async def test_run_completes_the_turn(begin: Begin, tools: Tools) -> None:
    conversation = begin(tools.agent(PARALLEL, 'Done.')).user('Go').start()
    assert conversation.output is None
    assert await conversation.run() == 'Done.'
    assert len(conversation.messages) == 4


async def test_text_stream_yields_the_text_of_a_turn(begin: Begin, tools: Tools) -> None:
    conversation = begin(tools.agent(['Let me see.', *PARALLEL], 'All is done.')).user('Go').start()
    texts = [text async for text in conversation.text_stream()]
    assert ''.join(texts) == 'Let me see.All is done.'
    assert len(texts) > 2
    assert (conversation.state, len(conversation.messages)) == ('complete', 4)


async def test_leaving_the_text_stream_stops_the_turn(begin: Begin, tools: Tools) -> None:
    conversation = begin(tools.agent(['Let me see.', *PARALLEL], 'Done.')).user('Go').start()
    async with aclosing(conversation.text_stream()) as texts:
        await anext(texts)
    assert tools.ran == []
    assert conversation.state == 'interrupted'


async def test_stopped_turn_can_be_continued(begin: Begin, tools: Tools, told: Told) -> None:
    """001-04, 001-21, 001-35, C12: After one message, pending calls are interrupted and never run."""
    conversation = begin(tools.agent(PARALLEL, 'Something else.')).user('Go').start()
    async for _ in conversation:
        break
    assert told(conversation.messages) == INTERRUPTED[:2]
    assert await conversation.continuation.user('Something else').prompt() == 'Something else.'
    assert told(conversation.messages) == [*INTERRUPTED, 'user: Something else', 'Something else.']
    assert tools.ran == []
    assert conversation.state == 'complete'


async def test_completed_work_is_preserved_when_a_turn_is_stopped(begin: Begin, tools: Tools, told: Told) -> None:
    """001-21: Emitted results are preserved, although they were not sent to the model."""
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
    """C12: Of two parallel calls, one has ended and one has not."""
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


async def test_loop_over_a_replaced_turn_raises(begin: Begin, tools: Tools, told: Told) -> None:
    """001-27: A turn that is not being awaited is stopped by the next one, and its loop raises instead of ending
    normally."""
    conversation = begin(tools.agent(PARALLEL, 'Inner.')).user('Go').start()

    async def read() -> None:
        async for _ in conversation:
            assert await conversation.continuation.user('Something else').prompt() == 'Inner.'

    with pytest.raises(TurnStoppedError) as caught:
        await read()
    assert caught.value.conversation_id == conversation.id
    assert told(conversation.messages) == [*INTERRUPTED, 'user: Something else', 'Inner.']


async def test_another_turn_can_start_after_one_message(begin: Begin, tools: Tools, told: Told) -> None:
    """001-04, 001-07, 001-35: The conversation continues with a new request after one message and yields its messages
    next; pending calls are interrupted and never run."""
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


async def test_concurrent_anext_is_refused(begin: Begin, tools: Tools) -> None:
    """001-27: Requesting a message while another task awaits one is refused and changes nothing."""
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


async def test_replaced_turn_is_not_continued(begin: Begin, tools: Tools) -> None:
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


async def test_only_one_turn_runs_at_a_time(begin: Begin, tools: Tools, told: Told) -> None:
    """001-27, C4: Starting a turn while another is awaited is refused and changes nothing; the builder works later."""
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


async def test_unanswered_turn_can_be_run_again(begin: Begin, told: Told) -> None:
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


async def test_completed_work_is_preserved_when_a_turn_fails(begin: Begin, tools: Tools, told: Told) -> None:
    conversation = begin(tools.agent(PARALLEL, ModelHTTPError(503, 'm'), 'Fine.')).user('Go').start()
    with pytest.raises(ModelHTTPError):
        await conversation.run()
    assert (conversation.state, conversation.output) == ('failed', None)
    assert [line for line in told(conversation.messages) if line] == ['user: Go', 'call a + call b', 'a: A + b: B']
    assert await conversation.continuation.user('Again').prompt() == 'Fine.'
    assert len(tools.ran) == 2


async def test_turn_that_cannot_start_does_not_change_the_conversation(begin: Begin, told: Told) -> None:
    conversation = begin(Agent(ScriptedModel('Hi.'))).user('Hello').start()
    conversation.continuation.model('nonsense').start()
    with pytest.raises(UserError, match='Unknown model'):
        await conversation.run()
    assert (conversation.state, told(conversation.messages)) == ('failed', ['user: Hello'])
    assert await conversation.continuation.model(ScriptedModel('Hi.')).prompt() == 'Hi.'


async def test_cancelling_the_task_stops_the_turn(begin: Begin, tools: Tools, told: Told, store: Store) -> None:
    """Cancellation is safe: completed work is preserved, running calls are interrupted, and nothing continues to run."""
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


async def test_cancelled_scope_stops_the_turn(begin: Begin, tools: Tools) -> None:
    tools.may_end = anyio.Event()
    conversation = begin(tools.agent(PARALLEL, 'Fine.')).user('Go').start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(conversation.run)
        await tools.is_running.wait()
        tasks.cancel_scope.cancel()
    assert (conversation.state, tools.ran) == ('interrupted', ['a'])


async def test_turn_cancelled_before_its_answer_can_be_run_again(begin: Begin, told: Told) -> None:
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


async def test_stop_without_a_running_turn_does_nothing(begin: Begin, told: Told) -> None:
    conversation = begin(Agent(ScriptedModel('Hi.'))).user('Hello').start()
    await conversation.stop()
    assert await conversation.run() == 'Hi.'
    await conversation.stop()
    assert conversation.state == 'complete'


async def test_iterator_that_was_never_started_runs_nothing(begin: Begin) -> None:
    model = ScriptedModel('Hi.')
    conversation = begin(Agent(model)).user('Hello').start()
    iterator = aiter(conversation)
    assert isinstance(iterator, AsyncGenerator)
    await iterator.aclose()
    assert (model.requests, conversation.state) == ([], 'ready')


async def test_turn_started_by_anext_is_completed_by_run(begin: Begin, tools: Tools, told: Told) -> None:
    """`run` completes the turn that `anext` started; later messages start another turn."""
    conversation = begin(tools.agent(PARALLEL, 'One.', 'Two.')).user('Go').start()
    assert told([await anext(conversation)]) == ['call a + call b']
    assert await conversation.run() == 'One.'
    assert conversation.state == 'complete'
    assert await anext(conversation, None) is None
    conversation.messages.append(ModelRequest.user_text_prompt('And?'))
    assert told([message async for message in conversation]) == ['Two.']
