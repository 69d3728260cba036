"""Offload long texts of the user's prompt, once, before they are first sent to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic_ai.messages import ModelMessage, ModelRequest, StructuredContent, TextContent, UserContent, UserPromptPart

from pydantic_deep._messages.half_characters import join_halves

from ._files import Files
from ._offload import render_preview, store_text

_NAME = 'prompt'
"""The base file name of an offloaded text. Further texts get a number."""


def last_prompts(history: Sequence[ModelMessage]) -> list[UserPromptPart]:
    """Return the prompts at the end of a history with which a run starts, as its first request may contain them.

    These are the unanswered prompts and those of the last request, whose run may be resumed.
    """
    prompts: list[UserPromptPart] = []
    for index in range(len(history) - 1, -1, -1):
        message = history[index]
        if isinstance(message, ModelRequest):
            prompts += [part for part in message.parts if isinstance(part, UserPromptPart)]
        elif index < len(history) - 1:
            break
    return prompts


async def shorten_prompts(
    files: Files, message: ModelMessage, limit: int, *, known: Sequence[UserPromptPart], prompt: object
) -> None:
    """Shorten each long text of the user's prompts in a new request to its head and tail, permanently.

    The request object itself is changed, so that pydantic-ai stores what is sent. Content that a tool adds as a user
    message (`ToolReturn.content`) is not shortened.

    Args:
        files: The files of the run, which store the complete texts.
        message: The request that is about to be sent.
        limit: Maximum length of a text, in characters.
        known: Prompts of the history, which are not changed.
        prompt: The prompt of the run.
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
    if isinstance(item, StructuredContent) or not isinstance(item, TextContent):  # programs read structured content
        return item
    content = await _fit(files, item.content, limit)
    return item if content is item.content else replace(item, content=content)


async def _fit(files: Files, text: str, limit: int) -> str:
    """Return a text, shortened to head, tail and path if it is too long."""
    if len(text) <= limit:
        return text
    whole = join_halves(text)
    return render_preview(whole, await store_text(files, _NAME, whole))
