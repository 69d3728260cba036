"""Assembles tool calls from their streamed pieces, which may interleave, and returns complete calls in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from pydantic_deep.streaming._events import ToolCallDeltaEvent, ToolCallEvent

MAX_CALL_CHARS: Final = 16 * 1024 * 1024
"""How much all calls of an answer may have together. A model writes some hundred thousand characters at most; the rest
is room for arguments that a server makes."""

_CALL_COST: Final = 500
"""What a call takes in memory beside its characters, counted like them."""


class CallsTooLargeError(Exception):
    """The calls of one answer have more characters than are kept."""


@dataclass
class _Call:
    """A call that has begun."""

    id: str
    name: str
    fallback: str
    pieces: list[str]
    is_whole: bool = False


class CallPieces:
    """Puts the calls of one answer together. Each is told whole once, after all that have a lower index."""

    def __init__(self, max_chars: int = MAX_CALL_CHARS) -> None:
        self._free_chars = max_chars
        self._calls: dict[int, _Call] = {}
        self._untold: list[int] = []
        self.next_index = 0
        """An index above all that have come."""

    def __contains__(self, index: int) -> bool:
        return index in self._calls

    def id_of(self, index: int) -> str:
        """Return the id of a call that has begun."""
        return self._calls[index].id

    def begin(
        self, index: int, *, id: str, name: str, args: str = '', fallback: str = '{}'
    ) -> Iterator[ToolCallDeltaEvent]:
        """Begin a call.

        Args:
            index: Which of the answer; none has it yet.
            id: Its id.
            name: The name of the tool.
            args: The first piece of its arguments.
            fallback: Its arguments if no piece of them ever comes.
        """
        self._take(len(id) + len(name) + len(args) + len(fallback) + _CALL_COST)
        self._calls[index] = _Call(id=id, name=name, fallback=fallback, pieces=[args])
        heappush(self._untold, index)
        self.next_index = max(self.next_index, index + 1)
        yield ToolCallDeltaEvent(index=index, id=id, name=name, args=args)

    def add(self, index: int, args: str) -> Iterator[ToolCallDeltaEvent]:
        """Add a piece of the arguments. One that comes when its call was told already is left out."""
        call = self._calls[index]
        if args and not call.is_whole:
            self._take(len(args))
            call.pieces.append(args)
            yield ToolCallDeltaEvent(index=index, args=args)

    def close(self, index: int) -> Iterator[ToolCallDeltaEvent | ToolCallEvent]:
        """Tell a call whole, and those that waited for it; it waits itself while one before it is open."""
        self._calls[index].is_whole = True
        while self._untold and self._calls[self._untold[0]].is_whole:
            yield from self._tell(heappop(self._untold))

    def close_all(self) -> Iterator[ToolCallDeltaEvent | ToolCallEvent]:
        """Tell all calls whole that were not told yet."""
        while self._untold:
            yield from self.close(self._untold[0])

    def _tell(self, index: int) -> Iterator[ToolCallDeltaEvent | ToolCallEvent]:
        call = self._calls[index]
        args = ''.join(call.pieces)
        if not args:
            args = call.fallback
            yield ToolCallDeltaEvent(index=index, args=args)
        call.pieces.clear()
        yield ToolCallEvent(id=call.id, name=call.name, args=args, index=index)

    def _take(self, chars: int) -> None:
        self._free_chars -= chars
        if self._free_chars < 0:
            raise CallsTooLargeError
