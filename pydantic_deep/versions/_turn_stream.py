"""A turn as a stream of text or events. Not here: the version that it ends with (`TurnStream` in `_version`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio
from pydantic_ai import (
    AgentRunResultEvent,
    AgentStreamEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    RunCancelled,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.half_characters import PieceJoiner
from pydantic_deep.store import VersionConflictError, VersionRecord
from pydantic_deep_backends import BackendProtocol

from ._session import DepsT, OutputT, Session
from ._turn import OpenTurn, TurnRequest, open_turn

T = TypeVar('T')


class TurnEvents(Generic[DepsT, OutputT]):
    """A turn that runs while its text or its events are iterated over."""

    def __init__(self, session: Session[DepsT, OutputT], request: TurnRequest) -> None:
        self._session = session
        self._request = request
        self._turn: OpenTurn | None = None
        self.begun: anyio.Event = anyio.Event()
        """Set when the run is stored: from then on it can be recovered."""
        self._is_iterated = False
        self._open: list[AsyncGenerator[object]] | None = None
        """The generators to close at the end of `async with`; `None` outside of it.

        Outside, a reference would be a cycle: garbage collection closes all generators in a cycle at once, instead of
        the outermost one, which closes the others.
        """

    @property
    def version_id(self) -> str | None:
        """The id of the turn's newest version, even if the run failed or was stopped; `None` before it begins."""
        return None if self._turn is None else self._turn.recording.tip.id

    @property
    def run_id(self) -> str | None:
        """The id of the run in the store; `None` before the run begins."""
        return None if self._turn is None else self._turn.recording.run_id

    @property
    def is_suspended(self) -> bool:
        """Whether the turn raised without an end in the store: `recover` resumes the run, `cancel` ends it."""
        return self._request.outcome.is_suspended

    @property
    def conflict(self) -> VersionConflictError | None:
        """Why the turn did not move the head of the conversation: the head was moved in the meantime."""
        return None if self._turn is None else self._turn.recording.conflict

    @property
    def usage(self) -> RunUsage | None:
        """The usage of the conversation so far, which grows while the turn runs; `None` before the run begins."""
        return None if self._turn is None else self._turn.usage

    @property
    def deps(self) -> DepsT | None:
        """The deps of the run, with the version's todos and uploads, which change while the turn runs; `None` before it
        begins.
        """
        return None if self._turn is None else self._turn.deps

    @property
    def backend(self) -> BackendProtocol | None:
        """The backend of the run: the files themselves or a view of them; `None` if the files are not versioned."""
        return None if self._turn is None else self._turn.backend

    def __aiter__(self) -> AsyncIterator[str]:
        return self._held(self._text())

    async def __aenter__(self) -> Self:
        self._open = []
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        generators, self._open = self._open or [], None
        for generator in generators:
            await generator.aclose()

    def events(self) -> AsyncGenerator[AgentStreamEvent | AgentRunResultEvent[OutputT]]:
        """Return the events of the run instead of its text: tool calls, results, and events of subagents.

        Raises:
            RuntimeError: The stream is already being iterated over.
        """
        if self._is_iterated:
            raise RuntimeError('A turn runs once, and this stream is already being iterated over.')
        self._is_iterated = True
        return self._held(self._run())

    def _held(self, generator: AsyncGenerator[T]) -> AsyncGenerator[T]:
        """Hold a generator inside `async with`: the loop would close a dropped one while its events are closed here."""
        if self._open is not None:
            self._open.append(generator)
        return generator

    async def _run(self) -> AsyncGenerator[AgentStreamEvent | AgentRunResultEvent[OutputT]]:
        token = self._request.options.cancellation_token
        try:
            async with open_turn(self._session, self._request) as turn:
                self._turn = turn
                self.begun.set()
                try:
                    async with self._session.agent.run_stream_events(
                        **turn.arguments, cancellation_token=token
                    ) as events:
                        async for event in events:
                            yield event
                except RunCancelled as cancelled:
                    yield AgentRunResultEvent(turn.result_despite(cancelled))
        except BaseException:
            crashed = self._request.attempt_of
            if self._turn is None and crashed is not None:  # claimed, but its next attempt did not begin
                self._session.store.mark_orphaned(crashed)
                self._request.outcome.is_suspended = True
            raise
        await self._end(turn.recording.tip)

    async def _end(self, record: VersionRecord) -> None:
        """Handle the version that the turn ended with."""

    async def _text(self) -> AsyncGenerator[str]:
        pieces = PieceJoiner()
        async with aclosing(self.events()) as events:
            async for event in events:
                match event:
                    case (
                        PartStartEvent(part=TextPart(content=piece))
                        | PartDeltaEvent(delta=TextPartDelta(content_delta=piece))
                    ):
                        text = pieces.add(piece)
                    case PartEndEvent(part=TextPart()):
                        text = pieces.end()
                    case _:
                        continue
                if text:
                    yield text
