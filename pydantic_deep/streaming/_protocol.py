"""Frames, and what makes events of them and them of events: implement both for another provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ._events import StreamEvent


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One unit of a stream of server-sent events (WHATWG HTML, section 9.2)."""

    data: str = ''
    """Its lines joined by newlines."""
    event: str | None = None
    """The type; `None` for the default, `message`."""
    id: str | None = None
    """What a client sends as `Last-Event-ID` to go on after it."""
    retry_milliseconds: int | None = None
    """How long a client waits before it connects again."""


@runtime_checkable
class Decoder(Protocol):
    """Makes events of the frames of one stream of a provider. It has state: one for each stream."""

    def decode(self, frame: Frame) -> Sequence[StreamEvent]:
        """Return what a frame says, often nothing. What cannot be read is an `ErrorEvent`, never an exception."""
        ...

    def finish(self) -> Sequence[StreamEvent]:
        """Return what is left when the stream has ended: the end, or an error if it ended too early."""
        ...


@runtime_checkable
class SupportsCallRemoval(Protocol):
    """A decoder that can part the tool calls of a frame from the rest, so that a stream is passed on without them."""

    def remove_calls(self, frame: Frame) -> Frame | None:
        """Return a frame without what it says of tool calls, unchanged if it says nothing of them.

        `None` if it says nothing else. It is asked for each frame of a stream, in order.
        """
        ...


@runtime_checkable
class Encoder(Protocol):
    """Makes frames of the events of one stream, for clients of one API. It has state: one for each stream."""

    def encode(self, event: StreamEvent) -> Sequence[Frame]:
        """Return the frames that tell an event; none where the format cannot, or should not, tell it."""
        ...

    def finish(self) -> Sequence[Frame]:
        """Return the frames that close the stream, such as `[DONE]`; none where it ended by an error."""
        ...
