"""Tool results in the ledger, encoded and decoded, so that finished calls are never repeated."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic_ai import ToolReturn
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from pydantic_deep._messages.deferred_metadata import DELEGATES
from pydantic_deep._messages.half_characters import join_halves
from pydantic_deep._messages.message_json import dump_message
from pydantic_deep.store import CallRecord

Effect: TypeAlias = Literal['read', 'write', 'external']
"""The effect of a call: none besides its result, changes to the files of the deps, or any side effect."""

Writes: TypeAlias = Literal['deps', 'file']
"""The extent of the changes of a call with the effect `write`: only the deps, or one file, which `SupportsWrittenFile`
predicts.
"""


class _Failure(BaseModel):
    """A call that failed with an exception that the model sees."""

    model_config = ConfigDict(defer_build=True)

    failure: Literal['ToolFailed', 'ModelRetry']
    message: str


def effect_of(tool_def: ToolDefinition) -> Effect:
    """Return the declared effect of a tool; `external` if it declares none."""
    effect = (tool_def.metadata or {}).get('effect')
    return cast('Effect', effect) if effect in ('read', 'write') else 'external'


def writes_of(tool_def: ToolDefinition) -> Writes | None:
    """Return the declared extent of the changes of a tool; `None` if it declares none."""
    writes = (tool_def.metadata or {}).get('writes')
    return writes if effect_of(tool_def) == 'write' and writes in ('deps', 'file') else None


def is_delegation(tool_def: ToolDefinition) -> bool:
    """Return whether calls of a tool may run another agent, which is recorded itself."""
    return bool((tool_def.metadata or {}).get(DELEGATES))


def parts_of(tool_name: str, tool_call_id: str, result: object) -> list[ModelRequestPart]:
    """Return the message parts with the result of a call."""
    returned = cast('ToolReturn[object]', result) if isinstance(result, ToolReturn) else ToolReturn(result)
    part = ToolReturnPart(
        tool_name=tool_name,
        content=returned.return_value,
        tool_call_id=tool_call_id,
        metadata=returned.metadata,
    )
    return [part] if returned.content is None else [part, UserPromptPart(content=returned.content)]


def encode_result(tool_name: str, tool_call_id: str, result: object) -> str:
    """Return the result of a call as JSON: its message parts with their metadata, and its tools."""
    tools = cast('ToolReturn[object]', result).tools if isinstance(result, ToolReturn) else None
    parts = parts_of(tool_name, tool_call_id, cast('object', result))
    message = dump_message(ModelRequest(parts=parts)).decode()
    return f'{{"returned":{message},"tools":{json.dumps(tools)}}}'


async def run_storable(execute: Callable[[], Awaitable[object]]) -> object:
    """Run a call, and return its result or raise its exception.

    Raises:
        ToolFailed: JSON cannot represent the metadata of the result or of the deferral, so no version could have it.
    """
    try:
        result: object = await execute()
    except (ApprovalRequired, CallDeferred) as asked:
        _check_metadata(asked.metadata)
        raise
    if isinstance(result, ToolReturn):
        _check_metadata(result.metadata)
    return cast('object', result)


def _check_metadata(metadata: object) -> None:
    try:
        dump_message(ModelRequest(parts=[ToolReturnPart('', '', tool_call_id='', metadata=metadata)]))
    except (ValueError, RecursionError) as error:
        raise ToolFailed(f'JSON cannot represent the metadata of this call, so it cannot be stored. {error}') from error


def with_deps(result: str, digest: str) -> str:
    """Return an encoded result with the digest of the deps state that the call left, until a version has that state."""
    return f'{result[:-1]},"deps":{json.dumps(digest)}}}'


def deps_of(result: str | None) -> str | None:
    """Return the digest of the deps state that a call left; `None` if the call did not change it."""
    return None if result is None else cast('str | None', json.loads(result).get('deps'))


def failure_of(error: ToolFailed | ModelRetry | ToolFailedError | ToolRetryError) -> ToolFailed | ModelRetry:
    """Return the exception that a tool raised, from the exception that hooks see."""
    match error:
        case ToolFailedError():
            return error.__cause__ if isinstance(error.__cause__, ToolFailed) else ToolFailed(str(error))
        case ToolRetryError():
            return error.__cause__ if isinstance(error.__cause__, ModelRetry) else ModelRetry(str(error))
        case _:
            return error


def encode_failure(error: ToolFailed | ModelRetry) -> str:
    """Return a failed call as JSON."""
    kind: Literal['ToolFailed', 'ModelRetry'] = 'ToolFailed' if isinstance(error, ToolFailed) else 'ModelRetry'
    return _Failure(failure=kind, message=join_halves(str(error))).model_dump_json()


def replay_result(text: str) -> object:
    """Return the result of a finished call, or raise its exception.

    Raises:
        ToolFailed, ModelRetry: The call failed with this exception.
    """
    document = cast('dict[str, JsonValue]', json.loads(text))
    if 'failure' in document:
        failure = _Failure.model_validate(document)
        raise (ToolFailed if failure.failure == 'ToolFailed' else ModelRetry)(failure.message)
    message = ModelMessagesTypeAdapter.validate_python(document['returned'])[0]
    part, *prompts = message.parts
    returned, tools = cast('ToolReturnPart', part), cast('list[str] | None', document['tools'])
    if not prompts and returned.metadata is None and tools is None:
        return returned.content  # not wrapped: hooks handle a `ToolReturn` differently
    return ToolReturn(
        return_value=returned.content,
        content=cast('UserPromptPart', prompts[0]).content if prompts else None,
        metadata=returned.metadata,
        tools=tools,
    )


def result_parts(call: CallRecord) -> list[ModelRequestPart]:
    """Return the message parts with the result of a finished call; empty if the ledger does not have it."""
    if call.result is None:
        return []
    try:
        return parts_of(call.tool_name, call.tool_call_id, replay_result(call.result))
    except (ToolFailed, ModelRetry) as error:
        outcome = 'failed' if isinstance(error, ToolFailed) else 'retried'
        return [ToolReturnPart(call.tool_name, error.message, call.tool_call_id, outcome=outcome)]


def result_of(part: ToolReturnPart) -> str:
    """Encode the result of a call from its message part."""
    if part.outcome == 'failed':
        return encode_failure(ToolFailed(part.model_response_str(wrap_if_error=False)))
    if part.outcome == 'retried':
        return encode_failure(ModelRetry(part.model_response_str(wrap_if_error=False)))
    return encode_result(
        part.tool_name, part.tool_call_id, ToolReturn(return_value=part.content, metadata=part.metadata)
    )


def is_complete_in_message(result: object) -> bool:
    """Return whether the message with the result of a call contains all of it, so that the ledger need not store it."""
    return not isinstance(result, ToolReturn) or (result.content is None and result.tools is None)
