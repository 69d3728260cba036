"""Renderings: the events of a run, encoded for another protocol while it runs.

The protocols themselves are defined in `pydantic_deep.server.ui`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from pydantic_deep.dispatch import TurnEvent as Event

from ._server_run import ServerRun

_LOGGER = logging.getLogger('pydantic_deep')

Rendering: TypeAlias = Callable[[str, AsyncIterator[Event]], AsyncIterator[bytes]]
"""Encodes the events of the run with an id for another protocol. Its input iterator raises the error of a failed run."""


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
        log = run.renderings[name]
        try:
            async for chunk in render(run.id, self._events()):
                log.append(chunk)
        except Exception:  # outermost boundary: a rendering is not part of the run
            if self._failure is None:
                _LOGGER.exception('The rendering %r of the run %s failed', name, run.id)
        finally:
            self._receiver.close()
            log.close()

    async def _events(self) -> AsyncGenerator[Event]:
        async for event in self._receiver:
            yield event
        if self._failure is not None:
            raise self._failure
