"""Media of messages as JSON: inline as base64, or stored separately by digest. Pure.

Binary content is an object with `kind` `binary` and a text as `data`. Data that only resembles media, for example in a
tool result, is restored unchanged.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import JsonValue

from pydantic_deep_backends import digest_of

MEDIA_TYPES: Final = ('image/png', 'image/jpeg', 'image/gif', 'image/webp', 'application/pdf')
"""The types of files that models can see in a result. Of others, the classes of pydantic-ai for providers raise errors."""

MAX_MEDIA_BYTES: Final = 5_000_000
"""Maximum size of an image or PDF in a result, in bytes: the limit of Anthropic's API for images."""

ReadAsset = Callable[[str], Awaitable[bytes]]
"""Returns the content of media by digest."""

_BINARY = b'"kind":"binary"'
"""Part of the JSON of every message with media."""

_REFERENCE = 'asset:'
"""Prefix of a digest that replaces base64, which contains no colon."""

_LITERAL = 'literal:'
"""Prefix that marks data which is not base64 and could be mistaken for a reference."""


@dataclass(frozen=True, kw_only=True)
class Media:
    """Media of a message."""

    digest: str
    """Digest of the bytes, as `digest_of` computes it."""
    data: bytes
    """The content, decoded from base64."""
    media_type: str | None
    """The media type in the message, such as `image/png`; `None` if it has none."""


def externalize_media(value: JsonValue) -> tuple[JsonValue, list[Media]]:
    """Return a value with its media replaced by digests, and the media in order."""
    media_list: list[Media] = []

    def externalize(content: dict[str, Any]) -> dict[str, Any]:
        data = _decode(content['data'])
        if data is None:  # a tool result may have any shape
            return _escape(content)
        media_type = content.get('media_type')
        media = Media(digest=digest_of(data), data=data, media_type=media_type if isinstance(media_type, str) else None)
        media_list.append(media)
        return {**content, 'data': _REFERENCE + media.digest}

    return _map_media(value, externalize), media_list


def escape_media(value: JsonValue) -> JsonValue:
    """Return a value with inline media, in which no other data can be mistaken for a reference."""
    return _map_media(value, _escape)


def media_digests(value: JsonValue) -> set[str]:
    """Return the digests in a value that `externalize_media` returned."""
    digests: set[str] = set()

    def note(content: dict[str, Any]) -> dict[str, Any]:
        if content['data'].startswith(_REFERENCE):
            digests.add(content['data'].removeprefix(_REFERENCE))
        return content

    _map_media(value, note)
    return digests


def inline_media(value: JsonValue, data_by_digest: Mapping[str, bytes]) -> JsonValue:
    """Return the value that `externalize_media` or `escape_media` was called with.

    Raises:
        KeyError: The mapping lacks one of `media_digests`.
    """

    def inline(content: dict[str, Any]) -> dict[str, Any]:
        text: str = content['data']
        if not text.startswith(_REFERENCE):
            return {**content, 'data': text.removeprefix(_LITERAL)}
        data = data_by_digest[text.removeprefix(_REFERENCE)]
        return {**content, 'data': base64.urlsafe_b64encode(data).decode()}

    return _map_media(value, inline)


def externalize_body(body: bytes) -> tuple[bytes, list[Media]]:
    """Return the JSON of a message with digests in the place of media, and the media."""
    if _BINARY not in body:
        return body, []
    document, media = externalize_media(json.loads(body))
    return _dump(document), media


async def inline_body(body: bytes, read_asset: ReadAsset) -> bytes:
    """Return the JSON of a message that `externalize_body` was called with.

    Raises:
        AssetNotFoundError: `read_asset` raised it for media that no longer exist.
    """
    if _BINARY not in body:
        return body
    document: JsonValue = json.loads(body)
    return _dump(
        inline_media(document, {digest: await read_asset(digest) for digest in sorted(media_digests(document))})
    )


def _dump(document: JsonValue) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(',', ':')).encode()


def _escape(content: dict[str, Any]) -> dict[str, Any]:
    text: str = content['data']
    return {**content, 'data': _LITERAL + text} if text.startswith((_REFERENCE, _LITERAL)) else content


def _decode(text: str) -> bytes | None:
    """Return the bytes of base64; `None` if encoding them again would not restore the text."""
    try:
        data = base64.urlsafe_b64decode(text)
    except ValueError:
        return None
    return data if base64.urlsafe_b64encode(data).decode() == text else None


def _map_media(value: JsonValue, change: Callable[[dict[str, Any]], dict[str, Any]]) -> JsonValue:
    """Return a value with each binary content in it changed."""
    if isinstance(value, list):
        return [_map_media(item, change) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get('kind') == 'binary' and isinstance(value.get('data'), str):
        return cast('JsonValue', change(value))
    return {key: _map_media(item, change) for key, item in value.items()}
