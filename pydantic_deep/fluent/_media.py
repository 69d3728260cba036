"""The bytes of media in messages that are JSON: within them as base64, or beside them by digest. Pure.

What only looks like media, such as in the result of a tool, stays what it is.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import cast

from pydantic import JsonValue

from pydantic_deep.store._media import LITERAL, REFERENCE, decode_media, escape_media, map_media
from pydantic_deep_backends import digest_of

Media = dict[str, JsonValue]
"""Binary content as JSON: `kind` is `binary`, `data` a text."""


class MissingMediaError(LookupError):
    """The bytes of media are not at hand. Whoever reads the message says in which.

    Attributes:
        digest: Of the bytes.
    """

    def __init__(self, digest: str) -> None:
        self.digest = digest
        super().__init__(digest)


def escape(value: JsonValue) -> JsonValue:
    """Return a value with its media in it, and nothing else in it that could be taken for a digest."""
    return map_media(value, escape_media)


def externalize(value: JsonValue, bytes_by_digest: dict[str, bytes]) -> JsonValue:
    """Return a value with digests for its media, and add their bytes to a mapping."""

    def change(media: Media) -> Media:
        text = cast('str', media['data'])
        data = decode_media(text)
        if data is None:
            return escape_media(media)
        digest = digest_of(data)
        bytes_by_digest[digest] = data
        return {**media, 'data': REFERENCE + digest}

    return map_media(value, change)


def inline(value: JsonValue, bytes_by_digest: Mapping[str, bytes]) -> JsonValue:
    """Return the value that `escape` or `externalize` was given.

    Raises:
        MissingMediaError: The mapping has no bytes of a digest, or others.
    """

    def change(media: Media) -> Media:
        text = cast('str', media['data'])
        if not text.startswith(REFERENCE):
            return {**media, 'data': text.removeprefix(LITERAL)}
        digest = text.removeprefix(REFERENCE)
        data = bytes_by_digest.get(digest)
        if data is None or digest_of(data) != digest:
            raise MissingMediaError(digest)
        return {**media, 'data': base64.urlsafe_b64encode(data).decode()}

    return map_media(value, change)
