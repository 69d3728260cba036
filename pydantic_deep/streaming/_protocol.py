"""Frames, and the protocols that convert them to events and back. Implement both to support another provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ._events import StreamEvent


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One unit of a stream of server-sent events (WHATWG HTML, section 9.2)."""

    data: str = ''
    """The `data` lines, joined by newlines."""
    event: str | None = None
    """The event type. `None` for the default, `message`."""
    id: str | None = None
    """The id that a client sends as `Last-Event-ID` to resume after this frame."""
    retry_milliseconds: int | None = None
    """How long a client waits before it reconnects."""


@runtime_checkable
class Decoder(Protocol):
    """Converts the frames of one provider stream to events. Stateful: create one for each stream."""

    def decode(self, frame: Frame) -> Sequence[StreamEvent]:
        """Return the events of a frame, often none. An unreadable frame yields an `ErrorEvent`, never an exception."""
        ...

    def finish(self) -> Sequence[StreamEvent]:
        """Return the remaining events once the stream has ended: the end, or an error if the stream was cut."""
        ...


@runtime_checkable
class SupportsCallRemoval(Protocol):
    """A decoder that can remove tool calls from frames, so that a stream can be relayed without them."""

    def remove_calls(self, frame: Frame) -> Frame | None:
        """Return the frame without its tool calls, or unchanged if it has none.

        Returns `None` if nothing else remains. Call it for each frame of a stream, in order.
        """
        ...


@runtime_checkable
class Encoder(Protocol):
    """Converts the events of one stream to frames for the clients of one API. Stateful: create one for each stream."""

    def encode(self, event: StreamEvent) -> Sequence[Frame]:
        """Return the frames of an event. Empty if the format cannot, or should not, represent it."""
        ...

    def finish(self) -> Sequence[Frame]:
        """Return the frames that close the stream, such as `[DONE]`. Empty if the stream ended with an error."""
        ...
