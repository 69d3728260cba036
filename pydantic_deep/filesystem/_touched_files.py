"""Collect the files that the calls of a history have read or changed, for summaries. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart

from pydantic_deep._messages.result_metadata import resolved_path
from pydantic_deep._messages.summary_metadata import CarriedOver, carried_state

ROOM_ID: Final = 'filesystem'
"""The `id` of the capability, under which a summary stores the paths."""

MAX_FILES = 40
"""Maximum number of paths to carry over, most recent ones first. With 30 characters each they take about 300 tokens."""

_CHANGES = frozenset(('write_file', 'edit_file'))
_READS = frozenset(('read_file',))


def carried_over(replaced: Sequence[ModelMessage]) -> CarriedOver:
    """Return the changed and the read files of the replaced messages, including those of an earlier summary."""
    changed_by_path = cast('dict[str, bool]', carried_state(replaced, ROOM_ID) or {})
    for path, is_changed in _touched(replaced):
        is_changed = changed_by_path.pop(path, False) or is_changed
        changed_by_path[path] = is_changed
    recent = dict(list(changed_by_path.items())[-MAX_FILES:])
    lines = [
        f'{heading}: {", ".join(paths)}.'
        for heading, wanted in (('Files changed', True), ('Files read', False))
        if (paths := [path for path, is_changed in recent.items() if is_changed is wanted])
    ]
    return CarriedOver(text='\n'.join(lines), state=cast('dict[str, JsonValue]', recent) or None)


def _touched(messages: Sequence[ModelMessage]) -> list[tuple[str, bool]]:
    """Return the path of each successful call in order, and whether it changed the file."""
    path_by_call: dict[str, str] = {}
    touched: list[tuple[str, bool]] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart) and part.tool_name in _CHANGES | _READS:
                path: object = part.args_as_dict().get('path')
                if isinstance(path, str):
                    path_by_call[part.tool_call_id] = path
            elif isinstance(part, ToolReturnPart) and part.outcome == 'success' and part.tool_call_id in path_by_call:
                path = path_by_call.pop(part.tool_call_id)
                touched.append((resolved_path(part) or path, part.tool_name in _CHANGES))
    return touched
