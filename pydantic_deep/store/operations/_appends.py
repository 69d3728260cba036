"""The operation that puts messages on a branch, or on a new one if somebody was faster."""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic_deep.store.engine import Operation, Row, Statement, Value
from pydantic_deep.store.errors import BranchExistsError
from pydantic_deep.store.records import Append, BranchRecord
from pydantic_deep.store.sql import _keys, _rows
from pydantic_deep.store.sql._statements import insert, insert_many, integer, update

from ._contents import put_messages


class Appended(NamedTuple):
    """Where messages went."""

    branch: BranchRecord
    number: int
    conversation: int
    """The number of its conversation."""
    messages: dict[str, int]
    """The numbers of the messages by id."""


def conversation_of(id: str, number: Value) -> int:
    """Return the number of the conversation of a branch. Raises `ValueError` if it is not there."""
    if number is None:
        raise ValueError(f'There is no conversation {id!r}. Name it in `conversations`, with or before its versions.')
    return integer(number)


def append(asked: Append, bodies: Mapping[str, bytes], now: int) -> Operation[Appended]:
    """Append messages."""
    numbers = yield from put_messages(bodies, [each.id for each in asked.messages if each.body is None])
    is_fork = asked.is_fork or asked.rewrites is not None
    stop = asked.at + len(asked.messages)
    rows = yield Statement(f'{_rows.SELECT_BRANCH} WHERE b.id = ?1', (_keys.pack_id(asked.branch_id),))
    if not rows:
        raise ValueError(f'There is no branch {asked.branch_id!r}. Commit it first, or name it in `branches`.')
    branch, number = _rows.branch_from(rows[0]), integer(rows[0][9])
    conversation = conversation_of(branch.conversation_id, rows[0][10])
    if not is_fork and branch.tip_seq == asked.at:
        branch = branch._replace(tip_seq=stop)
        yield from update('branch', 'tip_seq, seal', [(number, stop, _rows.branch_seal(branch, *rows[0][11:13]))])
    else:
        if not 0 <= asked.at <= branch.tip_seq or not 0 <= (asked.rewrites or 0) <= branch.tip_seq:
            wanted = max(asked.at, asked.rewrites or 0)
            raise ValueError(f'The branch {branch.id!r} has {branch.tip_seq} messages, not {wanted}.')
        branch, number = yield from _fork(asked, branch, number, now)
    entries: list[Row] = [
        (number, seq, numbers[each.id], _rows.entry_seal(branch.id, seq, each.id))
        for seq, each in enumerate(asked.messages, asked.at)
    ]
    yield from insert_many('entry', _rows.ENTRY, entries)
    return Appended(branch, number, conversation, numbers)


def _fork(asked: Append, origin: BranchRecord, number: int, now: int) -> Operation[tuple[BranchRecord, int]]:
    """Make a branch of the first messages of another; a history that is told anew from its beginning has no parent."""
    begins_anew = asked.rewrites is not None and asked.at == 0
    branch = BranchRecord(
        id=asked.fork_id,
        conversation_id=origin.conversation_id,
        name=asked.fork_name or '',
        parent_id=None if begins_anew else origin.id,
        fork_seq=asked.at,
        tip_seq=asked.at + len(asked.messages),
        rewrites_id=None if asked.rewrites is None else origin.id,
        rewrites_seq=asked.rewrites,
        created_at=now,
    )
    conversation = _keys.pack_id(branch.conversation_id)
    name = asked.fork_name or ''
    count = 0
    if asked.fork_name is None:
        rewritten = '' if asked.rewrites is None else ' AND rewrites IS NOT NULL'
        sql = f'SELECT COUNT(*) FROM branch WHERE conversation_id = ?1{rewritten}'
        count = integer((yield Statement(sql, (conversation,)))[0][0]) + (asked.rewrites is not None)
    while True:
        count += 1
        if asked.fork_name is None:
            name = f'branch-{count}' if asked.rewrites is None else f'{_base_name(origin)}.{count}'
        branch = branch._replace(name=name)
        row = _rows.branch_row(branch, None if begins_anew else number, None if asked.rewrites is None else number)
        done = yield from insert('branch', _rows.BRANCH, [row], 'ON CONFLICT DO NOTHING RETURNING number')
        if done:
            return branch, integer(done[0][0])
        if (yield Statement('SELECT 1 FROM branch WHERE id = ?1', (_keys.pack_id(branch.id),))):
            raise ValueError(f'There is a branch {branch.id!r} already. Make a new id.')
        if asked.fork_name is not None:
            raise BranchExistsError(asked.fork_name)


def _base_name(branch: BranchRecord) -> str:
    """Return the name without the number of a rewrite: `main` is rewritten as `main.2`, then `main.3`."""
    return branch.name.rpartition('.')[0] if branch.rewrites_id is not None and '.' in branch.name else branch.name
