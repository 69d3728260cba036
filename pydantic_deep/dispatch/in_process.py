"""`InProcessDispatcher`: delivers runs to the worker of the same process. The default; it needs nothing."""

from __future__ import annotations

import logging
from collections.abc import Collection

import anyio

from ._protocol import DispatcherHealth, ExecuteRun

_LOGGER = logging.getLogger('pydantic_deep')

_MAX_WAITING = 10_000
"""Maximum number of runs that wait for a worker of this process. Beyond it, the oldest are left to the store."""


class InProcessDispatcher:
    """A `Dispatcher` without an engine. Workers of other processes find the runs when they look for work."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[int, int, str]] = {}
        self._number = 0
        self._changed = anyio.Event()

    async def submit(self, run_id: str, *, agent_name: str, conversation_id: str, priority: int = 0) -> None:
        """Deliver a run to the worker of this process, if there is one."""
        self._number += 1
        self._waiting.setdefault(run_id, (-priority, self._number, agent_name))
        if len(self._waiting) > _MAX_WAITING:  # for example in a process without a worker
            del self._waiting[next(iter(self._waiting))]
        self._changed.set()
        self._changed = anyio.Event()

    async def cancel(self, run_id: str, *, conversation_id: str) -> None:
        """Withdraw a run that has not been delivered."""
        self._waiting.pop(run_id, None)

    async def work(self, execute: ExecuteRun, *, agent_names: Collection[str], concurrency: int) -> None:
        """Execute the runs of these agents until the task is cancelled."""
        limit = anyio.Semaphore(concurrency, max_value=concurrency)

        async def run(run_id: str) -> None:
            try:
                await execute(run_id)
            except Exception:  # outermost boundary: a run ends neither the worker nor other runs
                _LOGGER.exception('The run %s could not be executed', run_id)
            finally:
                limit.release()

        async with anyio.create_task_group() as group:
            while True:
                await limit.acquire()
                while (run_id := self._next(agent_names)) is None:
                    await self._changed.wait()
                group.start_soon(run, run_id)

    def _next(self, agent_names: Collection[str]) -> str | None:
        """Remove and return the next run of these agents."""
        ids = [id for id, (_, _, name) in self._waiting.items() if name in agent_names]
        id = min(ids, key=self._waiting.__getitem__, default=None)
        if id is not None:
            del self._waiting[id]
        return id

    async def health(self) -> DispatcherHealth:
        """Return that this process is up."""
        return DispatcherHealth(is_up=True, detail='Runs are executed in this process.')

    async def aclose(self) -> None:
        """Forget the runs that were not delivered. They stay queued in the store."""
        self._waiting.clear()
