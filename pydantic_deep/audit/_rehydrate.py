"""`rehydrate`: the conversation again, of the record of a run."""

from __future__ import annotations

import json

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, repair_messages

from pydantic_deep._messages.media import inline_body
from pydantic_deep.store import Store

from ._types import AuditRecord
from .errors import NoHistoryError


async def rehydrate(record: AuditRecord, store: Store | None = None) -> list[ModelMessage]:
    """Return the messages of a run and all before it, as `message_history` takes them: calls and their results too.

    Where a secret was, a record has `[redacted: kind]`; a store has what was said. Calls that a run which was cut off
    has left without a result are told to be so, unless they wait for a person: then they may be answered still.

    Args:
        record: The record, from whichever repository.
        store: What has the version, if the record is of one.

    Raises:
        NoHistoryError: The history is in a version, and there is no store.
        VersionNotFoundError: The version was deleted.
    """
    stored = record.messages if record.version_id is None else await _stored(record.version_id, store)
    messages = ModelMessagesTypeAdapter.validate_json(json.dumps(stored))  # as JSON: base64 becomes bytes again
    is_open = bool(messages) and isinstance(messages[-1], ModelResponse) and bool(messages[-1].tool_calls)
    return repair_messages(messages) if is_open and record.status != 'awaiting_approval' else messages


async def _stored(version_id: str, store: Store | None) -> list[JsonValue]:
    if store is None:
        raise NoHistoryError(version_id)
    version = await store.version(version_id)

    async def read(digest: str) -> bytes:
        return (await store.asset(digest)).data

    records = await store.messages(version.branch_id, version.message_count)
    return [json.loads(await inline_body(record.body, read)) for record in records]
