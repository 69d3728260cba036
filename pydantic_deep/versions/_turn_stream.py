"""A turn as a stream: its text, or its events. Not here: the version that it ends with (`TurnStream` in `_version`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import TracebackType
from typing import Generic, Self

import anyio
from pydantic_ai import AgentRunResultEvent, AgentStreamEvent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.usage import RunUsage

from pydantic_deep.store import VersionConflictError, VersionRecord
from pydantic_deep_backends import BackendProtocol

from ._session import DepsT, OutputT, Session
from ._turn import OpenTurn, TurnRequest, open_turn


class TurnEvents(Generic[DepsT, OutputT]):
    """The run of a turn, which runs while its text or its events are iterated over."""

    def __init__(self, session: Session[DepsT, OutputT], request: TurnRequest) -> None:
        self._session = session
        self._request = request
        self._turn: OpenTurn | None = None
        self.begun = anyio.Event()
        """Set when the store knows of the run: from then on it can be recovered."""
        self._events: AsyncGenerator[AgentStreamEvent | AgentRunResultEvent[OutputT]] | None = None
        self._texts: AsyncGenerator[str] | None = None

    @property
    def version_id(self) -> str | None:
        """The newest version of the turn so far, also of one that failed or was stopped; `None` before it has begun."""
        return None if self._turn is None else self._turn.recording.tip.id

    @property
    def run_id(self) -> str | None:
        """The run, as the store knows it; `None` before it has begun."""
        return None if self._turn is None else self._turn.recording.run_id

    @property
    def is_suspended(self) -> bool:
        """Whether the turn raised and the store does not have its end: `recover` resumes the run, `cancel` ends it."""
        return self._request.outcome.is_suspended

    @property
    def conflict(self) -> VersionConflictError | None:
        """Why the head of the conversation has not moved, where it was to: somebody else had moved it meanwhile."""
        return None if self._turn is None else self._turn.recording.conflict

    @property
    def usage(self) -> RunUsage | None:
        """What the conversation has used so far: it grows while the turn runs."""
        return None if self._turn is None else self._turn.usage

    @property
    def deps(self) -> DepsT | None:
        """The deps of the run, with the todos and uploads of the version: they change while the turn runs."""
        return None if self._turn is None else self._turn.deps

    @property
    def backend(self) -> BackendProtocol | None:
        """Where the run works: on the files themselves or on a view of them; `None` where files are not versioned."""
        return None if self._turn is None else self._turn.backend

    def __aiter__(self) -> AsyncIterator[str]:
        self._texts = self._text()  # kept: one that is dropped would be closed by the loop, while we close its events
        return self._texts

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for each in (self._texts, self._events):
            if each is not None:
                await each.aclose()

    def events(self) -> AsyncGenerator[AgentStreamEvent | AgentRunResultEvent[OutputT]]:
        """Return the events of the run instead of its text: tool calls, results, those of subagents.

        Raises:
            RuntimeError: The stream is iterated over already.
        """
        if self._events is not None:
            raise RuntimeError('A turn runs once: this stream is iterated over already.')
        self._events = self._run()
        return self._events

    async def _run(self) -> AsyncGenerator[AgentStreamEvent | AgentRunResultEvent[OutputT]]:
        token = self._request.options.cancellation_token
        async with open_turn(self._session, self._request) as turn:
            self._turn = turn
            self.begun.set()
            async with self._session.agent.run_stream_events(**turn.arguments, cancellation_token=token) as events:
                async for event in events:
                    yield event
        await self._end(turn.recording.tip)

    async def _end(self, record: VersionRecord) -> None:
        """Take the version that the turn ended with."""

    async def _text(self) -> AsyncGenerator[str]:
        async with aclosing(self.events()) as events:
            async for event in events:
                match event:
                    case (
                        PartStartEvent(part=TextPart(content=text))
                        | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                    ) if text:
                        yield text
                    case _:
                        pass
