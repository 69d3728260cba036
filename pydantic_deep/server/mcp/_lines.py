"""Lines of standard input: one that is no message is answered with an error, and the end waits for open answers."""

from __future__ import annotations

from contextlib import suppress
from io import TextIOWrapper
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCRequest, JSONRPCResponse

MAX_LINE_CHARS: Final = 50_000_000
"""Maximum length of a message in characters. An image of 5 MB has 7 million in base64; a message can have several."""

CLOSE_SECONDS: Final = 1
"""How long requests may take after the end of the input. Clients wait about two seconds for the end of a process."""

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


class Answers:
    """The output, which knows how many requests have no answer yet: a `WriteStream`."""

    def __init__(self, write: WriteStream[SessionMessage]) -> None:
        self._write = write
        self._open = 0
        self._answered = anyio.Event()

    def expect(self) -> None:
        """Count a request."""
        self._open += 1

    async def wait(self) -> None:
        """Wait until all requests have an answer."""
        while self._open:
            self._answered = anyio.Event()
            await self._answered.wait()

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message."""
        await self._write.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError) and item.message.id is not None:
            self._open -= 1
            self._answered.set()

    async def aclose(self) -> None:
        """Close the output."""
        await self._write.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


async def forward_messages(
    read: ReadStream[SessionMessage | Exception],
    write: Answers,
    forward: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    """Forward messages, and answer lines that are none, until the input ends and the requests before its end have had a
    moment to be answered, since a script may write them all and close its output at once.
    """
    error: Any = JSONRPCError(jsonrpc='2.0', id=None, error=ErrorData(code=PARSE_ERROR, message=NO_MESSAGE))
    async with read, forward:
        async for item in read:
            if isinstance(item, SessionMessage):
                if isinstance(item.message, JSONRPCRequest):
                    write.expect()
                await forward.send(item)
            else:
                await write.send(SessionMessage(error))
        with anyio.move_on_after(CLOSE_SECONDS):
            await write.wait()
