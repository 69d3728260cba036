"""Agents whose runs write audit records with the owner of their conversation, for servers and workers."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from anyio.abc import TaskGroup

from pydantic_deep.audit import AUDIT_FIELDS, Audit, AuditRecord, finish_crashed
from pydantic_deep.dispatch import WorkerEvent
from pydantic_deep.memory import VersionedMemory
from pydantic_deep.repository import Repository, SqlRepository
from pydantic_deep.store import SqlStore, VersionFilter
from pydantic_deep.streaming import WholeCalls, current_session_id

from ._agents import AnyAgent, ServedAgent, prepare_agents
from ._state import OWNER

_LOGGER = logging.getLogger('pydantic_deep')

_ALL = 1_000_000
"""An upper bound for the number of runs that crashed processes can leave behind."""


@asynccontextmanager
async def open_audited_agents(
    agents: Mapping[str, AnyAgent],
    store: SqlStore,
    *,
    make_deps: Callable[[], Any] | None = None,
    memory: VersionedMemory | None = None,
) -> AsyncGenerator[tuple[Mapping[str, ServedAgent], SqlRepository[AuditRecord]]]:
    """Open the audit records of a store, and prepare agents to write them, and to remember."""
    audit = await SqlRepository[AuditRecord].open(store, AuditRecord, fields=AUDIT_FIELDS, name='server_audit')
    capabilities, metadata = [Audit(audit), WholeCalls()], _RunMetadata(store)
    try:
        yield (
            prepare_agents(
                agents, store, make_deps=make_deps, capabilities=capabilities, run_metadata=metadata, memory=memory
            ),
            audit,
        )
    finally:
        await audit.aclose()


async def finish_audit_records(audit: Repository[AuditRecord], store: SqlStore) -> None:
    """End the audit records of crashed runs, which nobody else ends."""
    orphans = {run.id for run in await store.orphans(_ALL)}

    async def is_alive(record: AuditRecord) -> bool:
        run = await store.run(record.run_id)
        return run is not None and run.state == 'running' and run.id not in orphans

    await finish_crashed(audit, is_alive, store=store)


class TakeoverAudit:
    """Ends the audit records of crashed processes once their runs, which a worker has taken over, have ended.

    Call it with the events of the worker.

    Args:
        audit: The audit records.
        store: The store of the runs.
        tasks: Runs the task that ends records.
    """

    def __init__(self, audit: Repository[AuditRecord], store: SqlStore, tasks: TaskGroup) -> None:
        self._audit = audit
        self._store = store
        self._tasks = tasks
        self._taken_over: set[str] = set()

    def __call__(self, event: WorkerEvent) -> None:
        """Note an event."""
        if event.kind == 'taken_over':
            self._taken_over.add(event.run_id)
        elif event.run_id in self._taken_over:
            self._taken_over.discard(event.run_id)
            self._tasks.start_soon(self._finish)

    async def _finish(self) -> None:
        try:
            await finish_audit_records(self._audit, self._store)
        except Exception:  # outermost boundary: a failed cleanup must not end the process
            _LOGGER.exception('The audit records of crashed runs could not be ended')


class _RunMetadata:
    """Returns the owner and the session id of a run for its audit record, including recovered runs."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    async def __call__(self, conversation_id: str) -> dict[str, Any]:
        newest = await self._store.versions(VersionFilter(conversation_id=conversation_id), limit=1)
        owner = json.loads(newest[0].metadata).get(OWNER) if newest else None
        labels = {'owner': owner, 'session_id': current_session_id()}
        return {name: value for name, value in labels.items() if value is not None}
