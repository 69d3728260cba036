"""Records of runs in a store: rebuilt from it, and finished for runs whose process crashed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, cast

from pydantic import JsonValue

from pydantic_deep._checks import check_name
from pydantic_deep.repository import Repository
from pydantic_deep.store import CallRecord, RequestRecord, RunRecord, Store, VersionFilter, VersionRecord

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
"""Returns whether the run of a record still works."""

_STATUSES: Final[dict[str, Status]] = {
    'running': 'running',
    'complete': 'success',
    'awaiting_approval': 'awaiting_approval',
    'interrupted': 'interrupted',
    'failed': 'failed',
}
"""What a store calls what became of a run."""

_OUTCOMES: Final[dict[str, Outcome]] = {
    'started': 'interrupted',
    'done': 'success',
    'failed': 'failed',
    'deferred': 'deferred',
    'superseded': 'interrupted',
}
"""What a store calls what became of a call."""

_ALL: Final = 1_000_000
"""As many orphans as there can be."""


async def audit_of_run(store: Store, run_id: str, *, redact: Redact = redact) -> AuditRecord:
    """Return the record of any run of a store, whether or not anybody audited it; its id is that of the run.

    A run that a dead process left is `crashed`, also after it was recovered: the record of the run that has gone on
    with it says `attempt_of`.

    Args:
        store: What has the run.
        run_id: The run.
        redact: Takes the secrets out.

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
    own = [each for each in requests if each.kind != 'summary']
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
        started_at=_moment(run.started_at),
        ended_at=None if run.ended_at is None else _moment(run.ended_at),
    )


async def finish_crashed(
    repository: Repository[AuditRecord],
    is_alive: IsAlive,
    *,
    store: Store | None = None,
    redact: Redact = redact,
) -> list[AuditRecord]:
    """Finish the records in status `running` whose runs have crashed, and return them.

    Call it when a process starts. What a store knows of such a run is put into its record, also if it has ended well
    and only the record was lost; without a store a run is `crashed`, with what was known when it began.

    Args:
        repository: Where the records are, open with `AUDIT_FIELDS`.
        is_alive: Whether the run of a record still works, in whichever process; one that does is left alone.
        store: What has the runs.
        redact: Takes the secrets out.
    """
    closed: list[AuditRecord] = []
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
        ended = await _ended(await repository.get(record.id), store, redact)
        if ended is not None:
            await repository.upsert(ended)
            closed.append(ended)
    return closed


async def _ended(record: AuditRecord, store: Store | None, redact: Redact) -> AuditRecord | None:
    """Return a record as it is to be; `None` if its run has ended it meanwhile."""
    if record.status != 'running':
        return None
    known = record
    if store is not None and await store.run(record.run_id) is not None:
        known = await audit_of_run(store, record.run_id, redact=redact)
    begun = {name: getattr(record, name) for name in _OF_BEGINNING}
    status = 'crashed' if known.status == 'running' else known.status
    return known.model_copy(update={**begun, 'status': status, 'ended_at': known.ended_at or now()})


_OF_BEGINNING: Final = (
    'id', 'parent_run_id', 'agent_name', 'owner', 'tenant', 'session_id', 'metadata', 'question', 'started_at',
)  # fmt: skip
"""What is known best when a run begins."""


async def _attempts(store: Store, run: RunRecord) -> list[str]:
    """Return the ids of a run and those that it goes on with: a call is noted under the one whose response asked for it."""
    run_ids = [run.id]
    while run.attempt_of is not None and (before := await store.run(run.attempt_of)) is not None:
        run_ids.append(before.id)
        run = before
    return run_ids[::-1]


async def _messages(store: Store, version: VersionRecord, redact: Redact) -> list[JsonValue]:
    """Return the history of a version; media in it are named by their digests."""
    records = await store.messages(version.branch_id, version.message_count)
    return [storable(redact(json.loads(record.body))) for record in records]


async def _status(store: Store, run: RunRecord) -> Status:
    if run.state == 'running':
        return 'crashed' if any(orphan.id == run.id for orphan in await store.orphans(_ALL)) else 'running'
    was_stopped = run.state != 'interrupted' or run.error is not None  # a recovery ends runs without an error
    return _STATUSES[run.state] if was_stopped else 'crashed'


def _usage(requests: Sequence[RequestRecord]) -> AuditedUsage:
    return AuditedUsage(
        requests=sum(each.kind != 'failed' for each in requests),
        input_tokens=sum(each.input_tokens for each in requests),
        output_tokens=sum(each.output_tokens for each in requests),
        cache_read_tokens=sum(each.cache_read_tokens for each in requests),
        cache_write_tokens=sum(each.cache_write_tokens for each in requests),
    )


def _cost(requests: Sequence[RequestRecord]) -> Decimal | None:
    known = [Decimal(each.cost) for each in requests if each.cost is not None]
    return sum(known, Decimal()) if known else None


def _error(run: RunRecord, redact: Redact) -> AuditedError | None:
    if run.error is None:
        return None
    said: dict[str, str] = json.loads(run.error)
    return AuditedError(kind=said['type'], message=cast('str', storable(redact(said['message']))))


def _ran(calls: Sequence[CallRecord], redact: Redact) -> dict[str, list[ObservedCall]]:
    ran: dict[str, list[ObservedCall]] = {}
    for call in calls:
        seen = ObservedCall(
            started_at=_moment(call.started_at),
            ended_at=None if call.ended_at is None else _moment(call.ended_at),
            outcome=_OUTCOMES[call.status],
            result=None if call.result is None else storable(redact(_returned(json.loads(call.result)))),
        )
        ran.setdefault(call.tool_call_id, []).append(seen)
    return ran


def _returned(ledger: JsonObject) -> JsonValue:
    """Return what a call has returned, of how the ledger keeps it until a message has it."""
    if 'failure' in ledger:
        return ledger['message']
    message = cast('list[dict[str, list[JsonObject]]]', ledger['returned'])[0]
    return message['parts'][0]['content']


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
