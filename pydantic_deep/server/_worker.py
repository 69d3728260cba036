"""`run_worker`: a process that executes queued runs until a signal stops it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager

import anyio
from anyio.abc import TaskStatus
from prometheus_client import start_http_server

from pydantic_deep._checks import check_object
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.dispatch import Worker, WorkerEvent
from pydantic_deep.memory import VersionedMemory
from pydantic_deep.store import SqlStore
from pydantic_deep.versions import ConversationDirectories

from ._agents import AnyAgent, check_agents
from ._audited_agents import TakeoverAudit, open_audited_agents
from ._dispatcher import open_configured_dispatcher
from ._metrics import WorkerMetrics, listening_to_commits
from ._settings import InvalidSettingsError, ServerSettings
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
        settings: The settings, of which a worker uses `dispatcher`, `worker_concurrency`, `shutdown_seconds`,
            `log_retention_seconds`, `work_dir`, `memory`, and for its metrics `host` and `metrics_port`. By default, those of
            `ServerSettings`.
        make_deps: Creates the deps of each run, as for `create_app`.
        make_backend: Returns the files of a conversation, as for `create_app`. By default, `ConversationDirectories` of
            the setting `work_dir`, if there is one.
        on_start: Called once it works, with a description of the dispatcher, and the URL of its metrics, if they are
            served.
        on_event: Called when a run begins, is taken over, ends, or is given back.
        on_stop: Called when a signal stops it, with the number of its running runs.

    Raises:
        InvalidAgentsError: There are no agents, a name is invalid, or a versioned agent has another store.
        InvalidSettingsError: There is no dispatcher at the URL, its library is not installed, or the port of the metrics
            is in use.
        DispatcherUnavailableError: The dispatcher cannot be reached.
    """
    if settings is not None:
        check_object('settings', settings, ServerSettings, 'For example, `ServerSettings(work_dir="files")`.')
    settings, metrics = settings or ServerSettings(), WorkerMetrics()
    check_agents(agents, store)
    if make_backend is None and settings.work_dir is not None:
        make_backend = ConversationDirectories(settings.work_dir)
    async with AsyncExitStack() as stack:
        dispatcher = await stack.enter_async_context(open_configured_dispatcher(settings))
        memory = await VersionedMemory.open(store) if settings.memory else None
        prepared, audit = await stack.enter_async_context(
            open_audited_agents(agents, store, make_deps=make_deps, memory=memory)
        )
        stack.enter_context(listening_to_commits(store, metrics.commits))
        address = stack.enter_context(_serving(metrics, settings))
        async with anyio.create_task_group() as group:
            finish_audit = TakeoverAudit(audit, store, group)

            def report(event: WorkerEvent) -> None:
                finish_audit(event)
                metrics.count(event)
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
            metrics.running.set_function(lambda: worker.active_count)
            await group.start(_stop_on_signal, worker, on_stop)
            async with anyio.create_task_group() as working:
                await working.start(worker.run)
                engine = 'none' if dispatcher is None else (await dispatcher.health()).detail
                on_start(engine if address is None else f'{engine}; metrics http://{address}/metrics')
            group.cancel_scope.cancel()


async def _stop_on_signal(worker: Worker, on_stop: Callable[[int], object], *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            worker.stop()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            on_stop(worker.active_count)


@contextmanager
def _serving(metrics: WorkerMetrics, settings: ServerSettings) -> Generator[str | None]:
    """Serve the metrics from a thread, if the settings say so, and yield their address."""
    if settings.metrics_port is None:
        yield None
        return
    try:
        server, thread = start_http_server(settings.metrics_port, settings.host, registry=metrics.registry)
    except OSError as error:
        raise InvalidSettingsError(
            f'metrics_port: Metrics cannot be served at {settings.host}:{settings.metrics_port}: {error.strerror}.'
        ) from None
    try:
        yield f'{settings.host}:{server.server_port}'
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
