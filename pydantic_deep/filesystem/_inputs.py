"""Large inputs of the user: kept as large results are, once, before a model is sent them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    StructuredContent,
    TextContent,
    UserContent,
    UserPromptPart,
)

from ._files import Files
from ._offload import escape_halves, keep, render_preview

_NAME = 'prompt'
"""The file name of an input; the next one of another text gets a number."""


def last_prompts(history: Sequence[ModelMessage]) -> list[UserPromptPart]:
    """Return the prompts at the end of a history that a run goes on with: they may stand in what it sends first.

    They are those without an answer, and those of the last one, which a run may be to bring to its end.
    """
    found: list[UserPromptPart] = []
    for index in range(len(history) - 1, -1, -1):
        message = history[index]
        if isinstance(message, ModelRequest):
            found += [part for part in message.parts if isinstance(part, UserPromptPart)]
        elif index < len(history) - 1:
            break
    return found


async def shorten_prompts(
    files: Files, message: ModelMessage, limit: int, *, known: Sequence[UserPromptPart], prompt: object
) -> None:
    """Leave of each long text of the user's prompts in a new request the head and the tail, for good.

    The request itself is changed: whoever holds it, as pydantic-ai does, has what is sent. What a tool says to the model
    as if the user did (`ToolReturn.content`) stays whole.

    Args:
        files: Where the whole texts are kept.
        message: The request that is about to be sent.
        limit: The longest text that stays.
        known: Prompts of the history, which stay as they were sent.
        prompt: What the run was asked.
    """
    if not isinstance(message, ModelRequest):
        return
    has_results = any(part.part_kind == 'tool-return' for part in message.parts)
    parts = list(message.parts)
    for index, part in enumerate(message.parts):
        if isinstance(part, UserPromptPart) and part not in known and (not has_results or part.content == prompt):
            parts[index] = await _shorten(files, part, limit)
    if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
        message.parts = parts


async def _shorten(files: Files, part: UserPromptPart, limit: int) -> UserPromptPart:
    if isinstance(part.content, str):
        content = await _fit(files, part.content, limit)
        return part if content is part.content else replace(part, content=content)
    items = [await _fit_item(files, item, limit) for item in part.content]
    is_same = all(new is old for new, old in zip(items, part.content, strict=True))
    return part if is_same else replace(part, content=items)


async def _fit_item(files: Files, item: UserContent, limit: int) -> UserContent:
    if isinstance(item, str):
        return await _fit(files, item, limit)
    if isinstance(item, StructuredContent) or not isinstance(item, TextContent):  # programs read what is structured
        return item
    content = await _fit(files, item.content, limit)
    return item if content is item.content else replace(item, content=content)


async def _fit(files: Files, text: str, limit: int) -> str:
    """Return a text, or of one too long the head and the tail and where it is kept."""
    if len(text) <= limit:
        return text
    whole = escape_halves(text)
    return render_preview(whole, await keep(files, _NAME, whole))
