"""Which call a question belongs to, if the protocol does not say it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import anyio
import pytest

from pydantic_deep.mcp._open_calls import AMBIGUOUS, CALL, OpenCall, OpenCalls
from pydantic_deep.mcp._questions import Question, Response

pytestmark = pytest.mark.anyio

WHO = Question(message='Who?')
WHERE = Question(message='Where?')

YES = Response(action='accept', content={})


def open_call() -> OpenCall:
    """Return a call that never ends by itself."""
    call = OpenCall(None)
    call.task = asyncio.create_task(asyncio.Event().wait())
    return call


async def test_question_waits_until_other_calls_have_ended() -> None:
    """Over standard streams, a question belongs to the call that is left, and no call starts before that is known."""
    calls, first, second, third = OpenCalls(), open_call(), open_call(), open_call()
    async with AsyncExitStack() as ends, anyio.create_task_group() as group:
        await ends.enter_async_context(calls.opened(first))
        started: list[OpenCall] = []

        async def ask() -> None:
            assert await calls.ask(WHO, timeout_seconds=10) == YES

        async def start() -> None:
            async with calls.opened(third):
                started.append(third)

        async with calls.opened(second):
            group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(start)
            await anyio.wait_all_tasks_blocked()
            assert (first.is_asking, second.is_asking, started) == (False, False, [])
        assert await first.wait(10) == WHO
        await anyio.wait_all_tasks_blocked()
        assert started == [third]
        assert first.answer(YES)


async def test_question_of_a_silent_call_beside_one_that_asks() -> None:
    """A call that waits for an answer does not ask again, so the next question belongs to the other call."""
    calls, first, second = OpenCalls(), open_call(), open_call()
    async with calls.opened(first), anyio.create_task_group() as group:
        group.start_soon(lambda: calls.ask(WHO, timeout_seconds=10))
        assert await first.wait(10) == WHO
        async with calls.opened(second):
            group.start_soon(lambda: calls.ask(WHERE, timeout_seconds=10))
            assert await second.wait(10) == WHERE
            assert (second.answer(YES), first.answer(YES)) == (True, True)


async def test_questions_of_several_calls_at_once_are_refused() -> None:
    """As many questions as calls: each may belong to each, and a wrong person could see it."""
    calls, first, second = OpenCalls(), open_call(), open_call()
    async with calls.opened(first), calls.opened(second), anyio.create_task_group() as group:
        group.start_soon(lambda: _refused(calls))
        await anyio.wait_all_tasks_blocked()
        await _refused(calls)
        group.cancel_scope.cancel()


async def _refused(calls: OpenCalls) -> None:
    with pytest.raises(ValueError, match=AMBIGUOUS):
        await calls.ask(WHO, timeout_seconds=10)


async def test_question_on_the_stream_of_its_call_needs_no_guess() -> None:
    """Over HTTP, the context of a question is that of its call."""
    calls, first, second = OpenCalls(), open_call(), open_call()
    async with calls.opened(first), calls.opened(second), anyio.create_task_group() as group:
        CALL.set(second)
        group.start_soon(lambda: calls.ask(WHO, timeout_seconds=10))
        assert await second.wait(10) == WHO
        assert second.answer(YES)
        assert not second.answer(YES)


async def test_stopped_call_has_ended() -> None:
    """Its task is cancelled, and the caller waits for it."""
    call = open_call()
    await call.stop()
    assert call.task.cancelled()
    assert await call.wait(10) is None
