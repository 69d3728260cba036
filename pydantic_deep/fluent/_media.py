"""The bytes of media in messages that are JSON: within them as base64, or beside them by digest. Pure.

What only looks like media, such as in the result of a tool, stays what it is.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Final, cast

from pydantic import JsonValue

from pydantic_deep_backends import digest_of

REFERENCE: Final = 'asset:'
"""What stands before a digest in the place of base64, which has no colon."""

_LITERAL: Final = 'literal:'
"""What stands before data that is no base64 and begins with one of these two words."""

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
    return _mapped(value, _escaped)


def externalize(value: JsonValue, bytes_by_digest: dict[str, bytes]) -> JsonValue:
    """Return a value with digests for its media, and add their bytes to a mapping."""

    def change(media: Media) -> Media:
        text = cast('str', media['data'])
        data = _decoded(text)
        if data is None:
            return _escaped(media)
        digest = digest_of(data)
        bytes_by_digest[digest] = data
        return {**media, 'data': REFERENCE + digest}

    return _mapped(value, change)


def inline(value: JsonValue, bytes_by_digest: Mapping[str, bytes]) -> JsonValue:
    """Return the value that `escape` or `externalize` was given.

    Raises:
        MissingMediaError: The mapping has no bytes of a digest, or others.
    """

    def change(media: Media) -> Media:
        text = cast('str', media['data'])
        if not text.startswith(REFERENCE):
            return {**media, 'data': text.removeprefix(_LITERAL)}
        digest = text.removeprefix(REFERENCE)
        data = bytes_by_digest.get(digest)
        if data is None or digest_of(data) != digest:
            raise MissingMediaError(digest)
        return {**media, 'data': base64.urlsafe_b64encode(data).decode()}

    return _mapped(value, change)


def _escaped(media: Media) -> Media:
    text = cast('str', media['data'])
    return {**media, 'data': _LITERAL + text} if text.startswith((REFERENCE, _LITERAL)) else media


def _decoded(text: str) -> bytes | None:
    """Return the bytes of base64; `None` for what is no base64, or would not be the same text again."""
    try:
        data = base64.urlsafe_b64decode(text)
    except ValueError:
        return None
    return data if base64.urlsafe_b64encode(data).decode() == text else None


def _mapped(value: JsonValue, change: Callable[[Media], Media]) -> JsonValue:
    """Return a value with each binary content in it changed; nothing else is."""
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get('kind') == 'binary' and isinstance(value.get('data'), str):
        return change(value)
    return {key: _mapped(item, change) for key, item in value.items()}
