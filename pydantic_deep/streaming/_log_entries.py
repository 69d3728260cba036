"""Log entries of a run: each event is encoded once for all readers, as a server-sent event without its `id`.

The first byte contains the groups that a reader must request, so that entries are selected and sent without parsing.
"""

from __future__ import annotations

from ._events import STREAM_EVENTS, NoticeEvent, StreamEvent
from ._frames import render_frame
from ._lines import NOTICE, CallBatches, EventGroup, event_frame, groups_of


class EntryEncoder:
    """Encodes the events of one run, with a notice before each batch of calls. Stateful."""

    def __init__(self) -> None:
        self._batches = CallBatches()

    def encode(self, event: StreamEvent) -> list[bytes]:
        """Return the entries of an event."""
        entry = encode_entry(event)
        return [encode_entry(NoticeEvent(text=NOTICE)), entry] if self._batches.is_start(event) else [entry]


def encode_entry(event: StreamEvent) -> bytes:
    """Return the entry of an event."""
    return bytes([groups_of(event)]) + render_frame(event_frame(event)).encode()


def is_selected(entry: bytes, groups: EventGroup) -> bool:
    """Return whether a reader that requested these groups receives the event."""
    return not entry[0] & ~groups


def frame_of(entry: bytes, groups: EventGroup) -> bytes:
    """Return the frame, which an `id:` line may precede, or an empty one if the reader does not receive the event."""
    return entry[1:] if is_selected(entry, groups) else b''


def decode_entry(entry: bytes) -> StreamEvent:
    """Return the event of an entry."""
    return STREAM_EVENTS.validate_json(entry.partition(b'\ndata: ')[2])
