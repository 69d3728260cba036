"""Values and events as compact JSON, even with lone surrogates, which models produce by splitting characters."""

from __future__ import annotations

import json

from pydantic_core import PydanticSerializationError, to_json

from ._events import STREAM_EVENTS, StreamEvent


def render_json(value: object) -> str:
    """Return a value as JSON. Lone surrogates are escaped, as JSON allows."""
    try:
        return to_json(value).decode()
    except PydanticSerializationError:
        return json.dumps(value, separators=(',', ':'), default=repr)


def render_event(event: StreamEvent) -> str:
    """Return an event as JSON, which `STREAM_EVENTS.validate_json` parses."""
    try:
        return STREAM_EVENTS.dump_json(event).decode()
    except PydanticSerializationError:
        return json.dumps(STREAM_EVENTS.dump_python(event), separators=(',', ':'))
