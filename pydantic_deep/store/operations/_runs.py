"""Operations on runs, their requests and calls, on approvals, and on claims of directories."""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, cast

from pydantic_deep.store.engine import Operation, Statement, Value, for_update
from pydantic_deep.store.errors import (
    ApprovalAnsweredError,
    ApprovalNotFoundError,
    StoreCorruptedError,
    UnfinishedCheckoutError,
)
from pydantic_deep.store.records import (
    ApprovalRecord,
    ApprovalStatus,
    CallRecord,
    Decision,
    DelegationRecord,
    RequestRecord,
    RunRecord,
    WorkspaceRecord,
    claimed_checkouts,
)
from pydantic_deep.store.sql import _keys, _rows
from pydantic_deep.store.sql._seals import row_name, seal
from pydantic_deep.store.sql._statements import conditions, id_or_none, insert, integer, marks, select_in, update
from pydantic_deep.store.sql._tallies import ALL, TOTAL, counted, total_of

from ._commits import change_approvals, put_workspaces
from ._reads import find_by_prefix, version_number


def run(id: str) -> Operation[RunRecord | None]:
    """Read a run."""
    rows = yield Statement(f'SELECT {_rows.RUN} FROM run WHERE id = ?1', (_keys.pack_id(id),))
    return _rows.run_from(rows[0]) if rows else None


def runs(
    conversation_id: str | None, parent_run_id: str | None, states: Collection[str] | None, limit: int
) -> Operation[list[RunRecord]]:
    """Read runs, newest first."""
    values: list[Value] = [limit]
    parent = id_or_none(conversation_id)
    by_parent_run = ('parent_run_id = ?{}', id_or_none(parent_run_id))
    where = ['1 = 1', *conditions(values, ('conversation_id = ?{}', parent), by_parent_run)]
    if states is not None:
        where.append(f'state IN ({marks(len(states), len(values) + 1) or "NULL"})')
        values += states
    sql = f'SELECT {_rows.RUN} FROM run WHERE {" AND ".join(where)} ORDER BY number DESC LIMIT ?1'
    if parent_run_id is not None or states is not None:
        rows = yield Statement(sql, values)
    else:
        rows = yield from counted('run', sql, values, parent or ALL, limit=limit)
    return [_rows.run_from(row) for row in rows]


def running() -> Operation[list[RunRecord]]:
    """Read all runs that are `running`, oldest first."""
    sql = f"SELECT {_rows.RUN} FROM run WHERE state = 'running' ORDER BY number"
    return [_rows.run_from(row) for row in (yield Statement(sql))]


def last_run() -> Operation[int]:
    """Read the number of the newest run; 0 if there is none."""
    return integer((yield Statement('SELECT COALESCE(MAX(number), 0) FROM run'))[0][0])


def runs_after(number: int, last: int, limit: int) -> Operation[tuple[list[RunRecord], int]]:
    """Read the runs without a parent between two numbers, oldest first, and the number up to which they are complete."""
    rows = yield Statement(
        f'SELECT {_rows.RUN}, number FROM run WHERE number > ?1 AND number <= ?2 AND parent_run_id IS NULL'
        ' ORDER BY number LIMIT ?3',
        (number, last, limit),
    )
    return [_rows.run_from(row[:-1]) for row in rows], integer(rows[-1][-1]) if len(rows) == limit else last


def unfinished(now: int) -> Operation[tuple[set[str], set[str]]]:
    """Read the ids of the runs that are `running`, and of the pending approvals."""
    runs = yield Statement("SELECT id FROM run WHERE state = 'running'")
    approvals = yield Statement(f"SELECT id FROM approval WHERE status = 'pending' AND NOT {_EXPIRED}", (now,))
    ids = [{_keys.unpack_id(cast('bytes', row[0])) for row in rows} for rows in (runs, approvals)]
    return ids[0], ids[1]


def claim_run(run_id: str, dead: str | None, owner: str) -> Operation[bool]:
    """Transfer a running run from its crashed owner to another, and release its claim on a directory."""
    id = _keys.pack_id(run_id)
    sql = f"SELECT {_rows.RUN}, number FROM run WHERE id = ?1 AND state = 'running' AND owner = ?2{for_update()}"
    rows = yield Statement(sql, (id, dead))
    if not rows:
        return False
    claimed = _rows.run_from(rows[0][:-1])._replace(owner=owner)
    yield from update('run', 'owner, seal', [(rows[0][-1], owner, seal(claimed))])
    rows = yield Statement(f'SELECT {_rows.WORKSPACE} FROM workspace WHERE run_id = ?1{for_update()}', (id,))
    freed = [_rows.workspace_from(row)[0]._replace(run_id=None) for row in rows]
    yield from put_workspaces([_rows.workspace_row(workspace, None) for workspace in freed])
    return True


def requests(run_id: str) -> Operation[list[RequestRecord]]:
    """Read the requests of a run."""
    id = _keys.pack_id(run_id)
    sql = f'{_rows.SELECT_REQUEST} WHERE r.run_id = ?1 ORDER BY r.number'
    return [_rows.request_from(row) for row in (yield from counted('request', sql, (id,), id))]


def calls(run_ids: Sequence[str]) -> Operation[list[CallRecord]]:
    """Read the tool calls of runs, in the order in which they started."""
    total = TOTAL.format(table='tool_call', parent='c.run_id')
    sql = _rows.SELECT_CALL.replace(' FROM', f', c.number, {total} FROM', 1) + ' WHERE c.run_id IN ({})'
    ids = {_keys.pack_id(id) for id in run_ids}
    rows = yield from select_in(sql, ids)
    counts = Counter(row[0] for row in rows)
    expected = {row[0]: integer(row[-1] or 0) for row in rows}
    for id in ids - expected.keys():
        expected[id] = yield from total_of('tool_call', [id])
    for id, count in expected.items():
        if counts[id] != count:
            problem = f'{count} calls of the run were written, and {counts[id]} exist'
            raise StoreCorruptedError('tool_call', f'of {row_name(id)}', problem)
    numbered = sorted(((_rows.call_from(row[:-2]), integer(row[-2])) for row in rows), key=_start)
    return [call for call, _ in numbered]


def _start(numbered: tuple[CallRecord, int]) -> tuple[int, int]:
    call, number = numbered
    return call.started_at, number


def delegations(parent_run_id: str | None, child_conversation_id: str | None) -> Operation[list[DelegationRecord]]:
    """Read delegations, oldest first."""
    values: list[Value] = []
    parent, child = id_or_none(parent_run_id), id_or_none(child_conversation_id)
    where = ['1 = 1', *conditions(values, ('parent_run_id = ?{}', parent), ('child_conversation_id = ?{}', child))]
    sql = f'SELECT {_rows.DELEGATION} FROM delegation WHERE {" AND ".join(where)} ORDER BY number'
    if child is not None:
        rows = yield Statement(sql, values)
    else:
        rows = yield from counted('delegation', sql, values, parent or ALL)
    return [_rows.delegation_from(row) for row in rows]


_EXPIRED: Final = "(status = 'pending' AND expires_at IS NOT NULL AND expires_at <= ?1)"
_SELECT_APPROVAL: Final = f'SELECT {_rows.APPROVAL} FROM approval'


def approvals(
    status: ApprovalStatus | None, version_id: str | None, agent_name: str | None, limit: int, now: int
) -> Operation[list[ApprovalRecord]]:
    """Read approvals, oldest first."""
    values: list[Value] = [now, limit]
    where = ['CAST(?1 AS BIGINT) IS NOT NULL']
    if status == 'pending':
        where = ["status = 'pending'", f'NOT {_EXPIRED}']
    elif status == 'expired':
        where = [f"(status = 'expired' OR {_EXPIRED})"]
    else:
        where += conditions(values, ('status = ?{}', status))
    parent = id_or_none(version_id)
    where += conditions(values, ('version_id = ?{}', parent), ('agent_name = ?{}', agent_name))
    sql = f'{_SELECT_APPROVAL} WHERE {" AND ".join(where)} ORDER BY number LIMIT ?2'
    if status is not None or agent_name is not None:
        rows = yield Statement(sql, values)
    else:
        rows = yield from counted('approval', sql, values, parent or ALL, limit=limit)
    return [_rows.approval_from(row, now) for row in rows]


def pending_approvals(now: int) -> Operation[tuple[int, int]]:
    """Count pending approvals, and read when the oldest was requested; 0 if there is none."""
    sql = f"SELECT COUNT(*), COALESCE(MIN(created_at), 0) FROM approval WHERE status = 'pending' AND NOT {_EXPIRED}"
    ((count, oldest),) = yield Statement(sql, (now,))
    return integer(count), integer(oldest)


def approval(id: str, now: int) -> Operation[ApprovalRecord]:
    """Read an approval by its id or a prefix of it."""
    rows = yield from find_by_prefix('approval', id)
    if len(rows) != 1:
        raise ApprovalNotFoundError(id)
    approvals = yield Statement(f'{_SELECT_APPROVAL} WHERE number = ?1', (rows[0][1],))
    if not approvals:
        raise StoreCorruptedError('approval', id, 'it is missing, but its index lists it')
    return _rows.approval_from(approvals[0], now)


def decide(decisions: Sequence[Decision], now: int) -> Operation[list[ApprovalRecord]]:
    """Answer approvals, each with a compare-and-set; the first that cannot be answered rolls back the others."""
    decided: list[ApprovalRecord] = []
    if len(decisions) > 1:
        ids = sorted(_keys.pack_id(decision.approval_id) for decision in decisions)
        yield from select_in(f'SELECT 1 FROM approval WHERE id IN ({{}}) ORDER BY number{for_update()}', ids)
    for decision in decisions:
        sql = (
            f"SELECT {_rows.APPROVAL}, number FROM approval WHERE id = ?1 AND status = 'pending'"
            ' AND arguments_digest = ?2 AND resumed_by IS NULL AND (expires_at IS NULL OR expires_at > ?3)'
            f'{for_update()}'
        )
        rows = yield Statement(sql, (_keys.pack_id(decision.approval_id), decision.arguments_digest, now))
        if not rows:
            yield from _refuse(decision, now)
        answer = {
            'status': decision.status,
            'decision': decision.decision,
            'decided_by': decision.by,
            'reason': decision.reason,
        }
        decided += yield from change_approvals(rows, partial(ApprovalRecord._replace, **answer, decided_at=now))
    return decided


def _refuse(decision: Decision, now: int) -> Operation[None]:
    """Raise the reason why an approval cannot be answered."""
    rows = yield Statement(f'{_SELECT_APPROVAL} WHERE id = ?1', (_keys.pack_id(decision.approval_id),))
    if not rows:
        raise ApprovalNotFoundError(decision.approval_id)
    approval = _rows.approval_from(rows[0], now)
    if approval.status != 'pending':
        raise _answered(approval)
    if approval.resumed_by is not None:
        raise ApprovalAnsweredError(
            approval.id,
            'not open any more',
            None,
            None,
            f'The run {approval.resumed_by} continued without an answer.',
        )
    raise ValueError(
        f'The decision on {approval.id} is for arguments with the digest {decision.arguments_digest!r}, and the approval '
        f'has {approval.arguments_digest!r}. Show the approval again, and decide on its current content.'
    )


def _answered(approval: ApprovalRecord) -> ApprovalAnsweredError:
    if approval.status == 'expired':
        return ApprovalAnsweredError(approval.id, 'expired', None, approval.expires_at, 'Nobody answered in time.')
    if approval.status == 'superseded':
        detail = f'It is now pending as {approval.superseded_by}: answer that one.'
        return ApprovalAnsweredError(approval.id, 'superseded', None, None, detail)
    return ApprovalAnsweredError(
        approval.id, approval.status, approval.decided_by, approval.decided_at, 'The first answer counts.'
    )


def claim_approvals(version_id: str, run_id: str, now: int) -> Operation[list[ApprovalRecord]]:
    """Record the run on all approvals of a version, unless one has another run."""
    number = yield from version_number(version_id)
    id = (yield Statement('SELECT id FROM version WHERE number = ?1', (number,)))[0][0]
    rows = yield Statement(
        f'SELECT {_rows.APPROVAL}, number FROM approval WHERE version_id = ?1 ORDER BY number{for_update()}', (id,)
    )
    approvals = [_rows.approval_from(row[:-1], now) for row in rows]
    for approval in approvals:
        if approval.resumed_by not in (None, run_id):
            detail = f'The run {approval.resumed_by} has acted on it already.'
            raise ApprovalAnsweredError(approval.id, approval.status, approval.decided_by, approval.decided_at, detail)
    free = [row for row, approval in zip(rows, approvals, strict=True) if approval.resumed_by is None]
    yield from change_approvals(free, lambda approval: approval._replace(resumed_by=run_id))
    return [approval._replace(resumed_by=run_id) for approval in approvals]


def workspace(backend: str) -> Operation[WorkspaceRecord | None]:
    """Read the record of a directory."""
    rows = yield Statement(f'SELECT {_rows.WORKSPACE} FROM workspace WHERE backend = ?1', (backend,))
    return _rows.workspace_from(rows[0])[0] if rows else None


def workspace_owner(backend: str) -> Operation[tuple[str, str] | None]:
    """Return the run that works in a directory, unless it has ended, and the open store that owns it."""
    columns = _rows.WORKSPACE.replace(', ', ', w.')
    sql = (
        f'SELECT w.{columns} FROM workspace w LEFT JOIN run r ON r.id = w.run_id'
        " WHERE w.backend = ?1 AND w.run_id IS NOT NULL AND (r.state IS NULL OR r.state = 'running')"
    )
    for row in (yield Statement(sql, (backend,))):
        record, owner = _rows.workspace_from(row)
        return str(record.run_id), str(owner)
    return None


def claim_workspace(
    backend: str, run_id: str, version_id: str | None, owner: str, dead_run_id: str | None
) -> Operation[bool]:
    """Claim a directory for a run, if no other run works in it, or only a crashed one."""
    claimed = WorkspaceRecord(backend=backend, version_id=version_id, run_id=run_id)
    row = _rows.workspace_row(claimed, owner)
    if (yield from insert('workspace', _rows.WORKSPACE, [row], 'ON CONFLICT DO NOTHING RETURNING backend')):
        return True
    sql = f'SELECT {_rows.WORKSPACE} FROM workspace WHERE backend = ?1{for_update()}'
    known = _rows.workspace_from((yield Statement(sql, (backend,)))[0])[0]
    working = yield from workspace_owner(backend)
    if working is not None and working[0] not in (run_id, dead_run_id):
        return False
    if known.version_id not in (None, version_id):
        return False
    if known.checkouts and not claimed_checkouts(run_id):
        raise UnfinishedCheckoutError(backend, known.checkouts[0])
    yield from put_workspaces([_rows.workspace_row(known._replace(run_id=run_id), owner)])
    return True
