"""Operations that delete versions. Children retain the id of their parent and lose the edge to it.

A version is locked before anything that refers to it is read: commits lock the versions to which they refer, too. Like a
commit, a deletion locks all versions before the head of their conversation. In another order, the two would deadlock.
"""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pydantic_deep.store.engine import Operation, Statement, for_key_share, for_update
from pydantic_deep.store.errors import VersionNotFoundError
from pydantic_deep.store.sql import _keys, _rows
from pydantic_deep.store.sql._statements import id_from, integer, select_in
from pydantic_deep.store.sql._tallies import cut_edges, remove

from ._commits import PARENT, move_head
from ._queue import refuse_if_busy
from ._reads import version_number


def delete(id: str, orphans: Collection[str] | None = None) -> Operation[None]:
    """Delete one version, unless a run from it is active that is not among these; `None` if that does not matter."""
    number = yield from _lock(id)
    if orphans is not None:
        ((version, conversation),) = yield Statement(_IDS, (number,))
        yield from refuse_if_busy(id_from(conversation), id_from(version), orphans)
    for row in (yield from _with_steps(number, ())):
        yield from _remove_row(row)


def delete_line(head_id: str) -> Operation[int]:
    """Delete a version and its ancestors; return the number deleted.

    Stops before the first ancestor with other descendants, or with a run that continues from it.
    """
    number: int | None = yield from _lock(head_id)
    rows: dict[int, None] = {}  # a set with an order
    count = 0
    while number is not None:
        rows |= dict.fromkeys((yield from _with_steps(number, rows)))
        count += 1
        number = yield from _lock_parent(number, rows)
    for row in rows:
        yield from _remove_row(row)
    return count


def delete_conversations(ids: Collection[str], orphans: Collection[str]) -> Operation[None]:
    """Delete all versions of conversations, unless a run of one of them is active that is not among the orphans."""
    for id in ids:
        yield from _delete_conversation(id, orphans)


def _delete_conversation(id: str, orphans: Collection[str]) -> Operation[None]:
    key = (_keys.pack_id(id),)
    versions = 'FROM version v JOIN conversation c ON c.number = v.conversation WHERE c.id = ?1'
    lock = f'SELECT v.number {versions} ORDER BY v.number{for_update("v")}'
    numbers: list[int] = []
    while (locked := [integer(row[0]) for row in (yield Statement(lock, key))]) != numbers:
        numbers = locked  # a version may have been added before its parent was locked
    yield from refuse_if_busy(id, None, orphans)
    yield from remove('approval', f"status = 'pending' AND version_id IN (SELECT v.id {versions})", key)
    head = f'SELECT {_rows.CONVERSATION}, number FROM conversation WHERE id = ?1 AND head_id IS NOT NULL{for_update()}'
    for row in (yield Statement(head, key)):
        yield from move_head(_rows.conversation_from(row[:-1]), integer(row[-1]), None)
    yield from cut_edges(numbers)
    yield from remove('edge', f'child IN (SELECT v.number {versions})', key)
    yield from remove('version', 'conversation = (SELECT c.number FROM conversation c WHERE c.id = ?1)', key)


_IDS: Final = 'SELECT v.id, c.id FROM version v JOIN conversation c ON c.number = v.conversation WHERE v.number = ?1'
_LOCK: Final = f'SELECT number FROM version WHERE number = ?1{for_update()}'
"""From here on no commit can refer to the version."""


def _lock(id: str) -> Operation[int]:
    number = yield from version_number(id)
    if not (yield Statement(_LOCK, (number,))):
        raise VersionNotFoundError(id, 'It was deleted.')
    return number


def _lock_parent(number: int, rows: Collection[int]) -> Operation[int | None]:
    """Lock the parent of a version, and return it unless a version other than `rows`, or a run, descends from it."""
    parents = yield Statement(f'SELECT parent FROM edge WHERE child = ?1 AND kind = {PARENT}', (number,))
    if not parents or parents[0][0] is None:
        return None
    parent = integer(parents[0][0])
    if not (yield Statement(_LOCK, (parent,))):
        return None
    children = yield Statement('SELECT child FROM edge WHERE parent = ?1 LIMIT ?2', (parent, len(rows) + 1))
    if any(child not in rows for [child] in children):
        return None
    running = "SELECT 1 FROM run r JOIN version v ON v.id = r.base_id WHERE v.number = ?1 AND r.state = 'running'"
    return None if (yield Statement(running, (parent,))) else parent


def _with_steps(number: int, rows: Collection[int]) -> Operation[list[int]]:
    """Return a version and the steps of its turn, without steps that have descendants other than these and `rows`."""
    steps = yield from _steps_of(number)
    edges = yield from select_in('SELECT parent, child FROM edge WHERE parent IN ({})', steps)
    preserved = {parent for parent, child in edges if child != number and child not in steps and child not in rows}
    while more := {parent for parent, child in edges if child in preserved} - preserved:
        preserved |= more
    return [number, *sorted(steps - preserved, reverse=True)]


def _steps_of(number: int) -> Operation[set[int]]:
    """Lock and return the steps of the turn that a version ends, including those of the runs that it recovered."""
    sql = (
        'WITH RECURSIVE attempt (id) AS ('
        "SELECT run_id FROM version WHERE number = ?1 AND kind IN ('turn', 'pause')"
        ' UNION SELECT r.attempt_of FROM attempt a JOIN run r ON r.id = a.id WHERE r.attempt_of IS NOT NULL)'
        " SELECT number FROM version WHERE kind = 'step' AND run_id IN (SELECT id FROM attempt) ORDER BY number"
        f'{for_update()}'
    )
    return {integer(row[0]) for row in (yield Statement(sql, (number,)))}


def _remove_row(number: int) -> Operation[None]:
    """Delete the row, cut the edges to it, and move heads that point to it to its parent."""
    is_pending = "status = 'pending' AND version_id = (SELECT id FROM version WHERE number = ?1)"
    yield from remove('approval', is_pending, (number,))  # an answer could no longer have an effect
    above = (
        'SELECT p.id FROM version v JOIN branch b ON b.number = v.branch JOIN edge e ON e.child = v.number AND e.kind = 0'
        ' JOIN version p ON p.number = e.parent JOIN branch pb ON pb.number = p.branch'
        f' WHERE v.number = ?1 AND pb.conversation_id = b.conversation_id{for_key_share("p")}'
    )
    rows = yield Statement(above, (number,))
    head = rows[0][0] if rows else None
    conversation = 'SELECT b.conversation_id FROM version v JOIN branch b ON b.number = v.branch WHERE v.number = ?1'
    sql = (
        f'SELECT {_rows.CONVERSATION}, number FROM conversation WHERE id = ({conversation})'
        f' AND head_id = (SELECT id FROM version WHERE number = ?1){for_update()}'
    )
    for row in (yield Statement(sql, (number,))):
        above_id = None if head is None else id_from(head)
        yield from move_head(_rows.conversation_from(row[:-1]), integer(row[-1]), above_id)
    yield from cut_edges([number])
    yield from remove('edge', 'child = ?1', (number,))
    yield from remove('version', 'number = ?1', (number,))
