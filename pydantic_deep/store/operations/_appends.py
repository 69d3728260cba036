"""The operation that appends messages to a branch, or to a new one if the branch has grown meanwhile."""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pydantic_deep.store.engine import Operation, Row, Statement, Value, for_update
from pydantic_deep.store.errors import BranchExistsError
from pydantic_deep.store.records import Append, BranchRecord
from pydantic_deep.store.sql import _keys, _rows
from pydantic_deep.store.sql._statements import id_from, insert, insert_many, integer, select_in, update

from ._contents import BRANCH, CONVERSATION, TAIL, put_messages, touch_condemned


class Appended(NamedTuple):
    """The result of an append."""

    branch: BranchRecord
    number: int
    conversation: int
    """The number of the branch's conversation."""
    messages: dict[str, int]
    """The numbers of the messages, keyed by id."""


def conversation_of(id: str, number: Value) -> int:
    """Return the number of a branch's conversation. Raises `ValueError` if it does not exist."""
    if number is None:
        raise ValueError(f'There is no conversation {id!r}. Add it to `conversations`, with or before its versions.')
    return integer(number)


_MARKS: Final = ', b.number, k.since, t.since, c.number, g.since FROM'
_JOIN_MARKS: Final = (
    f' LEFT JOIN condemned k ON k.kind = {BRANCH} AND k.number = b.number'
    f' LEFT JOIN condemned t ON t.kind = {TAIL} AND t.number = b.number'
    f' LEFT JOIN condemned g ON g.kind = {CONVERSATION} AND g.number = c.number WHERE b.id IN ({{}})'
)
_LOCK_BRANCH: Final = f'{_rows.SELECT_BRANCH.replace(" FROM", _MARKS, 1)}{_JOIN_MARKS}{for_update("b")}'
FIND_BRANCHES: Final = (
    f'SELECT b.id, b.number, b.conversation_id, c.number, b.name{_MARKS} branch b'
    f' LEFT JOIN conversation c ON c.id = b.conversation_id{_JOIN_MARKS}'
)
"""Queries for branches and their conversations, with the marks of garbage collection, for `find_branches`."""


def find_branches(sql: str, ids: set[str]) -> Operation[list[Row]]:
    """Return the rows of branches that must exist; no collection in progress removes them or their conversations."""
    while True:
        rows = yield from select_in(sql, map(_keys.pack_id, sorted(ids)))
        if missing := ids - {id_from(row[0]) for row in rows}:
            raise ValueError(f'There is no branch {min(missing)!r}. Commit it first, or add it to `branches`.')
        is_found = True
        for kind, number, since in ((BRANCH, -5, -4), (TAIL, -5, -3), (CONVERSATION, -2, -1)):
            marked = [row[number] for row in rows if row[since] is not None]
            is_found &= yield from touch_condemned(kind, marked)
        if is_found:
            return rows


def append(request: Append, bodies: Mapping[str, bytes], now: int) -> Operation[Appended]:
    """Append messages to a branch, or to a fork of it."""
    numbers = yield from put_messages(bodies, [message.id for message in request.messages if message.body is None])
    is_fork = request.is_fork or request.rewrites is not None
    stop = request.at + len(request.messages)
    rows = yield from find_branches(_LOCK_BRANCH, {request.branch_id})
    branch, number = _rows.branch_from(rows[0][:14]), integer(rows[0][9])
    conversation = conversation_of(branch.conversation_id, rows[0][10])
    if not is_fork and branch.tip_seq == request.at:
        branch = branch._replace(tip_seq=stop)
        yield from update('branch', 'tip_seq, seal', [(number, stop, _rows.branch_seal(branch, *rows[0][11:13]))])
    else:
        if not 0 <= request.at <= branch.tip_seq or not 0 <= (request.rewrites or 0) <= branch.tip_seq:
            wanted = max(request.at, request.rewrites or 0)
            raise ValueError(f'The branch {branch.id!r} has {branch.tip_seq} messages, not {wanted}.')
        branch, number = yield from _fork(request, branch, number, now)
    entries: list[Row] = [
        (number, seq, numbers[message.id], _rows.entry_seal(branch.id, seq, message.id))
        for seq, message in enumerate(request.messages, request.at)
    ]
    yield from insert_many('entry', _rows.ENTRY, entries)
    return Appended(branch, number, conversation, numbers)


def _fork(request: Append, origin: BranchRecord, number: int, now: int) -> Operation[tuple[BranchRecord, int]]:
    """Create a branch from the first messages of another. A history that is rewritten from its start has no parent."""
    is_whole_rewrite = request.rewrites is not None and request.at == 0
    branch = BranchRecord(
        id=request.fork_id,
        conversation_id=origin.conversation_id,
        name=request.fork_name or '',
        parent_id=None if is_whole_rewrite else origin.id,
        fork_seq=request.at,
        tip_seq=request.at + len(request.messages),
        rewrites_id=None if request.rewrites is None else origin.id,
        rewrites_seq=request.rewrites,
        created_at=now,
    )
    conversation = _keys.pack_id(branch.conversation_id)
    name = request.fork_name or ''
    count = 0
    if request.fork_name is None:
        rewritten = '' if request.rewrites is None else ' AND rewrites IS NOT NULL'
        sql = f'SELECT COUNT(*) FROM branch WHERE conversation_id = ?1{rewritten}'
        count = integer((yield Statement(sql, (conversation,)))[0][0]) + (request.rewrites is not None)
    while True:
        count += 1
        if request.fork_name is None:
            name = f'branch-{count}' if request.rewrites is None else f'{_base_name(origin)}.{count}'
        branch = branch._replace(name=name)
        row = _rows.branch_row(
            branch, None if is_whole_rewrite else number, None if request.rewrites is None else number
        )
        done = yield from insert('branch', _rows.BRANCH, [row], 'ON CONFLICT DO NOTHING RETURNING number')
        if done:
            return branch, integer(done[0][0])
        if (yield Statement('SELECT 1 FROM branch WHERE id = ?1', (_keys.pack_id(branch.id),))):
            raise ValueError(f'There is a branch {branch.id!r} already. Use a new id.')
        if request.fork_name is not None:
            raise BranchExistsError(request.fork_name)


def _base_name(branch: BranchRecord) -> str:
    """Return the name without a rewrite's number: `main` is rewritten as `main.2`, then `main.3`."""
    return branch.name.rpartition('.')[0] if branch.rewrites_id is not None and '.' in branch.name else branch.name
