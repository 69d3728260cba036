"""Lines of standard input that are no messages: each is answered with an error, and the connection continues."""

from __future__ import annotations

from contextlib import suppress
from io import TextIOWrapper
from typing import Any, BinaryIO, Final

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


class _Text(TextIOWrapper):
    """Text in a file that remains open: a thread may still read from it at the end, and its owner closes it."""

    def close(self) -> None:
        with suppress(ValueError):
            self.detach()


class _Lines(_Text):
    """Text whose lines have a maximum length. The rest of a longer line is skipped, and its beginning is no JSON."""

    def readline(self, size: int = -1, /) -> str:
        line = super().readline(MAX_LINE_CHARS)
        if len(line) < MAX_LINE_CHARS or line.endswith('\n'):
            return line
        while (rest := super().readline(MAX_LINE_CHARS)) and not rest.endswith('\n'):
            pass
        return 'The line was too long.\n'


def text_files(incoming: BinaryIO, outgoing: BinaryIO) -> tuple[anyio.AsyncFile[str], anyio.AsyncFile[str]]:
    """Return the lines of a file, and a file for lines."""
    lines = _Lines(incoming, encoding='utf-8', errors='replace')
    return anyio.wrap_file(lines), anyio.wrap_file(_Text(outgoing, encoding='utf-8'))


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
