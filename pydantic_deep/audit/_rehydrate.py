"""`rehydrate`: restore the message history of an audit record."""

from __future__ import annotations

import json

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, repair_messages

from pydantic_deep._messages.media import inline_body
from pydantic_deep.store import Store

from ._types import AuditRecord
from .errors import NoHistoryError


async def rehydrate(record: AuditRecord, store: Store | None = None) -> list[ModelMessage]:
    """Return the message history at the end of a run, for use as `message_history`, including tool calls and results.

    Secrets are replaced by `[redacted: kind]` in a record, but not in a store. Calls without a result get one that says
    that they were interrupted, unless they are pending approval and may still be answered.

    Args:
        record: The record, from any repository.
        store: The store with the version, if the record refers to one.

    Raises:
        NoHistoryError: The history is in a version, but `store` is missing.
        VersionNotFoundError: The version was deleted.
    """
    stored = record.messages if record.version_id is None else await _stored(record.version_id, store)
    messages = ModelMessagesTypeAdapter.validate_json(json.dumps(stored))  # validating JSON decodes base64 to bytes
    is_open = bool(messages) and isinstance(messages[-1], ModelResponse) and bool(messages[-1].tool_calls)
    return repair_messages(messages) if is_open and record.status != 'awaiting_approval' else messages


async def _stored(version_id: str, store: Store | None) -> list[JsonValue]:
    if store is None:
        raise NoHistoryError(version_id)
    version = await store.version(version_id)

    records = await store.messages(version.branch_id, version.message_count)
    return [json.loads(await inline_body(record.body, store.read_asset)) for record in records]
