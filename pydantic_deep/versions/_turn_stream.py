"""A turn as a stream: its text, or its events, and in the end its version."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from types import TracebackType
from typing import Any, Generic, Self

import anyio
from pydantic_ai import AgentRunResultEvent, AgentStreamEvent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.usage import RunUsage

from pydantic_deep.store import VersionConflictError
from pydantic_deep_backends import BackendProtocol

from ._turn import OpenTurn, TurnOutcome
from ._version import AgentVersion, DepsT, OutputT


class TurnStream(Generic[DepsT, OutputT]):
    """A turn that runs while it is iterated over: yields the text of the answers as it comes.

    Iterate once. Use it as `async with`, so that leaving early stops the run at once.
    """

    def __init__(
        self,
        start: Callable[[], AbstractAsyncContextManager[OpenTurn]],
        run: Callable[[OpenTurn], AbstractAsyncContextManager[AsyncIterator[Any]]],
        version_of: Callable[[OpenTurn], Any],
        outcome: TurnOutcome,
    ) -> None:
        self._start = start
        self._run = run
        self._version_of = version_of
        self._outcome = outcome
        self._turn: OpenTurn | None = None
        self.begun = anyio.Event()
        """Set when the store knows of the run: from then on it can be recovered."""
        self._version: AgentVersion[DepsT, OutputT] | None = None
        self._events: AsyncGenerator[AgentStreamEvent | AgentRunResultEvent[OutputT]] | None = None
        self._texts: AsyncGenerator[str] | None = None

    @property
    def version(self) -> AgentVersion[DepsT, OutputT]:
        """The version that the turn ended with.

        Raises:
            RuntimeError: The run has not ended, or it failed.
        """
        if self._version is None:
            raise RuntimeError('The turn has no version yet. Iterate over the stream to its end first.')
        return self._version

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
        return self._outcome.is_suspended

    @property
    def conflict(self) -> VersionConflictError | None:
        """Why the head of the conversation has not moved, where it was to: somebody else had moved it meanwhile."""
        return None if self._turn is None else self._turn.recording.conflict

    @property
    def usage(self) -> RunUsage | None:
        """What the conversation has used so far: it grows while the turn runs."""
        return None if self._turn is None else self._turn.arguments['usage']

    @property
    def deps(self) -> DepsT | None:
        """The deps of the run, with the todos and uploads of the version: they change while the turn runs."""
        return None if self._turn is None else self._turn.arguments['deps']

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
        self._events = self._tell()
        return self._events

    async def _tell(self) -> AsyncGenerator[AgentStreamEvent | AgentRunResultEvent[OutputT]]:
        async with self._start() as turn:
            self._turn = turn
            self.begun.set()
            async with self._run(turn) as events:
                async for event in events:
                    yield event
        self._version = await self._version_of(turn)

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
