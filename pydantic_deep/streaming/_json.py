"""Values and events as compact JSON, whatever their texts hold: models cut characters in halves."""

from __future__ import annotations

import json

from pydantic_core import PydanticSerializationError, to_json

from ._events import STREAM_EVENTS, StreamEvent


def render_json(value: object) -> str:
    """Return the JSON of a value; half a character (a lone surrogate) is escaped, as JSON allows."""
    try:
        return to_json(value).decode()
    except PydanticSerializationError:
        return json.dumps(value, separators=(',', ':'), default=repr)


def render_event(event: StreamEvent) -> str:
    """Return the JSON of an event, which `STREAM_EVENTS.validate_json` reads."""
    try:
        return STREAM_EVENTS.dump_json(event).decode()
    except PydanticSerializationError:
        return json.dumps(STREAM_EVENTS.dump_python(event), separators=(',', ':'))
