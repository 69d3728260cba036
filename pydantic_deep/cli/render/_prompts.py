"""Text of stored prompts."""

from __future__ import annotations

from typing import cast


def prompt_text(content: object) -> str:
    """Return the text of a stored prompt, with `[media]` for each media part."""
    if isinstance(content, str):
        return content
    pieces = cast('list[object]', content) if isinstance(content, list) else []
    return '\n'.join(each if isinstance(each, str) else '[media]' for each in pieces)
