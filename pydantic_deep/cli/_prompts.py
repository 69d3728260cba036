"""What a person said, found in messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart


def last_prompt(messages: Sequence[ModelMessage]) -> str:
    """Return what the person said last, its text; empty if nothing."""
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            for part in reversed(message.parts):
                if isinstance(part, UserPromptPart):
                    return text_of(part)
    return ''


def text_of_json(content: object) -> str:
    """Return the text of a prompt as it is stored."""
    if isinstance(content, str):
        return content
    pieces = cast('list[object]', content) if isinstance(content, list) else []
    return '\n'.join(each if isinstance(each, str) else '[media]' for each in pieces)


def text_of(part: UserPromptPart) -> str:
    """Return the text of a prompt; of media, `[media]`."""
    if isinstance(part.content, str):
        return part.content
    return '\n'.join(each if isinstance(each, str) else '[media]' for each in part.content)
