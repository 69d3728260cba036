"""Lines of standard input that are no messages: each is answered with an error, and the connection continues."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError

MAX_LINE_CHARS: Final = 50_000_000
"""Maximum length of a message in characters. An image of 5 MB has 7 million in base64; a message can have several."""

NO_MESSAGE: Final = (
    f'The line is no JSON-RPC message of at most {MAX_LINE_CHARS:,} characters. Send one JSON document a line.'
)


class _Lines(TextIOWrapper):
    """Text whose lines have a maximum length. The rest of a longer line is skipped, and its beginning is no JSON."""

    def readline(self, size: int = -1, /) -> str:
        line = super().readline(MAX_LINE_CHARS)
        if len(line) < MAX_LINE_CHARS or line.endswith('\n'):
            return line
        while (rest := super().readline(MAX_LINE_CHARS)) and not rest.endswith('\n'):
            pass
        return 'The line was too long.\n'


@contextmanager
def open_input() -> Generator[anyio.AsyncFile[str]]:
    """Yield the lines of standard input. Meanwhile, other readers of it, such as child processes, find it empty."""
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):  # it is an object of a test, or closed
        lines = _Lines(cast('BinaryIO', sys.stdin.buffer), encoding='utf-8', errors='replace')
        yield anyio.wrap_file(lines)
        lines.detach()
        return
    kept = os.dup(descriptor)
    with Path(os.devnull).open('rb') as nothing:
        os.dup2(nothing.fileno(), descriptor)
    try:
        # A thread may still read from the copy at the end, so nothing closes it.
        yield anyio.wrap_file(_Lines(os.fdopen(kept, 'rb', closefd=False), encoding='utf-8', errors='replace'))
    finally:
        os.dup2(kept, descriptor)


async def refuse_others(
    read: ReadStream[SessionMessage | Exception],
    write: WriteStream[SessionMessage],
    forward: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    """Forward messages, and answer lines that are none, until the input ends."""
    error: Any = JSONRPCError(jsonrpc='2.0', id=None, error=ErrorData(code=PARSE_ERROR, message=NO_MESSAGE))
    async with read, forward:
        async for item in read:
            if isinstance(item, SessionMessage):
                await forward.send(item)
            else:
                await write.send(SessionMessage(error))
