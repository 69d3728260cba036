"""Bodies of messages without the bytes of media: those are assets, and the JSON names them by digest. Pure JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from typing import cast

from pydantic import JsonValue

from pydantic_deep_backends import digest_of

from .records import NewAsset

_BINARY = b'"kind":"binary"'
"""What the JSON of a message has in it if there may be media in it."""

REFERENCE = 'asset:'
"""What stands before a digest in the place of base64, which has no colon."""

LITERAL = 'literal:'
"""What stands before data that is no base64, because it only looks like media, and would be taken for a reference."""

ReadAsset = Callable[[str], Awaitable[bytes]]
"""Returns the contents of an asset by its digest."""


def externalize_media(body: bytes) -> tuple[bytes, list[NewAsset]]:
    """Return the JSON of a message with its media by digest, and the media."""
    if _BINARY not in body:
        return body, []
    assets: list[NewAsset] = []
    document = map_media(json.loads(body), lambda media: _externalize(media, assets))
    return json.dumps(document, ensure_ascii=False, separators=(',', ':')).encode(), assets


async def inline_media(body: bytes, read_asset: ReadAsset) -> bytes:
    """Return the JSON of a message with its media in it again.

    Raises:
        AssetNotFoundError: Media are gone.
    """
    if _BINARY not in body:
        return body
    document: JsonValue = json.loads(body)
    wanted: set[str] = set()

    def note(media: dict[str, JsonValue]) -> dict[str, JsonValue]:
        data = cast('str', media['data'])
        if data.startswith(REFERENCE):
            wanted.add(data)
        return media

    map_media(document, note)
    data_by_reference = {
        reference: base64.urlsafe_b64encode(await read_asset(reference.removeprefix(REFERENCE))).decode()
        for reference in sorted(wanted)
    }

    def inline(media: dict[str, JsonValue]) -> dict[str, JsonValue]:
        data = cast('str', media['data'])
        return {**media, 'data': data_by_reference.get(data, data.removeprefix(LITERAL))}

    return json.dumps(map_media(document, inline), ensure_ascii=False, separators=(',', ':')).encode()


def _externalize(media: dict[str, JsonValue], assets: list[NewAsset]) -> dict[str, JsonValue]:
    data = decode_media(cast('str', media['data']))
    if data is None:  # the result of a tool may have any shape
        return escape_media(media)
    media_type = media.get('media_type')
    asset = NewAsset(digest=digest_of(data), data=data)
    if isinstance(media_type, str):
        asset = NewAsset(digest=asset.digest, data=data, media_type=media_type)
    assets.append(asset)
    return {**media, 'data': REFERENCE + asset.digest}


def escape_media(media: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return binary content whose data cannot be taken for a reference."""
    text = cast('str', media['data'])
    return {**media, 'data': LITERAL + text} if text.startswith((REFERENCE, LITERAL)) else media


def decode_media(text: str) -> bytes | None:
    """Return the bytes of base64; `None` for what is no base64, or would not be the same text again."""
    try:
        data = base64.urlsafe_b64decode(text)
    except ValueError:
        return None
    return data if base64.urlsafe_b64encode(data).decode() == text else None


def map_media(value: JsonValue, change: Callable[[dict[str, JsonValue]], dict[str, JsonValue]]) -> JsonValue:
    """Return a value with each binary content in it changed; nothing else is."""
    if isinstance(value, list):
        return [map_media(item, change) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get('kind') == 'binary' and isinstance(value.get('data'), str):
        return cast('JsonValue', change(value))
    return {key: map_media(item, change) for key, item in value.items()}
