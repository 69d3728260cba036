"""Operations on runs and what happened in them, on approvals, and on who works in which directory."""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from . import _keys, _rows
from ._engine import Operation, Statement, Value
from ._operations_read import find_by_prefix, version_number
from ._sql import id_from, id_or_none, marks, select_in
from ._types import (
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
from .errors import ApprovalAnsweredError, ApprovalNotFoundError, UnfinishedCheckoutError


def run(id: str) -> Operation[RunRecord | None]:
    """Read a run."""
    rows = yield Statement(f'SELECT {_rows.RUN} FROM run WHERE id = ?1', (_keys.pack_id(id),))
    return _rows.run_from(rows[0]) if rows else None


def runs(
    conversation_id: str | None, parent_run_id: str | None, states: Collection[str] | None, limit: int
) -> Operation[list[RunRecord]]:
    """Read runs, newest first."""
    values: list[Value] = [limit]
    where = ['1 = 1']
    for column, id in (('conversation_id', conversation_id), ('parent_run_id', parent_run_id)):
        if id is not None:
            values.append(_keys.pack_id(id))
            where.append(f'{column} = ?{len(values)}')
    if states is not None:
        where.append(f'state IN ({marks(len(states), len(values) + 1) or "NULL"})')
        values += states
    sql = f'SELECT {_rows.RUN} FROM run WHERE {" AND ".join(where)} ORDER BY number DESC LIMIT ?1'
    return [_rows.run_from(row) for row in (yield Statement(sql, values))]


def running() -> Operation[list[RunRecord]]:
    """Read all runs that are `running`, oldest first."""
    sql = f"SELECT {_rows.RUN} FROM run WHERE state = 'running' ORDER BY number"
    return [_rows.run_from(row) for row in (yield Statement(sql))]


def take_over(run_id: str, dead: str | None, owner: str) -> Operation[bool]:
    """Make a run that still belongs to a dead owner that of another, and free the directory that it worked in."""
    id = _keys.pack_id(run_id)
    sql = "UPDATE run SET owner = ?3 WHERE id = ?1 AND state = 'running' AND owner = ?2 RETURNING id"
    if not (yield Statement(sql, (id, dead, owner))):
        return False
    yield Statement('UPDATE workspace SET run_id = NULL, owner = NULL WHERE run_id = ?1', (id,))
    return True


def requests(run_id: str) -> Operation[list[RequestRecord]]:
    """Read the requests of a run."""
    sql = f'{_rows.SELECT_REQUEST} WHERE r.run_id = ?1 ORDER BY r.number'
    return [_rows.request_from(row) for row in (yield Statement(sql, (_keys.pack_id(run_id),)))]


def calls(run_ids: Sequence[str]) -> Operation[list[CallRecord]]:
    """Read the tool calls of runs, in the order in which they started."""
    sql = _rows.SELECT_CALL.replace(' FROM', ', c.number FROM', 1) + ' WHERE c.run_id IN ({})'
    rows = yield from select_in(sql, map(_keys.pack_id, set(run_ids)))
    found = sorted(rows, key=lambda row: (row[10], row[12]))
    return [_rows.call_from(row[:12]) for row in found]


def delegations(parent_run_id: str | None, child_conversation_id: str | None) -> Operation[list[DelegationRecord]]:
    """Read delegations, oldest first."""
    values: list[Value] = []
    where = ['1 = 1']
    for column, id in (('parent_run_id', parent_run_id), ('child_conversation_id', child_conversation_id)):
        if id is not None:
            values.append(_keys.pack_id(id))
            where.append(f'{column} = ?{len(values)}')
    sql = f'SELECT {_rows.DELEGATION} FROM delegation WHERE {" AND ".join(where)} ORDER BY number'
    return [_rows.delegation_from(row) for row in (yield Statement(sql, values))]


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
    elif status is not None:
        values.append(status)
        where += [f'status = ?{len(values)}']
    if version_id is not None:
        values.append(_keys.pack_id(version_id))
        where.append(f'version_id = ?{len(values)}')
    if agent_name is not None:
        values.append(agent_name)
        where.append(f'agent_name = ?{len(values)}')
    sql = f'{_SELECT_APPROVAL} WHERE {" AND ".join(where)} ORDER BY number LIMIT ?2'
    return [_rows.approval_from(row, now) for row in (yield Statement(sql, values))]


def approval(id: str, now: int) -> Operation[ApprovalRecord]:
    """Read an approval by its id or the beginning of it."""
    rows = yield from find_by_prefix('approval', id)
    if len(rows) != 1:
        raise ApprovalNotFoundError(id)
    return _rows.approval_from((yield Statement(f'{_SELECT_APPROVAL} WHERE number = ?1', (rows[0][1],)))[0], now)


def decide(decisions: Sequence[Decision], now: int) -> Operation[list[ApprovalRecord]]:
    """Answer approvals, each by one compare-and-set; the first that cannot be answered undoes the others."""
    decided: list[ApprovalRecord] = []
    for each in decisions:
        sql = (
            'UPDATE approval SET status = ?2, decision = ?3, decided_by = ?4, reason = ?5, decided_at = ?6'
            " WHERE id = ?1 AND status = 'pending' AND arguments_digest = ?7 AND resumed_by IS NULL"
            f' AND (expires_at IS NULL OR expires_at > ?6) RETURNING {_rows.APPROVAL}'
        )
        answer = (each.status, each.decision, each.by, each.reason, now, each.arguments_digest)
        rows = yield Statement(sql, (_keys.pack_id(each.approval_id), *answer))
        if not rows:
            yield from _refuse(each, now)
        decided += [_rows.approval_from(row, now) for row in rows]
    return decided


def _refuse(decision: Decision, now: int) -> Operation[None]:
    """Say why an approval cannot be answered so."""
    rows = yield Statement(f'{_SELECT_APPROVAL} WHERE id = ?1', (_keys.pack_id(decision.approval_id),))
    if not rows:
        raise ApprovalNotFoundError(decision.approval_id)
    found = _rows.approval_from(rows[0], now)
    if found.status != 'pending':
        raise _answered(found)
    if found.resumed_by is not None:
        raise ApprovalAnsweredError(
            found.id, 'not open any more', None, None, f'The run {found.resumed_by} has gone on without an answer.'
        )
    raise ValueError(
        f'The decision on {found.id} is for arguments with the digest {decision.arguments_digest!r}, and the approval '
        f'has {found.arguments_digest!r}. Show it again, and decide on what it says.'
    )


def _answered(found: ApprovalRecord) -> ApprovalAnsweredError:
    if found.status == 'expired':
        return ApprovalAnsweredError(found.id, 'expired', None, found.expires_at, 'Nobody answered in time.')
    if found.status == 'superseded':
        detail = f'It waits on as {found.superseded_by}: answer that.'
        return ApprovalAnsweredError(found.id, 'superseded', None, None, detail)
    return ApprovalAnsweredError(found.id, found.status, found.decided_by, found.decided_at, 'The first answer counts.')


def claim_approvals(version_id: str, run_id: str, now: int) -> Operation[list[ApprovalRecord]]:
    """Note the run on all approvals of a version, unless another is noted on one."""
    number = yield from version_number(version_id)
    id = (yield Statement('SELECT id FROM version WHERE number = ?1', (number,)))[0][0]
    rows = yield Statement(f'{_SELECT_APPROVAL} WHERE version_id = ?1 ORDER BY number', (id,))
    found = [_rows.approval_from(row, now) for row in rows]
    for each in found:
        if each.resumed_by not in (None, run_id):
            detail = f'The run {each.resumed_by} has acted on it already.'
            raise ApprovalAnsweredError(each.id, each.status, each.decided_by, each.decided_at, detail)
    claim = 'UPDATE approval SET resumed_by = ?2 WHERE version_id = ?1 AND resumed_by IS NULL'
    yield Statement(claim, (id, _keys.pack_id(run_id)))
    return [each._replace(resumed_by=run_id) for each in found]


def workspace(backend: str) -> Operation[WorkspaceRecord | None]:
    """Read what is known of a directory."""
    rows = yield Statement('SELECT backend, version_id, run_id FROM workspace WHERE backend = ?1', (backend,))
    for found, version_id, run_id in rows:
        return WorkspaceRecord(
            str(found), None if version_id is None else id_from(version_id), None if run_id is None else id_from(run_id)
        )
    return None


def workspace_owner(backend: str) -> Operation[tuple[str, str] | None]:
    """Return which run works in a directory, and for which open store, unless that run has ended."""
    sql = (
        'SELECT w.run_id, w.owner FROM workspace w LEFT JOIN run r ON r.id = w.run_id'
        " WHERE w.backend = ?1 AND w.run_id IS NOT NULL AND (r.state IS NULL OR r.state = 'running')"
    )
    for run_id, owner in (yield Statement(sql, (backend,))):
        return id_from(run_id), str(owner)
    return None


def claim_workspace(
    backend: str, run_id: str, version_id: str | None, owner: str, dead_run_id: str | None
) -> Operation[bool]:
    """Let a run work in a directory where none works, or only one that is known to be dead."""
    known = yield from workspace(backend)
    if known is not None:
        working = yield from workspace_owner(backend)
        if working is not None and working[0] not in (run_id, dead_run_id):
            return False
        if known.version_id not in (None, version_id):
            return False
        if known.checkouts and not claimed_checkouts(run_id):
            raise UnfinishedCheckoutError(backend, known.checkouts[0])
    sql = (
        'INSERT INTO workspace (backend, version_id, run_id, owner) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (backend)'
        ' DO UPDATE SET version_id = excluded.version_id, run_id = excluded.run_id, owner = excluded.owner'
    )
    version = id_or_none(version_id if known is None else known.version_id)
    yield Statement(sql, (backend, version, _keys.pack_id(run_id), owner))
    return True
