"""Renderings: the events of a run, encoded for another protocol while it runs.

The protocols themselves are defined in `pydantic_deep.server.ui`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from pydantic_deep.dispatch import TurnEvent as Event

from ._server_run import ServerRun

_LOGGER = logging.getLogger('pydantic_deep')

Rendering: TypeAlias = Callable[[str, AsyncIterator[Any]], AsyncIterator[bytes]]
"""Encodes the events of the run with an id for another protocol. Its input iterator raises the error of a failed run."""

LOG_EPOCH: Final = 'log'
"""The epoch of a rendering of a log, which has the same chunks in every process."""


async def append_chunks(
    run: ServerRun, name: str, chunks: AsyncIterator[bytes], failure: Callable[[], BaseException | None] = lambda: None
) -> None:
    """Append the chunks of a rendering to its log, and close the log.

    Args:
        run: The run, which has the log.
        name: The name of the rendering.
        chunks: The chunks.
        failure: Returns the error of the run, which the chunks may raise again.
    """
    log = run.renderings[name]
    try:
        async for chunk in chunks:
            log.append(chunk)
    except Exception:  # outermost boundary: a rendering is not part of the run
        if failure() is None:
            _LOGGER.exception('The rendering %r of the run %s failed', name, run.id)
    finally:
        log.close()


class RenderingTask:
    """A task that renders the events of a run into a log. Its failure does not affect the run.

    The queue in memory is unbounded: rendering does no I/O, so the queue stays short.
    """

    def __init__(self) -> None:
        streams = anyio.create_memory_object_stream[Event](math.inf)
        self._sender: MemoryObjectSendStream[Event] = streams[0]
        self._receiver: MemoryObjectReceiveStream[Event] = streams[1]
        self._failure: BaseException | None = None

    @classmethod
    def start(cls, group: TaskGroup, name: str, run: ServerRun, render: Rendering) -> RenderingTask:
        """Start to render into the log with that name."""
        task = cls()
        group.start_soon(task._render, name, run, render)
        return task

    def push(self, event: Event) -> None:
        """Queue an event."""
        with suppress(anyio.BrokenResourceError):  # the rendering has failed
            self._sender.send_nowait(event)

    def end(self, failure: BaseException | None) -> None:
        """Close the queue after the end of the run, with its error if it failed."""
        self._failure = failure
        self._sender.close()

    async def _render(self, name: str, run: ServerRun, render: Rendering) -> None:
        try:
            await append_chunks(run, name, render(run.id, self._events()), lambda: self._failure)
        finally:
            self._receiver.close()

    async def _events(self) -> AsyncGenerator[Event]:
        async for event in self._receiver:
            yield event
        if self._failure is not None:
            raise self._failure
