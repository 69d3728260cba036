"""`Proxy`: a TCP proxy in front of a PostgreSQL server that drops connections at chosen moments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urlsplit

Moment = Literal[
    'never', 'before COMMIT', 'after COMMIT', 'after the answer', 'at the answer', 'behind the answer', 'always'
]

COMMIT = b'Q\0\0\0\x0bCOMMIT\0'
"""The message, as a framed query of the PostgreSQL protocol."""


class Proxy:
    """Drops the connection once, at the moment `cut`; then `after_cut` is the moment."""

    def __init__(self, url: str) -> None:
        self._socket = Path(parse_qs(urlsplit(url).query)['host'][0]) / '.s.PGSQL.5432'
        self._path = urlsplit(url).path
        self._ways: set[asyncio.StreamWriter] = set()
        self.url = ''
        self.cut: Moment = 'never'
        self.after_cut: Moment = 'never'

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Proxy]:
        server = await asyncio.start_server(self._connected, '127.0.0.1', 0)
        self.url = f'postgresql://postgres@127.0.0.1:{server.sockets[0].getsockname()[1]}{self._path}'
        async with server:
            yield self
            self.cut = 'always'  # the server waits for all connections, those of a failed test included
            self.cut_all()

    def cut_all(self) -> None:
        """Drop all open connections."""
        for writer in self._ways:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut == 'always':
            writer.transport.abort()
            return
        self._ways.add(writer)
        below, above = await asyncio.open_unix_connection(self._socket)
        self._ways.add(above)
        answers = asyncio.create_task(self._pass_on(below, writer))
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if COMMIT in data and self.cut == 'before COMMIT':
                    self.cut = self.after_cut
                    break
                if COMMIT in data and self.cut == 'after COMMIT':
                    self.cut = 'at the answer'
                if COMMIT in data and self.cut == 'after the answer':
                    self.cut = 'behind the answer'
                above.write(data)
        above.transport.abort()
        writer.transport.abort()
        await asyncio.wait([answers])

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self.cut == 'at the answer':
                    self.cut = self.after_cut
                    break
                writer.write(data)
                if self.cut == 'behind the answer':
                    self.cut = self.after_cut
                    writer.close()
                    return
        writer.transport.abort()
