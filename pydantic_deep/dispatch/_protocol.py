"""`Dispatcher`: delivers runs to workers, by any engine that delivers at least once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol, TypeAlias

ExecuteRun: TypeAlias = Callable[[str], Awaitable[None]]
"""Executes the run with an id, and returns when it has ended, paused, or is not for this worker.

It may be called any number of times, in any process: it begins a queued run, recovers one whose process crashed, and
does nothing if the run has ended or is alive elsewhere. It raises nothing for a run that fails: the store has the error.
If it is cancelled, the run is stored as suspended or interrupted, and another worker continues it.
"""


@dataclass(frozen=True, kw_only=True)
class DispatcherHealth:
    """The state of an engine."""

    is_up: bool
    """Whether the engine accepts and delivers runs now."""
    detail: str
    """One sentence for people: the engine and its address, without a password, or what is wrong."""


class Dispatcher(Protocol):
    """Delivers the ids of queued runs to workers, at least once, in any order.

    The queued runs themselves are in the store (`RunQueue`). A run that an engine loses stays queued there, and workers
    find it when they look for runs of crashed processes. So an engine only determines how soon a run begins, and where.
    Test an implementation with `conformance.DispatcherSuite`.
    """

    async def submit(self, run_id: str, *, agent_name: str, conversation_id: str, priority: int = 0) -> None:
        """Deliver a run to one of the workers that have its agent.

        A second call with the same id has no effect until the run is delivered. Later calls may deliver it again.

        Args:
            run_id: The run, which is already stored.
            agent_name: The agent of the run.
            conversation_id: Its conversation. An engine that can deliver runs of a conversation one at a time does so.
            priority: Runs with a higher number are delivered first, if the engine has priorities.

        Raises:
            DispatcherUnavailableError: The engine is down. The run stays queued.
        """
        ...

    async def cancel(self, run_id: str, *, conversation_id: str) -> None:
        """Withdraw a run that has not been delivered. A run that has been delivered, or is unknown, is not affected.

        The store has the request to cancel, which the worker of the run reads.

        Args:
            run_id: The run.
            conversation_id: Its conversation.

        Raises:
            DispatcherUnavailableError: The engine is down.
        """
        ...

    async def work(self, execute: ExecuteRun, *, agent_names: Collection[str], concurrency: int) -> None:
        """Execute the runs of these agents until the task is cancelled. An engine that is down is waited for.

        Args:
            execute: Executes a run. An exception in it is logged, and ends neither the worker nor other runs; an engine
                that can deliver the run again does so later.
            agent_names: The agents of this worker. Runs of other agents are left for other workers.
            concurrency: The maximum number of runs at the same time.
        """
        ...

    async def health(self) -> DispatcherHealth:
        """Return the state of the engine. Does not raise."""
        ...

    async def aclose(self) -> None:
        """Close the connections to the engine. Workers must have ended. A second call does nothing."""
        ...
