"""Replace media in results of servers that models cannot see. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from pydantic_ai import BinaryContent, ToolReturn

from pydantic_deep._messages.media import MAX_MEDIA_BYTES, MEDIA_TYPES


def with_visible_media(result: object) -> object:
    """Return a result with a sentence in place of each file that models cannot see.

    The file would end this run, and every later one of the conversation, as providers refuse it.
    """
    match result:
        case ToolReturn():
            returned = cast('ToolReturn[Any]', result)
            return replace(returned, return_value=with_visible_media(cast('object', returned.return_value)))
        case list():
            return [with_visible_media(part) for part in cast('list[object]', result)]
        case BinaryContent() if result.media_type not in MEDIA_TYPES or len(result.data) > MAX_MEDIA_BYTES:
            return (
                f'{result.media_type}, {len(result.data):,} bytes. Only images and PDFs of at most {MAX_MEDIA_BYTES:,} '
                'bytes can be shown.'
            )
        case _:
            return result
