"""Offload large tool results: the preview for the model, and the path of the complete result."""

from __future__ import annotations

import re

from pydantic_ai.messages import ToolReturnPart

from pydantic_deep_backends import StateBackend
from pydantic_deep_backends.errors import FileChangedError
from pydantic_deep_backends.snapshots import digest_of

from ._files import OFFLOAD, Files

HEAD_CHARS = 2_000
"""Number of characters shown from the beginning, which usually introduces a result."""

TAIL_CHARS = 1_000
"""Number of characters shown from the end, which usually has the outcome of a command."""

_UNSAFE = re.compile(r'[^A-Za-z0-9_-]')

_MAX_NAME_CHARS = 100
"""Maximum length of a file name derived from a tool call id, in characters. Provider ids have about 30."""


def text_of(result: object) -> str | None:
    """Return the text that a model receives for a tool result, beside images and other files: the string itself, the
    JSON, or, if there are files, one after another.

    Return `None` if the result cannot be long, or cannot be serialized, which pydantic-ai reports itself. Serializing
    a small structure takes about 3 µs, so no estimate of the size is made first.
    """
    if isinstance(result, str):
        return result
    if result is None or isinstance(result, (int, float)):
        return None
    part = ToolReturnPart(tool_name='', content=result, tool_call_id='')
    try:
        if not part.files:
            return part.model_response_str()
        return '\n'.join(item for item in part.content_items(mode='str') if isinstance(item, str))
    except ValueError:
        return None


def with_text(text: str, result: object) -> object:
    """Return the result of a tool with another text. Its images and other files follow the text."""
    files = ToolReturnPart(tool_name='', content=result, tool_call_id='').files
    return [text, *files] if files else text


def render_preview(text: str, path: str) -> str:
    """Return the head and tail of a text, with the path of the complete text in between."""
    left_out = len(text) - HEAD_CHARS - TAIL_CHARS
    notice = f'[{left_out:,} of {len(text):,} characters left out. All are in {path}: use read_file or grep on it]'
    return f'{text[:HEAD_CHARS]}\n{notice}\n{text[-TAIL_CHARS:]}'


def name_of_call(tool_call_id: str) -> str:
    """Return a valid file name for a tool call id."""
    return _UNSAFE.sub('_', tool_call_id)[:_MAX_NAME_CHARS] or '_'


async def store_text(files: Files, tool_call_id: str, text: str) -> str:
    """Store a text under `/offload` and return its path, without overwriting a different text.

    Tool call ids may repeat between runs, and the user may have a file of that path. In both cases a number is
    appended.
    """
    data = text.encode()
    path = base = f'{OFFLOAD}/{name_of_call(tool_call_id)}'
    number = 1
    while await files.is_taken(path) or not await _claim(files.run.offload, path, data):
        number += 1
        path = f'{base}-{number}'
    return path


async def _claim(offload: StateBackend, path: str, data: bytes) -> bool:
    """Return whether the path contains this data, after writing it if the path was free."""
    try:
        await offload.compare_and_swap(path, data, expected=None)
    except FileChangedError as error:
        return error.actual == digest_of(data)
    return True
