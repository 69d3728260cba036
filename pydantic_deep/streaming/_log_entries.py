"""Log entries of a run: each event is encoded once for all readers, as a server-sent event without its `id`.

The first byte contains the groups that a reader must request, so that entries are selected and sent without parsing.
"""

from __future__ import annotations

import json

from pydantic import ValidationError

from ._events import STREAM_EVENTS, NoticeEvent, StreamEvent
from ._frames import render_frame
from ._lines import NOTICE, CallBatches, EventGroup, event_frame, groups_of

_BEFORE_TEXT = b'\0event: text\ndata: {"type":"text","text":'
_AFTER_TEXT = b',"path":[]}\n\n'


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
    return not entry[0] & ~int(groups)  # the complement of a flag is a slow operation of `enum`


def frame_of(entry: bytes, groups: EventGroup) -> bytes:
    """Return the frame, which an `id:` line may precede, or an empty one if the reader does not receive the event."""
    return entry[1:] if is_selected(entry, groups) else b''


def decode_entry(entry: bytes) -> StreamEvent:
    """Return the event of an entry."""
    data = entry.partition(b'\ndata: ')[2]
    try:
        return STREAM_EVENTS.validate_json(data)
    except ValidationError:  # pydantic does not parse lone surrogates
        return STREAM_EVENTS.validate_python(json.loads(data))


def text_of_entry(entry: bytes) -> bytes | None:
    """Return the text of an entry as JSON, without parsing it; `None` if it is not a text of the agent itself."""
    if entry.startswith(_BEFORE_TEXT) and entry.endswith(_AFTER_TEXT):
        return entry[len(_BEFORE_TEXT) : -len(_AFTER_TEXT)]
    return None
