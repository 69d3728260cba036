"""Notes to the model about calls that a person edited or answered. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic import JsonValue
from pydantic_ai.exceptions import ModelRetry, ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import ToolCallPart, ToolReturn, ToolReturnPart, UserContent

from pydantic_deep._messages.deferred_metadata import KEY

ANSWERED: dict[str, Any] = {KEY: {'kind': 'answered'}}
"""Metadata of a tool result that a person supplied."""


NOT_ASKED = 'This call required approval, but the run ended with its answer before a person was asked.'
"""The tool result, in later runs, of a call that was never presented to a person."""


def not_asked(calls: Sequence[ToolCallPart]) -> list[ToolReturnPart]:
    """Return results for calls that will no longer be presented to a person."""
    return [ToolReturnPart(call.tool_name, NOT_ASKED, call.tool_call_id, outcome='denied') for call in calls]


def invalid_edit(error: object) -> str:
    """Return the message to the model about an edit with invalid arguments."""
    return f'A person changed the arguments of this call, and they are not valid, so it did not run: {error}'


def with_note(result: object, call: ToolCallPart, args: Mapping[str, JsonValue]) -> ToolReturn[Any]:
    """Return a tool result with a note about the edited arguments. The history retains the model's own arguments."""
    note = _note(call, args)
    if not isinstance(result, ToolReturn):
        return ToolReturn[Any](result, content=note)
    returned = cast('ToolReturn[Any]', result)
    content = returned.content
    existing: list[UserContent] = [content] if isinstance(content, str) else [*(content or ())]
    return replace(returned, content=[*existing, note])


def failure_with_note(
    error: ToolFailed | ModelRetry | ToolFailedError | ToolRetryError, call: ToolCallPart, args: Mapping[str, JsonValue]
) -> Exception:
    """Return a failure with the note that `with_note` adds to a result."""
    note = _note(call, args)
    match error:
        case ToolFailed():
            return ToolFailed(f'{error.message}\n{note}')
        case ModelRetry():
            return ModelRetry(f'{error.message}\n{note}')
        case ToolFailedError():
            return ToolFailedError(_part_with_note(error.tool_failed, note))
        case _:
            part = error.tool_retry
            return ToolRetryError(_part_with_note(part, note)) if isinstance(part, ToolReturnPart) else error


def _part_with_note(part: ToolReturnPart, note: str) -> ToolReturnPart:
    return replace(part, content=f'{part.content}\n{note}') if isinstance(part.content, str) else part


def _note(call: ToolCallPart, args: Mapping[str, JsonValue]) -> str:
    shown = json.dumps(dict(args), ensure_ascii=False)
    return f'A person changed the arguments of the call {call.tool_call_id} of {call.tool_name} to: {shown}'
