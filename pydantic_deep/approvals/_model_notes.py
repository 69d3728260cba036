"""Notes for the model on calls that a person edited or answered. Pure."""

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
"""The metadata of a result that a person gave in the place of a tool."""


NOT_ASKED = 'This call was to wait for a person, and the run ended with its answer before one was asked.'
"""What the model is told, in a later run, of a call that nobody was asked about."""


def not_asked(calls: Sequence[ToolCallPart]) -> list[ToolReturnPart]:
    """Return the results of calls that nobody will be asked about any more."""
    return [ToolReturnPart(call.tool_name, NOT_ASKED, call.tool_call_id, outcome='denied') for call in calls]


def invalid_edit(error: object) -> str:
    """Return what the model is told of an edit that the tool does not take."""
    return f'A person changed the arguments of this call, and they are not valid, so it did not run: {error}'


def with_note(result: object, call: ToolCallPart, args: Mapping[str, JsonValue]) -> ToolReturn[Any]:
    """Return a result that says with which arguments the tool ran, since the history keeps the model's own."""
    note = _note(call, args)
    if not isinstance(result, ToolReturn):
        return ToolReturn[Any](result, content=note)
    returned = cast('ToolReturn[Any]', result)
    content = returned.content
    before: list[UserContent] = [content] if isinstance(content, str) else [*(content or ())]
    return replace(returned, content=[*before, note])


def failure_with_note(
    error: ToolFailed | ModelRetry | ToolFailedError | ToolRetryError, call: ToolCallPart, args: Mapping[str, JsonValue]
) -> Exception:
    """Return the failure with what `with_note` says of a result."""
    note = _note(call, args)
    match error:
        case ToolFailed():
            return ToolFailed(f'{error.message}\n{note}')
        case ModelRetry():
            return ModelRetry(f'{error.message}\n{note}')
        case ToolFailedError():
            return ToolFailedError(_noted(error.tool_failed, note))
        case _:
            part = error.tool_retry
            return ToolRetryError(_noted(part, note)) if isinstance(part, ToolReturnPart) else error


def _noted(part: ToolReturnPart, note: str) -> ToolReturnPart:
    return replace(part, content=f'{part.content}\n{note}') if isinstance(part.content, str) else part


def _note(call: ToolCallPart, args: Mapping[str, JsonValue]) -> str:
    shown = json.dumps(dict(args), ensure_ascii=False)
    return f'A person changed the arguments of the call {call.tool_call_id} of {call.tool_name}. It ran with: {shown}'
