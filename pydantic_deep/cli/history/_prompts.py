"""What a person said, as it is stored."""

from __future__ import annotations

from typing import cast


def prompt_text(content: object) -> str:
    """Return the text of a prompt as it is stored; of media, `[media]`."""
    if isinstance(content, str):
        return content
    pieces = cast('list[object]', content) if isinstance(content, list) else []
    return '\n'.join(each if isinstance(each, str) else '[media]' for each in pieces)
