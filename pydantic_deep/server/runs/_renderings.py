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

from ._run_log import RunLog
from ._server_run import ServerRun

_LOGGER = logging.getLogger('pydantic_deep')

Rendering: TypeAlias = Callable[[str, AsyncIterator[Any]], AsyncIterator[bytes]]
"""Encodes the events of the run with an id for another protocol. Its input iterator raises the error of a failed run."""

LOG_EPOCH: Final = 'log'
"""The epoch of a rendering of a log, which has the same chunks in every process."""


def render_log(run: ServerRun, name: str, render: Rendering, events: AsyncIterator[Any], group: TaskGroup) -> None:
    """Start to render the log of a run, unless the run is rendered already.

    Args:
        run: The run.
        name: The name of the rendering.
        render: Encodes the events.
        events: The events in the log.
        group: The task group of the server.
    """
    if name not in run.renderings:
        run.renderings[name] = RunLog(epoch=LOG_EPOCH)
        group.start_soon(_append_chunks, run, name, render(run.id, events))


async def _append_chunks(
    run: ServerRun, name: str, chunks: AsyncIterator[bytes], failure: Callable[[], BaseException | None] = lambda: None
) -> None:
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
            await _append_chunks(run, name, render(run.id, self._events()), lambda: self._failure)
        finally:
            self._receiver.close()

    async def _events(self) -> AsyncGenerator[Event]:
        async for event in self._receiver:
            yield event
        if self._failure is not None:
            raise self._failure
