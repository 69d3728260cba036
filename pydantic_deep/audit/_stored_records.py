"""Audit records from a store: rebuild the record of a run, and finish the records of crashed runs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Final, cast

from pydantic import JsonValue

from pydantic_deep._checks import check_name
from pydantic_deep.repository import Repository, SupportsUpdates
from pydantic_deep.store import CallRecord, RequestRecord, RunRecord, Store, VersionFilter, VersionRecord, utc_datetime

from ._record_from_events import (
    JsonObject,
    ObservedCall,
    Outcome,
    calls_of,
    first_of_run,
    grants_of,
    label_of,
    last_response,
    question_of,
    render_prompt,
    storable,
)
from ._redact import Redact, redact
from ._run_observer import now
from ._types import AuditedError, AuditedUsage, AuditRecord, Status
from .errors import RunNotFoundError

IsAlive = Callable[[AuditRecord], Awaitable[bool]]
"""Returns whether the run of a record is still in progress."""

_STATUSES: Final[dict[str, Status]] = {
    'running': 'running',
    'complete': 'success',
    'awaiting_approval': 'awaiting_approval',
    'interrupted': 'interrupted',
    'failed': 'failed',
}
"""Record status for each run state of a store."""

_OUTCOMES: Final[dict[str, Outcome]] = {
    'started': 'interrupted',
    'done': 'success',
    'failed': 'failed',
    'deferred': 'deferred',
    'superseded': 'interrupted',
}
"""Record outcome for each call status of a store."""

_ALL: Final = 1_000_000
"""Limit for the list of orphaned runs, which is never reached."""


async def audit_of_run(store: Store, run_id: str, *, redact: Redact = redact) -> AuditRecord:
    """Return the record of any run in a store, audited or not. Its id is the run id.

    The run of a crashed process has status `crashed`, also after recovery. The record of the run that resumed it refers
    to it by `attempt_of`.

    Args:
        store: The store with the run.
        run_id: The id of the run.
        redact: Redacts secrets.

    Raises:
        RunNotFoundError: The store has no such run.
    """
    check_name('run_id', run_id)
    run = await store.run(run_id)
    if run is None:
        raise RunNotFoundError(run_id)
    newest = await store.versions(VersionFilter(run_id=run.id), limit=1)
    version = newest[0] if newest else None
    messages = [] if version is None else await _messages(store, version, redact)
    requests = await store.requests(run.id)
    own = [request for request in requests if request.kind != 'summary']
    first_new = first_of_run(messages, run.id)
    status = await _status(store, run)
    metadata = {} if version is None else cast('JsonObject', storable(redact(json.loads(version.metadata))))
    session_id = cast('JsonValue', json.loads(run.options).get('session_id'))
    prompt = None if run.prompt is None else storable(redact(json.loads(run.prompt)))
    return AuditRecord(
        id=run.id,
        run_id=run.id,
        conversation_id=run.conversation_id,
        parent_run_id=run.parent_run_id,
        attempt_of=run.attempt_of,
        agent_name=run.agent_name,
        version_id=run.base_id if version is None else version.id,
        owner=label_of(metadata, 'owner'),
        tenant=label_of(metadata, 'tenant'),
        session_id=label_of(metadata, 'session_id') or label_of({'session_id': redact(session_id)}, 'session_id'),
        metadata=metadata,
        question=question_of(messages) if prompt is None else render_prompt(prompt),
        model=None if version is None or not requests else version.model,
        model_settings=cast('JsonObject', redact(json.loads(own[-1].model_settings))) if own else {},
        usage=_usage(requests),
        cost=_cost(requests),
        status=status,
        error=_error(run, redact),
        tool_calls=calls_of(
            messages[last_response(messages, first_new) :],
            first_new - last_response(messages, first_new),
            _ran(await store.calls(await _attempts(store, run)), redact),
            is_waiting=status == 'awaiting_approval',
        ),
        grants=grants_of(messages, first_new),
        output=None if version is None or version.output is None else storable(redact(json.loads(version.output))),
        started_at=utc_datetime(run.started_at),
        ended_at=None if run.ended_at is None else utc_datetime(run.ended_at),
    )


async def finish_crashed(
    repository: Repository[AuditRecord],
    is_alive: IsAlive,
    *,
    store: Store | None = None,
    redact: Redact = redact,
) -> list[AuditRecord]:
    """Finish the records with status `running` whose runs have crashed, and return them.

    Call this function when a process starts. With a store, the record is completed from the stored run, which may have
    ended successfully when only its record was lost. Without a store, the record gets status `crashed` and retains the
    values from the start of the run.

    Args:
        repository: The repository with the records, opened with `AUDIT_FIELDS`.
        is_alive: Returns whether the run of a record is still in progress in any process. Such records are skipped.
        store: The store with the runs.
        redact: Redacts secrets.
    """
    finished: list[AuditRecord] = []
    running: list[AuditRecord] = []
    cursor: str | None = None
    while True:
        page = await repository.list({'status': 'running'}, cursor=cursor)
        running += page.items
        cursor = page.cursor
        if cursor is None:
            break
    for record in running:
        if await is_alive(record):
            continue
        ended = await _ended(record, store, redact)
        if await _finish(repository, ended):
            finished.append(ended)
    return finished


async def _finish(repository: Repository[AuditRecord], ended: AuditRecord) -> bool:
    """Store a finished record; return `False` if its run has written it in the meantime."""
    if isinstance(repository, SupportsUpdates):
        rows = cast('SupportsUpdates[AuditRecord]', repository)
        return await rows.update(ended.id, lambda record: ended if _is_running(record) else record) == ended
    is_running = _is_running(await repository.get(ended.id))
    if is_running:
        await repository.upsert(ended)
    return is_running


def _is_running(record: AuditRecord | None) -> bool:
    return record is not None and record.status == 'running'


async def _ended(record: AuditRecord, store: Store | None, redact: Redact) -> AuditRecord:
    """Return the finished record."""
    known = record
    if store is not None and await store.run(record.run_id) is not None:
        known = await audit_of_run(store, record.run_id, redact=redact)
    initial = {name: getattr(record, name) for name in _INITIAL_FIELDS}
    status = 'crashed' if known.status == 'running' else known.status
    return known.model_copy(update={**initial, 'status': status, 'ended_at': known.ended_at or now()})


_INITIAL_FIELDS: Final = (
    'id', 'parent_run_id', 'agent_name', 'owner', 'tenant', 'session_id', 'metadata', 'question', 'started_at',
)  # fmt: skip
"""Fields whose value at the start of the run is authoritative."""


async def _attempts(store: Store, run: RunRecord) -> list[str]:
    """Return the ids of a run and of the runs that it resumes, oldest first. Calls are stored with the run that made
    them.
    """
    run_ids = [run.id]
    while run.attempt_of is not None and (before := await store.run(run.attempt_of)) is not None:
        run_ids.append(before.id)
        run = before
    return run_ids[::-1]


async def _messages(store: Store, version: VersionRecord, redact: Redact) -> list[JsonValue]:
    """Return the history of a version. Media are replaced by their digests."""
    records = await store.messages(version.branch_id, version.message_count)
    return [storable(redact(json.loads(record.body))) for record in records]


async def _status(store: Store, run: RunRecord) -> Status:
    if run.state == 'running':
        return 'crashed' if any(orphan.id == run.id for orphan in await store.orphans(_ALL)) else 'running'
    was_stopped = run.state != 'interrupted' or run.error is not None  # recovery ends runs without an error
    return _STATUSES[run.state] if was_stopped else 'crashed'


def _usage(requests: Sequence[RequestRecord]) -> AuditedUsage:
    return AuditedUsage(
        requests=sum(request.kind != 'failed' for request in requests),
        input_tokens=sum(request.input_tokens for request in requests),
        output_tokens=sum(request.output_tokens for request in requests),
        cache_read_tokens=sum(request.cache_read_tokens for request in requests),
        cache_write_tokens=sum(request.cache_write_tokens for request in requests),
    )


def _cost(requests: Sequence[RequestRecord]) -> Decimal | None:
    known = [Decimal(request.cost) for request in requests if request.cost is not None]
    return sum(known, Decimal()) if known else None


def _error(run: RunRecord, redact: Redact) -> AuditedError | None:
    if run.error is None:
        return None
    stored: dict[str, str] = json.loads(run.error)
    return AuditedError(kind=stored['type'], message=cast('str', storable(redact(stored['message']))))


def _ran(calls: Sequence[CallRecord], redact: Redact) -> dict[str, list[ObservedCall]]:
    calls_by_id: dict[str, list[ObservedCall]] = {}
    for call in calls:
        observed = ObservedCall(
            started_at=utc_datetime(call.started_at),
            ended_at=None if call.ended_at is None else utc_datetime(call.ended_at),
            outcome=_OUTCOMES[call.status],
            result=None if call.result is None else storable(redact(_returned(json.loads(call.result)))),
        )
        calls_by_id.setdefault(call.tool_call_id, []).append(observed)
    return calls_by_id


def _returned(ledger: JsonObject) -> JsonValue:
    """Return the result of a call from its ledger entry, which holds it until a message does."""
    if 'failure' in ledger:
        return ledger['message']
    message = cast('list[dict[str, list[JsonObject]]]', ledger['returned'])[0]
    return message['parts'][0]['content']
