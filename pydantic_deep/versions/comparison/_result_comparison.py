"""Runs a recorded tool call again, and compares its result with the recorded one."""

from __future__ import annotations

import difflib
import json
from typing import Any

from pydantic_ai.capabilities import ValidatedToolArgs, WrapToolExecuteHandler
from pydantic_ai.exceptions import ModelRetry, ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import ModelRequest

from pydantic_deep._requests.canonical_request import canonical_message
from pydantic_deep.store import CallRecord
from pydantic_deep.versions.recording._ledger import encode_failure, encode_result, failure_of, result_parts

from ._version_diff import ResultDifference


async def compare_result(
    known: CallRecord, handler: WrapToolExecuteHandler, args: ValidatedToolArgs
) -> ResultDifference | None:
    """Run a recorded call, and return the difference from its recorded result; `None` if there is none.

    Args:
        known: The recorded call, with its result.
        handler: Runs the call.
        args: Its arguments.
    """
    before, after = _text_of(known), _text_of(known._replace(result=await _run(known, handler, args)))
    if before == after:
        return None
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), 'recorded', 'replayed', lineterm='', n=2)
    return ResultDifference(
        number=0,
        tool_name=known.tool_name,
        response_id=known.response_id,
        tool_call_id=known.tool_call_id,
        detail='\n'.join(lines),
    )


async def _run(known: CallRecord, handler: WrapToolExecuteHandler, args: ValidatedToolArgs) -> str:
    try:
        result: Any = await handler(args)
    except (ToolFailed, ModelRetry, ToolFailedError, ToolRetryError) as error:
        return encode_failure(failure_of(error))
    except Exception as error:  # noqa: BLE001 - code of users, whose errors are differences like any other
        return encode_failure(ToolFailed(f'{type(error).__name__}: {error}'))
    return encode_result(known.tool_name, known.tool_call_id, result)


def _text_of(call: CallRecord) -> str:
    """Return the result of a call: its text, or JSON if it is more than a text."""
    parts: Any = canonical_message(ModelRequest(parts=result_parts(call)))['parts']
    match parts:
        case [{'content': str(text), 'outcome': 'success'}]:
            return text
        case _:
            return json.dumps(parts, indent=1, sort_keys=True, ensure_ascii=False)
