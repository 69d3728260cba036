"""Calls that their server has not answered yet, and the questions that it asks meanwhile.

A server with a protocol before 2026-07-28 asks within its call, which therefore stays open while a person decides. Over
HTTP, the question arrives on the stream of its call. Over standard streams it does not name the call: it belongs to the
only call that is open, and other calls wait until that is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final
from uuid import uuid4

import anyio

from ._questions import PausedCall, Question, Response

AMBIGUOUS: Final = (
    'The user was not asked, because several calls are open and this protocol version does not say which of them asks. '
    'Make these calls one after another.'
)
"""The error for a server whose question may belong to several calls."""


class OpenCall:
    """One call.

    Args:
        paused: What the call continues with; `None` for a new call.
    """

    task: asyncio.Task[Any]
    """The task of the call. It may outlive the run that made the call."""

    def __init__(self, paused: PausedCall | None) -> None:
        self.paused = paused
        self.question_id = ''
        """Identifies the question that was shown, as a version may be answered on several branches."""
        self._earlier = [] if paused is None else [*paused.earlier]
        """Answers that the call has not used."""
        self._used: list[tuple[Question, Response]] = []
        self._loop = asyncio.get_running_loop()
        self._questions = asyncio.Queue[tuple[Question, 'asyncio.Future[Response]']]()
        self._asked: list[asyncio.Future[Response]] = []
        self._shown: tuple[Question, asyncio.Future[Response]] | None = None

    @property
    def is_asking(self) -> bool:
        """Whether it has asked a question without an answer."""
        return any(not answer.done() for answer in self._asked)

    @property
    def used(self) -> Sequence[tuple[Question, Response]]:
        """The answers that it has used."""
        return self._used

    def ask(self, question: Question) -> asyncio.Future[Response]:
        """Return the answer to a question, which a person gives later unless it was given before."""
        answer = self._loop.create_future()
        self._asked.append(answer)
        earlier = next((pair for pair in self._earlier if pair[0] == question), None)
        if earlier is None:
            self._questions.put_nowait((question, answer))
        else:
            self._earlier.remove(earlier)
            self._use(earlier, answer)
        return answer

    async def wait(self, timeout_seconds: float) -> Question | None:
        """Wait for a question or the end of the call, and return the question; `None` if the call has ended.

        Raises:
            TimeoutError: Neither happened.
        """
        asked = asyncio.create_task(self._questions.get())
        try:
            done, _ = await asyncio.wait(
                {self.task, asked}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            asked.cancel()
        if not done:
            raise TimeoutError
        if self.task in done:
            return None
        self._shown = asked.result()
        self.question_id = uuid4().hex
        return self._shown[0]

    def answer(self, response: Response) -> bool:
        """Answer the question that was shown. Return whether the server still waits for it."""
        if self._shown is None or self._shown[1].done() or self._loop is not asyncio.get_running_loop():
            return False
        question, answer = self._shown
        self._use((question, response), answer)
        return True

    async def stop(self) -> None:
        """Cancel the call, and wait until it has ended."""
        self.task.cancel()
        await asyncio.wait({self.task})

    def _use(self, pair: tuple[Question, Response], answer: asyncio.Future[Response]) -> None:
        self._used.append(pair)
        answer.set_result(pair[1])


CALL: ContextVar[OpenCall | None] = ContextVar('pydantic_deep_mcp_call', default=None)
"""The call that a request or a question belongs to."""


class OpenCalls:
    """The open calls of a connection."""

    def __init__(self) -> None:
        self._calls: list[OpenCall] = []
        self._unknown = 0
        """The number of questions whose call is not known yet."""
        self._changed = anyio.Condition()

    @property
    def are_open(self) -> bool:
        """Whether there are open calls."""
        return bool(self._calls)

    @asynccontextmanager
    async def opened(self, call: OpenCall) -> AsyncGenerator[None]:
        """Count a call as open. It waits for questions whose call is not known yet."""
        async with self._changed:
            while self._unknown:
                await self._changed.wait()
            self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)
            with anyio.CancelScope(shield=True):
                async with self._changed:
                    self._changed.notify_all()

    async def ask(self, question: Question, *, timeout_seconds: float) -> Response:
        """Return the answer of a person to a question, or that there is none in time.

        Raises:
            ValueError: It is unknown which call asks.
        """
        call = CALL.get()
        answer = call.ask(question) if call is not None else await self._ask_unknown(question)
        done, _ = await asyncio.wait({answer}, timeout=timeout_seconds)
        if not done:
            answer.set_result(Response(action='cancel'))
        return answer.result()

    async def _ask_unknown(self, question: Question) -> asyncio.Future[Response]:
        """Ask for the only call that can have asked, after waiting for the others."""
        async with self._changed:
            self._unknown += 1
            try:
                while True:
                    silent = [call for call in self._calls if not call.is_asking]
                    possible = self._calls if len(self._calls) == 1 else silent
                    if len(possible) == 1:
                        return possible[0].ask(question)
                    if len(possible) <= self._unknown:
                        raise ValueError(AMBIGUOUS)
                    await self._changed.wait()
            finally:
                self._unknown -= 1
                self._changed.notify_all()
