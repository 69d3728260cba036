"""The streams: lines that are no messages, and output of others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pydantic_deep.cli.acp._connection import LineTransport, NoPipeError, open_pipes, refuse


class Sink:
    """Records what is written."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, data: bytes) -> None:
        self.lines.append(json.loads(data))

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ('line', 'code'),
    [
        (b'{', -32700),
        (b'\xff', -32700),
        (b'[' * 100_000, -32700),
        (b'x' * 70_000, -32700),
        (b'5', -32600),
        (b'[]', -32600),
        (b'{"id": []}', -32600),
        (b'{"method": 1, "id": 1}', -32600),
        (b'{"jsonrpc": "2.0"}', -32600),
    ],
)
async def test_a_line_that_is_no_message_is_answered_and_skipped(line: bytes, code: int) -> None:
    """Any line is answered with an error of JSON-RPC, and the next message is read."""
    reader, sink = asyncio.StreamReader(), Sink()
    transport = LineTransport(reader, sink)
    reader.feed_data(line + b'\n\n')
    received: list[object] = []

    async def receive() -> None:
        while (message := await transport.receive()) is not None:
            received.append(message)

    task = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    reader.feed_data(b'{"method": "x"}\n')
    reader.feed_eof()
    await task
    assert received == [{'method': 'x'}]
    assert {error['error']['code'] for error in sink.lines} == {code}


async def test_an_agent_that_cannot_start_answers_each_request_with_the_reason() -> None:
    """Requests are answered with an error, notifications are skipped, and the output is closed with the input."""
    reader, sink = asyncio.StreamReader(), Sink()
    reader.feed_data(b'{"method": "x"}\n{"method": "initialize", "id": "a"}\n')
    reader.feed_eof()
    await refuse(LineTransport(reader, sink), 'No store.')
    assert sink.lines == [{'jsonrpc': '2.0', 'id': 'a', 'error': {'code': -32603, 'message': 'No store.'}}]


async def test_files_are_refused(tmp_path: Path) -> None:
    """Standard input and output that are files are an error that says what to do."""
    path = tmp_path / 'file'
    path.touch()
    refused = pytest.raises(NoPipeError, match='Let an editor start this command')
    with path.open('rb') as incoming, path.open('wb') as outgoing, refused:
        await open_pipes(incoming, outgoing)
