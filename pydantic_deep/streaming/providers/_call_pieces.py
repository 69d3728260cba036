"""Assembles tool calls from their streamed pieces, which may interleave, and returns complete calls in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from pydantic_deep.streaming._events import ToolCallDeltaEvent, ToolCallEvent

MAX_CALL_CHARS: Final = 16 * 1024 * 1024
"""Default limit for all calls of an answer together. A model writes a few hundred thousand characters at most; the rest
allows for arguments that a server generates."""

_CALL_COST: Final = 500
"""Memory overhead of a call, counted in characters."""


class CallsTooLargeError(Exception):
    """The calls of one answer exceed the character limit."""


@dataclass
class _Call:
    """A call of which the first piece has arrived."""

    id: str
    name: str
    fallback: str
    pieces: list[str]
    is_whole: bool = False


class CallPieces:
    """Assembles the calls of one answer. Each complete call is yielded once, after all calls with a lower index."""

    def __init__(self, max_chars: int = MAX_CALL_CHARS) -> None:
        self._free_chars = max_chars
        self._calls: dict[int, _Call] = {}
        self._pending: list[int] = []
        self.next_index = 0
        """An index greater than all used ones."""

    def __contains__(self, index: int) -> bool:
        return index in self._calls

    def id_of(self, index: int) -> str:
        """Return the id of a started call."""
        return self._calls[index].id

    def begin(
        self, index: int, *, id: str, name: str, args: str = '', fallback: str = '{}'
    ) -> Iterator[ToolCallDeltaEvent]:
        """Start a call.

        Args:
            index: Position of the call in the answer. It must be unused.
            id: The id of the call.
            name: The name of the tool.
            args: The first piece of its arguments.
            fallback: Its arguments if no piece of them arrives.
        """
        self._reserve(len(id) + len(name) + len(args) + len(fallback) + _CALL_COST)
        self._calls[index] = _Call(id=id, name=name, fallback=fallback, pieces=[args])
        heappush(self._pending, index)
        self.next_index = max(self.next_index, index + 1)
        yield ToolCallDeltaEvent(index=index, id=id, name=name, args=args)

    def add(self, index: int, args: str) -> Iterator[ToolCallDeltaEvent]:
        """Append a piece of the arguments. Pieces of a completed call are ignored."""
        call = self._calls[index]
        if args and not call.is_whole:
            self._reserve(len(args))
            call.pieces.append(args)
            yield ToolCallDeltaEvent(index=index, args=args)

    def close(self, index: int) -> Iterator[ToolCallDeltaEvent | ToolCallEvent]:
        """Complete a call. Yields it and later complete calls, unless an earlier call is still open."""
        self._calls[index].is_whole = True
        while self._pending and self._calls[self._pending[0]].is_whole:
            yield from self._complete(heappop(self._pending))

    def close_all(self) -> Iterator[ToolCallDeltaEvent | ToolCallEvent]:
        """Complete all open calls, and yield those not yielded before."""
        while self._pending:
            yield from self.close(self._pending[0])

    def _complete(self, index: int) -> Iterator[ToolCallDeltaEvent | ToolCallEvent]:
        call = self._calls[index]
        args = ''.join(call.pieces)
        if not args:
            args = call.fallback
            yield ToolCallDeltaEvent(index=index, args=args)
        call.pieces.clear()
        yield ToolCallEvent(id=call.id, name=call.name, args=args, index=index)

    def _reserve(self, chars: int) -> None:
        self._free_chars -= chars
        if self._free_chars < 0:
            raise CallsTooLargeError
