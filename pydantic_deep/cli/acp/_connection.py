"""The streams of the protocol: one JSON document a line, on standard input and output, and nothing else there."""

from __future__ import annotations

import asyncio
import json
import selectors
from contextlib import suppress
from typing import Any, BinaryIO, Final, Protocol, cast

import anyio
from acp import Agent
from acp.core import AgentSideConnection
from typing_extensions import TypeIs

from pydantic_deep.errors import DeepAgentError

from ._agent import INTERNAL_ERROR, EditorAgent

MAX_LINE_BYTES: Final = 50_000_000
"""Maximum length of a message in bytes. An image of 5 MB has 7 MB in base64; a prompt can have several."""

CLOSE_SECONDS: Final = 5
"""How long requests may take after the end of the input, apart from those of turns, which are stopped."""

PARSE_ERROR: Final = {'code': -32700, 'message': 'The line is no JSON document. Send one JSON-RPC message a line.'}
INVALID_REQUEST: Final = {
    'code': -32600,
    'message': 'The message is no JSON-RPC message: an object with the text `method`, or the number `id` of a request.',
}


class NoPipeError(DeepAgentError, ValueError):
    """Standard input or output is a file."""


class Writer(Protocol):
    """The part of `asyncio.StreamWriter` that is used."""

    def write(self, data: bytes) -> object:
        """Append to the output."""
        ...

    async def drain(self) -> None:
        """Wait until the reader accepts more."""
        ...

    def close(self) -> None:
        """Close the output."""
        ...


class LineTransport:
    """The messages of a connection. A line that is no message is answered with an error, and does not end it."""

    def __init__(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        """Use streams, which remain the caller's."""
        self._reader = reader
        self._writer = writer
        self._unanswered = 0
        self._answered = asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message. The order of lines is that of the calls."""
        if 'method' in message:
            await self._write(message)
            return
        try:
            with suppress(ConnectionError):  # nobody waits for the answer any more
                await self._write(message)
        finally:
            self._unanswered -= 1
            self._answered.set()

    async def wait_for_answers(self) -> None:
        """Wait until each request that was received has been answered."""
        while self._unanswered > 0:
            self._answered.clear()
            await self._answered.wait()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; `None` at the end of the input."""
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:  # a line longer than the limit, whose beginning is dropped
                await self._refuse(PARSE_ERROR)
                continue
            if not line:
                return None
            try:
                message: object = json.loads(line)
            except (ValueError, RecursionError):
                if line.strip():
                    await self._refuse(PARSE_ERROR)
                continue
            if _is_message(message):
                self._unanswered += 'method' in message and 'id' in message
                return message
            await self._refuse(INVALID_REQUEST)

    async def close(self) -> None:
        """Close the output."""
        self._writer.close()

    async def _refuse(self, error: dict[str, Any]) -> None:
        await self._write({'jsonrpc': '2.0', 'id': None, 'error': error})

    async def _write(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message, separators=(',', ':'), default=str).encode() + b'\n')
        await self._writer.drain()


def _is_message(document: object) -> TypeIs[dict[str, Any]]:
    """Return whether a document is a request, a notification or a response."""
    if not isinstance(document, dict):
        return False
    message = cast('dict[str, object]', document)
    id, method = message.get('id'), message.get('method')
    return isinstance(id, (int, str, type(None))) and ('id' in message if method is None else isinstance(method, str))


async def serve(agent: EditorAgent, transport: LineTransport) -> None:
    """Answer the messages of an editor until it closes the connection. Then its turns are stopped, and requests that came
    before are answered, since a script may write them all and close its output at once.
    """
    methods = cast(
        'Agent', agent
    )  # the protocol class also lists optional methods; the connection reports them as missing
    connection = AgentSideConnection(methods, transport, listening=False, use_unstable_protocol=True)
    try:
        await connection.listen()
        await agent.close()
        with anyio.move_on_after(CLOSE_SECONDS):
            await transport.wait_for_answers()
    finally:
        with anyio.CancelScope(shield=True):
            await agent.close()
            await connection.close()


async def refuse(transport: LineTransport, sentence: str) -> None:
    """Answer every request with an error until the editor closes the connection, because the agent cannot start."""
    while (message := await transport.receive()) is not None:
        if message.get('id') is not None:
            error = {'code': INTERNAL_ERROR, 'message': sentence}
            await transport.send({'jsonrpc': '2.0', 'id': message['id'], 'error': error})
    await transport.close()


async def open_pipes(incoming: BinaryIO, outgoing: BinaryIO) -> LineTransport:
    """Return the transport for two pipes, sockets or terminals.

    Raises:
        NoPipeError: One of them is a file, or the input is `/dev/null`.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    try:
        with selectors.DefaultSelector() as selector:  # asyncio accepts `/dev/null`, and then waits forever
            selector.register(incoming, selectors.EVENT_READ)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, outgoing)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), incoming)
    except (OSError, ValueError) as error:
        raise NoPipeError(
            f'Standard input and output are no pipes ({error}). Let an editor start this command: it opens them.'
        ) from None
    return LineTransport(reader, asyncio.StreamWriter(transport, protocol, None, loop))
