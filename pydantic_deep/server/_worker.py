"""`run_worker`: a process that executes queued runs until a signal stops it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

import anyio
from anyio.abc import TaskStatus

from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.dispatch import Worker, WorkerEvent
from pydantic_deep.store import SqlStore

from ._agents import AnyAgent, check_agents
from ._audited_agents import TakeoverAudit, open_audited_agents
from ._dispatcher import open_configured_dispatcher
from ._settings import ServerSettings
from ._state import MakeBackend


async def run_worker(
    agents: Mapping[str, AnyAgent],
    store: SqlStore,
    settings: ServerSettings | None = None,
    *,
    make_deps: Callable[[], DeepAgentDeps] | None = None,
    make_backend: MakeBackend | None = None,
    on_start: Callable[[str], object] = print,
    on_event: Callable[[WorkerEvent], object] = print,
    on_stop: Callable[[int], object] = print,
) -> None:
    """Execute the queued runs of a store, and take over runs of crashed processes, until SIGINT or SIGTERM.

    A signal drains the worker: it takes no more runs, waits `shutdown_seconds`, and gives the rest back, so that another
    worker continues them. A second SIGINT kills the process; other workers then take over its runs, as after a crash.
    Call this function in the main thread, which alone can handle signals.

    Args:
        agents: The agents, by the names that servers have.
        store: The store of the servers.
        settings: The settings, of which a worker uses `dispatcher`, `worker_concurrency`, `shutdown_seconds` and
            `log_retention_seconds`. By default, those of `ServerSettings`.
        make_deps: Creates the deps of each run, as for `create_app`.
        make_backend: Returns the files of a conversation, as for `create_app`.
        on_start: Called once it works, with a description of the dispatcher.
        on_event: Called when a run begins, is taken over, ends, or is given back.
        on_stop: Called when a signal stops it, with the number of its running runs.

    Raises:
        InvalidAgentsError: There are no agents, a name is invalid, or a versioned agent has another store.
        InvalidSettingsError: There is no dispatcher at the URL, or its library is not installed.
        DispatcherUnavailableError: The dispatcher cannot be reached.
    """
    settings = settings or ServerSettings()
    check_agents(agents, store)
    async with AsyncExitStack() as stack:
        dispatcher = await stack.enter_async_context(open_configured_dispatcher(settings))
        prepared, audit = await stack.enter_async_context(open_audited_agents(agents, store, make_deps=make_deps))
        async with anyio.create_task_group() as group:
            finish_audit = TakeoverAudit(audit, store, group)

            def report(event: WorkerEvent) -> None:
                finish_audit(event)
                on_event(event)

            worker = Worker(
                prepared,
                store,
                dispatcher=dispatcher,
                concurrency=settings.worker_concurrency,
                make_backend=make_backend,
                drain_seconds=settings.shutdown_seconds,
                retention_seconds=settings.log_retention_seconds,
                on_event=report,
            )
            await group.start(_stop_on_signal, worker, on_stop)
            async with anyio.create_task_group() as working:
                await working.start(worker.run)
                on_start('none' if dispatcher is None else (await dispatcher.health()).detail)
            group.cancel_scope.cancel()


async def _stop_on_signal(worker: Worker, on_stop: Callable[[int], object], *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            worker.stop()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            on_stop(worker.active_count)
