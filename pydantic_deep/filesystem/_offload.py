"""Large results of tools: what the model is shown of them, and under which path the whole is kept."""

from __future__ import annotations

import re

from pydantic_deep_backends import StateBackend
from pydantic_deep_backends.errors import FileChangedError
from pydantic_deep_backends.snapshots import digest_of

from ._files import OFFLOAD

HEAD_CHARS = 2_000
"""How much of the beginning is shown: what a result is about stands there."""

TAIL_CHARS = 1_000
"""How much of the end is shown: how a command or a page ended stands there."""

_UNSAFE = re.compile(r'[^A-Za-z0-9_-]')

_MAX_NAME_CHARS = 100
"""The longest file name that is made of a call's id; ids of providers have some 30 characters."""


def render_preview(text: str, path: str) -> str:
    """Return the head and the tail of a text, and between them where the whole is."""
    left_out = len(text) - HEAD_CHARS - TAIL_CHARS
    notice = f'[{left_out:,} of {len(text):,} characters left out. All are in {path}: use read_file or grep on it]'
    return f'{text[:HEAD_CHARS]}\n{notice}\n{text[-TAIL_CHARS:]}'


def name_of_call(tool_call_id: str) -> str:
    """Return a file name for a call's id, which may hold anything."""
    return _UNSAFE.sub('_', tool_call_id)[:_MAX_NAME_CHARS] or '_'


async def keep(offload: StateBackend, tool_call_id: str, text: str) -> str:
    """Write a text among the large results and return its path; what is there under another text stays.

    Ids of calls can repeat from run to run: the second text gets a number.
    """
    data = text.encode(errors='replace')
    path = base = f'{OFFLOAD}/{name_of_call(tool_call_id)}'
    number = 1
    while not await _claim(offload, path, data):
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
