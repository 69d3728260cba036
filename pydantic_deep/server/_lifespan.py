"""The lifespan of an application: the state that it creates and closes, and the recovery of crashed runs."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
from fastapi import FastAPI

from pydantic_deep.audit import AUDIT_FIELDS, Audit, AuditRecord, finish_crashed
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.repository import SqlRepository
from pydantic_deep.store import SqlStore, VersionFilter
from pydantic_deep.streaming import WholeCalls, current_session_id
from pydantic_deep.views import StoreReader

from ._agents import AnyAgent, prepare_agents
from ._api_keys import open_keys
from ._metrics import ServerMetrics
from ._rate_limits import RateLimit, WrongKeyLimit
from ._settings import ServerSettings
from ._state import OWNER, MakeBackend, ServerState
from ._threads import THREAD_FIELDS, Thread
from .runs._pool import RunPool

_LOGGER = logging.getLogger('pydantic_deep')

_ALL = 1_000_000
"""An upper bound for the number of runs that a crashed server can leave behind."""


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
    """Create the state of an application, and close it at the end: running turns get `shutdown_seconds`."""
    async with AsyncExitStack() as stack:
        keys = await stack.enter_async_context(open_keys(store))
        audit = await SqlRepository[AuditRecord].open(store, AuditRecord, fields=AUDIT_FIELDS, name='server_audit')
        stack.push_async_callback(audit.aclose)
        threads = await SqlRepository[Thread].open(store, Thread, fields=THREAD_FIELDS, name='server_thread')
        stack.push_async_callback(threads.aclose)
        runs = await stack.enter_async_context(RunPool(settings, metrics=metrics))
        metrics.running.set_function(lambda: runs.running_count)
        metrics.log_bytes.set_function(lambda: runs.log_bytes)
        metrics.log_memory_bytes.set_function(lambda: runs.log_memory_bytes)
        state = ServerState(
            agents=prepare_agents(
                agents,
                store,
                make_deps=make_deps,
                capabilities=[Audit(audit), WholeCalls()],
                run_metadata=_RunMetadata(store),
            ),
            store=store,
            settings=settings,
            keys=keys,
            audit=audit,
            threads=threads,
            runs=runs,
            rate=RateLimit(per_second=settings.requests_per_second, burst=settings.request_burst, clock=time.monotonic),
            wrong_keys=WrongKeyLimit(
                per_minute=settings.wrong_keys_per_minute, burst=settings.wrong_key_burst, clock=time.monotonic
            ),
            views=StoreReader(store, hidden_metadata=[OWNER], shows_errors=False),
            metrics=metrics,
            make_backend=make_backend,
        )
        runs.is_recovering = True  # before the first request is accepted
        runs.tasks.start_soon(recover, state)
        app.state.server = state
        try:
            yield
        finally:
            app.state.server = None


async def recover(state: ServerState) -> None:
    """Resume the runs of crashed processes, and end the audit records of runs that nobody resumes.

    A run stays suspended if its conversation has moved on: a later turn began, or the head is elsewhere.
    """
    try:
        async with anyio.create_task_group() as group:
            for name in state.agents:
                group.start_soon(_recover_agent, state, name)
    finally:
        state.runs.is_recovering = False
    store = state.store

    async def is_alive(record: AuditRecord) -> bool:
        run = await store.run(record.run_id)
        return run is not None and run.state == 'running' and run.id not in orphans

    try:
        orphans = {run.id for run in await store.orphans(_ALL)}
        await finish_crashed(state.audit, is_alive, store=store)
    except Exception:  # outermost boundary: a failed cleanup must not prevent the server from serving
        _LOGGER.exception('The audit records of crashed runs could not be ended')


async def _recover_agent(state: ServerState, name: str) -> None:
    try:
        recovered = await state.agents[name].recover()
    except Exception:  # outermost boundary, as above
        _LOGGER.exception('Crashed runs of the agent %r could not be recovered', name)
        return
    for version in recovered:
        _LOGGER.info('Recovered a run of %r: the version %s is %s', name, version.id, version.state)


class _RunMetadata:
    """Returns the owner and the session id of a run for its audit record, including recovered runs."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    async def __call__(self, conversation_id: str) -> dict[str, Any]:
        newest = await self._store.versions(VersionFilter(conversation_id=conversation_id), limit=1)
        owner = json.loads(newest[0].metadata).get(OWNER) if newest else None
        labels = {'owner': owner, 'session_id': current_session_id()}
        return {name: value for name, value in labels.items() if value is not None}
