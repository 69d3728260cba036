"""Stored messages: one JSON document each, with media as separate assets."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from pydantic_deep._messages.media import ReadAsset, externalize_body, inline_body
from pydantic_deep._messages.message_json import dump_message
from pydantic_deep.store import MessageRecord, NewAsset, Store, VersionRecord


def encode_message(message: ModelMessage) -> tuple[bytes, list[NewAsset]]:
    """Return a message as JSON, and its media as assets that the JSON refers to by digest."""
    body, media = externalize_body(dump_message(message)[1:-1])
    return body, [
        NewAsset(digest=medium.digest, data=medium.data, media_type=medium.media_type or 'application/octet-stream')
        for medium in media
    ]


async def decode_messages(records: Sequence[MessageRecord], read_asset: ReadAsset) -> list[ModelMessage]:
    """Return the messages of records, with their media.

    Raises:
        AssetNotFoundError: The store does not have the media.
    """
    return await decode_bodies([record.body for record in records], read_asset)


async def decode_bodies(bodies: Sequence[bytes], read_asset: ReadAsset) -> list[ModelMessage]:
    """Return messages from their JSON bodies, as `decode_messages` does."""
    bodies = [await inline_body(body, read_asset) for body in bodies]
    return ModelMessagesTypeAdapter.validate_json(b'[%b]' % b','.join(bodies))


async def load_history(store: Store, record: VersionRecord) -> tuple[list[ModelMessage], list[str]]:
    """Return the messages of a version and their ids."""
    records = await store.messages(record.branch_id, record.message_count)
    return await decode_messages(records, store.read_asset), [record.id for record in records]
