"""The state of a server, with or without an application: opening, closing, and the recovery of crashed runs."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import anyio
from fastapi import FastAPI
from pydantic import BaseModel

from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.dispatch import Worker
from pydantic_deep.memory import VersionedMemory
from pydantic_deep.repository import SqlRepository
from pydantic_deep.store import SqlStore
from pydantic_deep.streaming import EndEvent, ErrorEvent, StartEvent, StreamEvent
from pydantic_deep.versions import ConversationDirectories
from pydantic_deep.views import StoreReader

from ._agents import AnyAgent
from ._api_keys import open_keys
from ._audited_agents import TakeoverAudit, finish_audit_records, open_audited_agents
from ._dispatcher import open_configured_dispatcher
from ._metrics import ServerMetrics, listening_to_commits
from ._openai_objects import OPENAI_OBJECT_FIELDS, OpenaiObject
from ._rate_limits import RateLimit, WrongKeyLimit
from ._settings import ServerSettings
from ._state import OWNER, MakeBackend, ServerState
from ._threads import THREAD_FIELDS, Thread
from .runs._mirrors import RunMirrors
from .runs._pool import RunPool
from .runs._repetitions import CLAIM_FIELDS, Repetitions, RequestClaim
from .runs._stored_run_events import stored_run_events
from .runs._stored_runs import load_run
from .webhooks._sender import WebhookSender
from .webhooks._webhooks import open_webhooks

T = TypeVar('T', bound=BaseModel)

_LOGGER = logging.getLogger('pydantic_deep')


@asynccontextmanager
async def serving(
    app: FastAPI,
    *,
    agents: Mapping[str, AnyAgent],
    store: SqlStore,
    settings: ServerSettings,
    metrics: ServerMetrics,
    make_deps: Callable[[], DeepAgentDeps] | None,
    make_backend: MakeBackend | None,
) -> AsyncGenerator[None]:
    """Open the state of an application, which its requests find there."""
    async with open_state(agents, store, settings, metrics, make_deps=make_deps, make_backend=make_backend) as state:
        app.state.server = state
        try:
            yield
        finally:
            app.state.server = None


@asynccontextmanager
async def open_state(
    agents: Mapping[str, AnyAgent],
    store: SqlStore,
    settings: ServerSettings,
    metrics: ServerMetrics,
    *,
    make_deps: Callable[[], DeepAgentDeps] | None = None,
    make_backend: MakeBackend | None = None,
) -> AsyncGenerator[ServerState]:
    """Create the state of a server, and close it at the end: running turns get `shutdown_seconds`.

    Args:
        agents: The agents, which `check_agents` has accepted.
        store: The store, which remains the caller's.
        settings: The settings.
        metrics: Counts the work of the server.
        make_deps: As for `create_app`.
        make_backend: As for `create_app`. By default, `ConversationDirectories` of the setting `work_dir`, if there is one.
    """
    if make_backend is None and settings.work_dir is not None:
        make_backend = ConversationDirectories(settings.work_dir)
    async with AsyncExitStack() as stack:
        keys = await stack.enter_async_context(open_keys(store))
        memory = await VersionedMemory.open(store) if settings.memory else None
        prepared, audit = await stack.enter_async_context(
            open_audited_agents(agents, store, make_deps=make_deps, memory=memory)
        )
        threads = await _open_rows(stack, store, Thread, fields=THREAD_FIELDS, name='server_thread')
        openai_objects = await _open_rows(
            stack, store, OpenaiObject, fields=OPENAI_OBJECT_FIELDS, name='server_openai_object'
        )
        webhooks = await stack.enter_async_context(
            open_webhooks(store, key=settings.webhook_key, private_hosts=settings.webhook_private_hosts)
        )
        dispatcher = await stack.enter_async_context(open_configured_dispatcher(settings))
        hands_over, claims = dispatcher is not None or not settings.worker, None
        if hands_over:
            claims = await _open_rows(stack, store, RequestClaim, fields=CLAIM_FIELDS, name='server_request_claim')
        mirrors = RunMirrors(
            store.queue,
            memory_bytes=settings.log_memory_bytes,
            load_events=lambda run_id: events_of_ended(state, run_id),
        )
        pool = RunPool(settings, metrics=metrics, mirrors=mirrors, dispatcher=dispatcher)
        runs = await stack.enter_async_context(pool)
        stack.enter_context(listening_to_commits(store, metrics.commits))
        metrics.running.set_function(lambda: runs.running_count)
        metrics.log_bytes.set_function(lambda: runs.log_bytes)
        metrics.log_memory_bytes.set_function(lambda: runs.log_memory_bytes)
        state = ServerState(
            agents=prepared,
            store=store,
            settings=settings,
            keys=keys,
            audit=audit,
            threads=threads,
            openai_objects=openai_objects,
            webhooks=webhooks,
            memory=memory,
            runs=runs,
            repetitions=Repetitions(runs, store, claims),
            rate=RateLimit(per_second=settings.requests_per_second, burst=settings.request_burst, clock=time.monotonic),
            wrong_keys=WrongKeyLimit(
                per_minute=settings.wrong_keys_per_minute, burst=settings.wrong_key_burst, clock=time.monotonic
            ),
            views=StoreReader(store, hidden_metadata=[OWNER], shows_errors=False),
            metrics=metrics,
            hands_over=hands_over,
            make_backend=make_backend,
        )
        if settings.webhook_key is not None:
            sender = WebhookSender(store, webhooks, keys=keys, owner_key=OWNER, public_url=settings.public_url)
            await stack.enter_async_context(_sending(sender))
        if settings.worker:
            runs.is_recovering = True  # before the first request is accepted
            runs.tasks.start_soon(recover, state)
            worker = Worker(
                state.agents,
                store,
                dispatcher=dispatcher,
                concurrency=settings.worker_concurrency,
                make_backend=make_backend,
                drain_seconds=settings.shutdown_seconds,
                retention_seconds=settings.log_retention_seconds,
                on_event=TakeoverAudit(audit, store, runs.tasks),
            )
            runs.takes_over = worker.takes_over
            await stack.enter_async_context(_running(worker))
        yield state


async def _open_rows(
    stack: AsyncExitStack, store: SqlStore, model: type[T], *, fields: Sequence[str], name: str
) -> SqlRepository[T]:
    """Open rows of the server in its store, until the stack closes."""
    rows = await SqlRepository[T].open(store, model, fields=fields, name=name)
    stack.push_async_callback(rows.aclose)
    return rows


@asynccontextmanager
async def _running(worker: Worker) -> AsyncGenerator[None]:
    """Run a worker; on exit, it drains, and gives the rest of its runs back."""
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        try:
            yield
        finally:
            worker.stop()


@asynccontextmanager
async def _sending(sender: WebhookSender) -> AsyncGenerator[None]:
    """Send webhooks; on exit, requests in progress are cancelled, and sent again by the next process."""
    async with anyio.create_task_group() as group:
        group.start_soon(sender.run)
        try:
            yield
        finally:
            group.cancel_scope.cancel()


async def events_of_ended(state: ServerState, run_id: str) -> list[StreamEvent]:
    """Return the events of an ended run that has no log."""
    stored = await load_run(state.store, state.runs, run_id)
    if stored is not None:
        return await stored_run_events(state.agents[stored.last.agent_name], stored)
    queued = await state.store.queue.get(run_id)
    problem = None if queued is None or queued.cancelled_at is not None else queued.problem
    if problem is None:
        error = ErrorEvent(kind='cancelled', message='The run was cancelled before it began.')
        return [StartEvent(id=run_id), error, EndEvent(finish_reason='error', status='interrupted')]
    error = ErrorEvent(kind='run_failed', message=problem.partition('\n')[0])  # the rest is not for clients
    return [StartEvent(id=run_id), error, EndEvent(finish_reason='error', status='failed')]


async def recover(state: ServerState) -> None:
    """Resume the runs of crashed processes, and end the audit records of runs that nobody resumes.

    A run stays suspended if its conversation has moved on: a later turn began, or the head is elsewhere. A server that
    queues its runs leaves them to its worker, which writes their events for all servers, and reads requests to cancel them.
    """
    try:
        async with anyio.create_task_group() as group:
            for name in () if state.hands_over else state.agents:
                group.start_soon(_recover_agent, state, name)
    finally:
        state.runs.is_recovering = False
    try:
        await finish_audit_records(state.audit, state.store)
    except Exception:  # outermost boundary: a failed cleanup must not prevent the server from serving
        _LOGGER.exception('The audit records of crashed runs could not be ended')


async def _recover_agent(state: ServerState, name: str) -> None:
    try:
        agent = state.agents[name]
        orphans = [run.id for run in await state.store.orphans() if run.agent_name == name]
        for run_id in await state.store.queue.cancelled_among(orphans):
            await agent.cancel(run_id)
        with state.runs.resumption() as make_token:
            recovered = await agent.recover(make_token=make_token)
    except Exception:  # outermost boundary, as above
        _LOGGER.exception('Crashed runs of the agent %r could not be recovered', name)
        return
    for version in recovered:
        _LOGGER.info('Recovered a run of %r: the version %s is %s', name, version.id, version.state)
