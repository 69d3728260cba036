"""Lost connections: one task connects again, and operations wait for it, each for a limited time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import asyncpg

from ._errors import LOST, error_text

_LOGGER = logging.getLogger('pydantic_deep')

_MIN_PAUSE_SECONDS: Final = 0.02

_MAX_PAUSE_SECONDS: Final = 0.5
"""Maximum pause between two attempts. It is far below the time that owners have to take their locks again."""


class Reconnection:
    """Whether the server is connected, and the task that connects again.

    Args:
        connect: Connects, and takes the lock of the owner again.
        url: The URL of the store, without the password.
    """

    def __init__(self, connect: Callable[[], Awaitable[None]], url: str) -> None:
        self._connect = connect
        self._url = url
        self._connected = asyncio.Event()
        self._connected.set()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.wait_seconds: float = 0
        """How long operations wait for the server after a loss."""
        self.lost_at = self.connected_at = float('-inf')
        """When the connection was lost, and connected again, for the last time."""

    @property
    def is_connected(self) -> bool:
        """Whether no connection is known to be lost."""
        return self._connected.is_set()

    def begin(self) -> None:
        """Connect again in the background, unless the task does so already. Called when a connection is lost."""
        if self.is_connected and not self._is_closed:
            self._connected.clear()
            self.lost_at = asyncio.get_running_loop().time()
            self._task = asyncio.create_task(self._run())

    async def wait(self, deadline: float) -> None:
        """Wait until the server is connected, or the deadline has passed."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._connected.wait()

    def close(self) -> None:
        """End the task, and the waits of all operations."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        self._connected.set()

    async def _run(self) -> None:
        """Connect, until it succeeds or the server refuses us; operations then meet the refusal themselves."""
        pause = _MIN_PAUSE_SECONDS
        try:
            while True:
                try:
                    await self._connect()
                except LOST as error:
                    if pause == _MIN_PAUSE_SECONDS and self.wait_seconds:
                        _LOGGER.warning(
                            'The store %r is unreachable, and is waited for (%g seconds at most): %s',
                            *(self._url, self.wait_seconds, error_text(error)),
                        )
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _MAX_PAUSE_SECONDS)
                else:
                    break
        except asyncpg.PostgresError as error:
            _LOGGER.warning('The store %r refuses connections: %s', self._url, error_text(error))
        finally:
            self.connected_at = asyncio.get_running_loop().time()
            self._connected.set()


class Wait:
    """The wait of one operation for the server. It ends `wait_seconds` after the connection was lost."""

    def __init__(self, reconnection: Reconnection) -> None:
        self._reconnection = reconnection
        self._was_connected = True
        self._deadline: float | None = None
        self._losses = 0

    async def until_connected(self) -> None:
        """Wait for the server, if its connection is known to be lost."""
        self._was_connected = self._reconnection.is_connected
        if not self._was_connected:
            await self._reconnection.wait(self._end())

    async def allows_repetition(self) -> bool:
        """Return whether to repeat the operation after it has lost its connection, after a pause if it lost several.

        An operation that found an old connection lost is repeated at once, even without a wait.
        """
        self._losses += 1
        if asyncio.get_running_loop().time() >= self._end():
            return self._was_connected and self._losses == 1
        if self._losses > 1:
            await asyncio.sleep(min(_MIN_PAUSE_SECONDS * 2**self._losses, _MAX_PAUSE_SECONDS))
        return True

    def _end(self) -> float:
        if self._deadline is None:
            self._deadline = self._reconnection.lost_at + self._reconnection.wait_seconds
        return self._deadline
