"""Events as lines of JSON: the output of `--json`."""

from __future__ import annotations

import json

from pydantic_deep.streaming import STREAM_EVENTS, StreamEvent, groups_of, selected_groups

_SELECTED = selected_groups(tool_results=True, function_calls=True, thinking=False)
"""The groups of events that are printed: all but pieces of tool calls and thoughts."""


def print_event(event: StreamEvent) -> None:
    """Print an event on a line of its own, unless it is a piece of a tool call or a thought."""
    if not groups_of(event) & ~_SELECTED:
        print(render_json(event), flush=True)  # noqa: T201 - the output of the command


def render_json(event: StreamEvent) -> str:
    """Return the event as one line of JSON, in ASCII, so that no text in it controls a terminal or fails to encode."""
    return json.dumps(STREAM_EVENTS.dump_python(event, mode='json'))
