"""A turn as a stream: its text, or its events, and in the end its version."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from types import TracebackType
from typing import Any, Generic, Self

from pydantic_ai import AgentRunResultEvent, AgentStreamEvent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

from ._turn import OpenTurn
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
    ) -> None:
        self._start = start
        self._run = run
        self._version_of = version_of
        self._version: AgentVersion[DepsT, OutputT] | None = None
        self._events: AsyncGenerator[AgentStreamEvent | AgentRunResultEvent[OutputT]] | None = None

    @property
    def version(self) -> AgentVersion[DepsT, OutputT]:
        """The version that the turn ended with.

        Raises:
            RuntimeError: The run has not ended, or it failed.
        """
        if self._version is None:
            raise RuntimeError('The turn has no version yet. Iterate over the stream to its end first.')
        return self._version

    def __aiter__(self) -> AsyncIterator[str]:
        return self._text()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._events is not None:
            await self._events.aclose()

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
        async with self._start() as turn, self._run(turn) as events:
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
