"""Large results of tools: what the model is shown of them, and under which path the whole is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic_ai.messages import ToolReturnPart

from pydantic_deep_backends import StateBackend
from pydantic_deep_backends.errors import FileChangedError
from pydantic_deep_backends.snapshots import digest_of

from ._files import OFFLOAD, Files

HEAD_CHARS = 2_000
"""How much of the beginning is shown: what a result is about stands there."""

TAIL_CHARS = 1_000
"""How much of the end is shown: how a command or a page ended stands there."""

_UNSAFE = re.compile(r'[^A-Za-z0-9_-]')

_MAX_NAME_CHARS = 100
"""The longest file name that is made of a call's id; ids of providers have some 30 characters."""


def text_of(result: object) -> str | None:
    """Return the text that a model is sent for the result of a tool: itself, or its JSON.

    `None` if it holds images or other files, which are no text, if it cannot be long, or if it cannot be sent, which
    pydantic-ai says itself. A small structure takes some 3 µs, so that it is not worth to guess its size first.
    """
    if isinstance(result, str):
        return result
    if result is None or isinstance(result, (int, float, Iterator)):  # an iterator could be read only once
        return None
    part = ToolReturnPart(tool_name='', content=result, tool_call_id='')
    if part.files:
        return None
    try:
        return part.model_response_str()
    except ValueError:
        return None


def escape_halves(text: str) -> str:
    r"""Return a text with each half of a character written out (`\ud800`): no JSON and no request can hold one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors='backslashreplace').decode()
    return text


def render_preview(text: str, path: str) -> str:
    """Return the head and the tail of a text, and between them where the whole is."""
    left_out = len(text) - HEAD_CHARS - TAIL_CHARS
    notice = f'[{left_out:,} of {len(text):,} characters left out. All are in {path}: use read_file or grep on it]'
    return f'{text[:HEAD_CHARS]}\n{notice}\n{text[-TAIL_CHARS:]}'


def name_of_call(tool_call_id: str) -> str:
    """Return a file name for a call's id, which may hold anything."""
    return _UNSAFE.sub('_', tool_call_id)[:_MAX_NAME_CHARS] or '_'


async def keep(files: Files, tool_call_id: str, text: str) -> str:
    """Write a text among the large results and return its path; what is there under another text stays.

    Ids of calls can repeat from run to run, and the user can have a file of that name: then the text gets a number.
    """
    data = text.encode()
    path = base = f'{OFFLOAD}/{name_of_call(tool_call_id)}'
    number = 1
    while await files.is_taken(path) or not await _claim(files.run.offload, path, data):
        number += 1
        path = f'{base}-{number}'
    return path


async def _claim(offload: StateBackend, path: str, data: bytes) -> bool:
    """Return whether the path now holds the data."""
    try:
        await offload.compare_and_swap(path, data, expected=None)
    except FileChangedError as error:
        return error.actual == digest_of(data)
    return True
