"""Garbage collection: mark reachable rows, condemn the rest, remove rows that stayed condemned.

Roots are manually created versions, runs that are `running`, and pending approvals. Marking proceeds to conversations,
branches (with the number of reachable messages), messages, the subagents' conversations that these delegated to, whose
versions are marked in the same way, trees and assets. The database joins the sets; only tree nodes are read, because
their references are in their content.

Marking reads one snapshot, and the changes follow in short transactions, between which others may write. Up to 1,000
rows are removed in one transaction:

- A commit that refers to a condemned row deletes or changes its mark in `condemned`. A collection removes a row only with
  the mark that the snapshot had, so it never removes a row that a later commit refers to.
- A snapshot begins after the end of the writes in progress. A commit that found a row before it was condemned is
  therefore complete when the next collection marks, and that one is the first that may remove the row. A collection
  removes only rows whose marks it read before it waited: another collection may condemn rows meanwhile.
- Rows are condemned before those to which they refer, and pardoned after them. So a mark is never younger than those of
  the rows that its row refers to, even if a collection fails in the middle.
- Rows are removed before those to which they refer. A collection ends at the first mark that has changed meanwhile: what
  that row refers to is still there, and is reachable for the next collection.
"""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from typing import Final

from pydantic_deep.store.engine import Engine, Operation, Row, Statement, Value, for_update
from pydantic_deep.store.records import GarbageReport
from pydantic_deep.store.sql import _keys, _rows
from pydantic_deep.store.sql._commit_rows import digests_in
from pydantic_deep.store.sql._statements import bytes_from, chunks, insert_many, integer, marks, select_in, update
from pydantic_deep.store.sql._tallies import COUNTED, complete, cut_edges, merge_tallies, remove
from pydantic_deep.store.sql.dialect import SupportsTables
from pydantic_deep_backends.snapshots import node_references

from ._contents import ASSET, BRANCH, CONFIG, CONVERSATION, MESSAGE, NODE, TAIL, clear_condemned

_TABLES: Final = {
    CONVERSATION: 'conversation',
    BRANCH: 'branch',
    TAIL: 'branch',
    MESSAGE: 'message',
    NODE: 'node',
    ASSET: 'asset',
    CONFIG: 'config',
}
_REPORTED: Final = ('conversation', 'branch', 'message', 'node', 'asset', 'run')
_SIZES: Final = {MESSAGE: 'LENGTH(body)', NODE: 'LENGTH(data)', ASSET: 'LENGTH(data)'}
"""Kinds of rows with content, which is counted in bytes."""

_BATCH: Final = 500
"""Maximum number of rows of a kind in one transaction. A conversation is removed with everything that is its own."""

_WHOLE: Final = 1000
"""Maximum number of rows that a collection removes in one transaction, or not at all."""

_CONVERSATIONS: Final = 10
"""Maximum number of conversations in one transaction."""

_RUNNING: Final = "SELECT conversation_id FROM run WHERE state = 'running'"

_IS_LIVE: Final = f'EXISTS (SELECT 1 FROM marked m WHERE m.kind = {CONVERSATION} AND m.number = v.conversation)'
_LIVE_VERSIONS: Final = f'SELECT v.* FROM version v WHERE {_IS_LIVE}'
_LIVE_RUNS: Final = (
    'SELECT r.id FROM run r JOIN conversation c ON c.id = r.conversation_id'
    f' JOIN marked m ON m.kind = {CONVERSATION} AND m.number = c.number'
)

_DELEGATED: Final = 'SELECT 1 FROM run d WHERE d.parent_run_id IS NOT NULL AND'
_MARK_CONVERSATIONS: Final = (
    f'INSERT INTO marked (kind, number) SELECT {CONVERSATION}, c.number FROM conversation c WHERE c.id IN ({_RUNNING})'
    " OR c.id IN (SELECT conversation_id FROM approval WHERE status = 'pending')"
    ' OR EXISTS (SELECT 1 FROM version v WHERE v.conversation = c.number AND ('
    f'NOT EXISTS ({_DELEGATED} d.conversation_id = c.id) OR v.cloned_from IS NOT NULL'
    " OR v.config IN (SELECT number FROM config WHERE name IS NOT NULL OR metadata <> '{}')"
    f' OR (v.run_id IS NOT NULL AND NOT EXISTS ({_DELEGATED} d.id = v.run_id))'
    " OR (v.run_id IS NULL AND v.kind <> 'root'"
    f' AND NOT EXISTS ({_DELEGATED} d.conversation_id = c.id AND d.base_id = v.id))))'
)
"""Conversations with anything beyond subagent runs. The results of those are reachable from the delegating message.

A run that continues a history which the store does not contain starts from an edit.
"""

_IS_DELEGATION_REACHABLE: Final = (
    f'EXISTS (SELECT 1 FROM message x JOIN marked m ON m.kind = {MESSAGE} AND m.number = x.number'
    ' WHERE x.id = delegation.response_id)'
)
_MARK_THREADS: Final = (
    f'INSERT INTO marked (kind, number) SELECT {CONVERSATION}, c.number FROM delegation'
    f' JOIN conversation c ON c.id = delegation.child_conversation_id WHERE {_IS_DELEGATION_REACHABLE}'
    f' OR EXISTS (SELECT 1 FROM version v WHERE v.run_id = delegation.parent_run_id AND {_IS_LIVE})'
    ' ON CONFLICT DO NOTHING RETURNING number'
)
_MARK_BRANCHES: Final = (
    'INSERT INTO marked (kind, number) WITH RECURSIVE live (number) AS ('
    f'SELECT branch FROM ({_LIVE_VERSIONS}) v UNION SELECT number FROM branch WHERE conversation_id IN ({_RUNNING})'
    ' UNION SELECT CASE side.n WHEN 0 THEN b.parent ELSE b.rewrites END FROM live JOIN branch b ON b.number = live.number'
    ' CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1) side'
    ' WHERE CASE side.n WHEN 0 THEN b.parent ELSE b.rewrites END IS NOT NULL)'
    f' SELECT {BRANCH}, number FROM live WHERE 1 = 1 ON CONFLICT DO NOTHING'
)
_LIVE_BRANCHES: Final = f'branch b JOIN marked m ON m.kind = {BRANCH} AND m.number = b.number'
_REACH: Final = (
    'INSERT INTO reach (branch, done, stop) SELECT number, 0, MAX(stop) FROM ('
    f'SELECT branch AS number, message_count AS stop FROM ({_LIVE_VERSIONS}) v'
    f' UNION ALL SELECT b.number, b.fork_seq FROM {_LIVE_BRANCHES}'
    f' UNION ALL SELECT b.parent, b.fork_seq FROM {_LIVE_BRANCHES} WHERE b.parent IS NOT NULL'
    f' UNION ALL SELECT b.rewrites, b.rewrites_seq FROM {_LIVE_BRANCHES} WHERE b.rewrites IS NOT NULL'
    f' UNION ALL SELECT number, tip_seq FROM branch WHERE conversation_id IN ({_RUNNING})) reached GROUP BY number'
    ' ON CONFLICT (branch) DO UPDATE SET done = reach.stop, stop = excluded.stop'
)
"""The number of reachable messages per branch. `done` of them are marked already, if subagents' conversations have
extended the range.
"""
_MARK_MESSAGES: Final = (
    f'INSERT INTO marked (kind, number) SELECT DISTINCT {MESSAGE}, e.message FROM reach r'
    ' JOIN entry e ON e.branch = r.branch AND e.seq >= r.done AND e.seq < r.stop WHERE 1 = 1 ON CONFLICT DO NOTHING'
)
_MARK_ASSETS: Final = (
    'INSERT INTO marked (kind, number) WITH RECURSIVE live (number) AS ('
    f'SELECT pending FROM ({_LIVE_VERSIONS}) v WHERE pending IS NOT NULL'
    f' UNION SELECT deps FROM ({_LIVE_VERSIONS}) v WHERE deps IS NOT NULL'
    f' UNION SELECT parameters FROM request WHERE parameters IS NOT NULL AND run_id IN ({_LIVE_RUNS})'
    f' UNION SELECT message_digests FROM request WHERE message_digests IS NOT NULL AND run_id IN ({_LIVE_RUNS})'
    ' UNION SELECT a.number FROM asset a JOIN named n ON n.digest = a.digest'
    f' UNION SELECT r.asset FROM reference r JOIN marked m ON m.kind = {MESSAGE} AND m.number = r.source'
    f' WHERE r.kind = {MESSAGE}'
    f' UNION SELECT r.asset FROM live JOIN reference r ON r.kind = {ASSET} AND r.source = live.number)'
    f' SELECT {ASSET}, number FROM live'
)

_MARK_TAILS: Final = (
    f'INSERT INTO marked (kind, number) SELECT {TAIL}, b.number FROM branch b LEFT JOIN reach r ON r.branch = b.number'
    ' WHERE b.tip_seq <= COALESCE(r.stop, b.fork_seq)'
)
_MARK_CONFIGS: Final = f'INSERT INTO marked (kind, number) SELECT DISTINCT {CONFIG}, config FROM version'
_IS_MARKED: Final = 'EXISTS (SELECT 1 FROM marked m WHERE m.kind = {kind} AND m.number = {alias}.number)'


@dataclass(frozen=True, kw_only=True)
class _Garbage:
    """The result of marking."""

    unmarked: Mapping[int, Sequence[int]]
    """Unreachable rows that are not condemned, by kind. Each row precedes those of its kind to which it refers."""
    pardoned: Mapping[int, Sequence[int]]
    """Condemned rows that are reachable, or do not exist, by kind. Each row follows those of its kind to which it refers.
    """
    expired: Mapping[int, Mapping[int, int]]
    """Unreachable rows that were condemned for long enough, with the time of their condemnation, by kind. Each row
    precedes those of its kind to which it refers.
    """
    stops: Mapping[int, int]
    """The number of reachable messages of each branch with an expired tail."""
    branches: Mapping[int, Sequence[int]]
    """The expired branches of each expired conversation."""


async def collect_garbage(engine: Engine, now: int, grace: int) -> GarbageReport:
    """Collect garbage; `grace` is in microseconds. A missing row is an error: its references cannot be marked."""
    if isinstance(engine, SupportsTables):
        await engine.write(partial(merge_tallies, engine.dialect))
    if not grace:
        await _condemn(engine, await _mark(engine, now, grace), now)
    garbage = await _mark(engine, now, grace)
    await _condemn(engine, garbage, now)
    removed: Counter[str] = Counter(dict.fromkeys(_REPORTED, 0))
    freed = 0
    batches: Iterable[_Batch] = _batches(garbage)
    if 0 < sum(map(len, garbage.expired.values())) <= _WHOLE:
        batches = [partial(_remove_all, garbage)]
    for batch in batches:
        result = await engine.write(batch)
        if result is None:
            break
        removed.update(result[0])
        freed += result[1]
    condemned = await engine.read(_count_condemned)
    return GarbageReport(removed={table: removed[table] for table in _REPORTED}, condemned=condemned, freed_bytes=freed)


async def _mark(engine: Engine, now: int, grace: int) -> _Garbage:
    condemned = await engine.read(partial(_condemned, now - grace))
    await engine.wait_for_writes()
    return await engine.read_with_tables(partial(_find_garbage, condemned))


def _condemned(before: int) -> Operation[set[Row]]:
    """Read the marks that are old enough, as (kind, number, since)."""
    return set((yield Statement('SELECT kind, number, since FROM condemned WHERE since <= ?1', (before,))))


async def _condemn(engine: Engine, garbage: _Garbage, now: int) -> None:
    """Clear the marks of reachable rows, and condemn unreachable ones."""
    for kind in reversed(_TABLES):
        for numbers in chunks(garbage.pardoned[kind], _BATCH):
            await engine.write(partial(clear_condemned, kind, numbers))
    for kind in _TABLES:
        for numbers in chunks(garbage.unmarked[kind], _BATCH):
            rows: list[Row] = [(kind, number, now) for number in numbers]
            await engine.write(partial(_insert_marks, rows))


def _insert_marks(rows: Sequence[Row]) -> Operation[None]:
    yield from insert_many('condemned', 'kind, number, since', rows, 'ON CONFLICT DO NOTHING')


def _count_condemned() -> Operation[int]:
    sql = f'SELECT COUNT(*) FROM condemned WHERE kind IN ({CONVERSATION}, {BRANCH}, {MESSAGE}, {NODE}, {ASSET})'
    return integer((yield Statement(sql))[0][0])


def _find_garbage(condemned: Collection[Row]) -> Operation[_Garbage]:
    """Mark all reachable rows in temporary tables, and return the others.

    Args:
        condemned: The marks of rows that may be removed.
    """
    yield from complete(COUNTED)
    yield Statement('CREATE TEMPORARY TABLE marked (kind BIGINT, number BIGINT, PRIMARY KEY (kind, number))')
    yield Statement('CREATE TEMPORARY TABLE doomed (kind BIGINT, number BIGINT, PRIMARY KEY (kind, number))')
    yield Statement('CREATE TEMPORARY TABLE reach (branch BIGINT PRIMARY KEY, done BIGINT, stop BIGINT)')
    yield Statement('CREATE TEMPORARY TABLE named AS SELECT digest FROM asset WHERE 1 = 0')
    yield Statement('CREATE UNIQUE INDEX named_digest ON named (digest)')
    yield from _mark_messages()
    yield from _mark_trees()
    yield from _mark_unsettled_assets()
    for sql in (_MARK_ASSETS, _MARK_TAILS, _MARK_CONFIGS):
        yield Statement(sql)
    garbage = yield from _unreached(condemned)
    for table in ('marked', 'doomed', 'reach', 'named'):
        yield Statement(f'DROP TABLE {table}')
    return garbage


def _mark_messages() -> Operation[None]:
    """Mark conversations, branches and messages, and repeat for each level of subagents' conversations."""
    yield Statement(_MARK_CONVERSATIONS)
    while True:
        for sql in (_MARK_BRANCHES, _REACH, _MARK_MESSAGES):
            yield Statement(sql)
        if not (yield Statement(_MARK_THREADS)):
            return


def _mark_trees() -> Operation[None]:
    """Mark the nodes of all trees, level by level, and collect the files in them."""
    rows = yield Statement(
        f'SELECT n.digest FROM node n JOIN (SELECT tree FROM ({_LIVE_VERSIONS}) v WHERE tree IS NOT NULL UNION'
        f' SELECT tree FROM tool_call WHERE tree IS NOT NULL AND run_id IN ({_LIVE_RUNS})) t ON t.tree = n.number'
    )
    level: set[Value] = {row[0] for row in rows}
    seen: set[Value] = set()
    files: set[str] = set()
    while level:
        rows = yield from select_in('SELECT number, data FROM node WHERE digest IN ({})', level)
        yield from insert_many('marked', 'kind, number', [(NODE, number) for number, _ in rows])
        seen |= level
        below: set[str] = set()
        for _, data in rows:
            nodes, blobs = node_references(bytes_from(data))
            below.update(nodes)
            files.update(blobs)
        packed: set[Value] = {_keys.pack_digest(digest) for digest in below}
        level = packed - seen
    yield from _mark_assets(files)


def _mark_unsettled_assets() -> Operation[None]:
    """Mark the assets of prompts and results that no message contains yet."""
    for column, table, run in (('prompt', 'run', 'id'), ('options', 'run', 'id'), ('result', 'tool_call', 'run_id')):
        rows = yield Statement(f'SELECT {column} FROM {table} WHERE {column} IS NOT NULL AND {run} IN ({_LIVE_RUNS})')
        yield from _mark_assets({digest for row in rows for digest in digests_in(bytes_from(row[0]))})


def _mark_assets(digests: set[str]) -> Operation[None]:
    rows: list[Row] = [(_keys.pack_digest(digest),) for digest in sorted(digests)]
    yield from insert_many('named', 'digest', rows, 'ON CONFLICT DO NOTHING')


def _unreached(condemned: Collection[Row]) -> Operation[_Garbage]:
    unmarked: dict[int, list[int]] = {}
    pardoned: dict[int, list[int]] = {}
    for kind, table in _TABLES.items():
        is_reached = _IS_MARKED.format(kind=kind, alias='x')
        is_condemned = f'EXISTS (SELECT 1 FROM condemned g WHERE g.kind = {kind} AND g.number = x.number)'
        sql = f'SELECT x.number FROM {table} x WHERE NOT {is_reached} AND NOT {is_condemned} ORDER BY x.number DESC'
        unmarked[kind] = [integer(row[0]) for row in (yield Statement(sql))]
        sql = (
            f'SELECT g.number FROM condemned g WHERE g.kind = {kind} AND ({_IS_MARKED.format(kind=kind, alias="g")}'
            f' OR NOT EXISTS (SELECT 1 FROM {table} x WHERE x.number = g.number)) ORDER BY g.number'
        )
        pardoned[kind] = [integer(row[0]) for row in (yield Statement(sql))]
        sql = (
            f'SELECT g.kind, g.number, g.since FROM condemned g JOIN {table} x ON x.number = g.number'
            f' WHERE g.kind = {kind} AND NOT {is_reached}'
        )
        doomed = [row[:2] for row in (yield Statement(sql)) if row in condemned]
        yield from insert_many('doomed', 'kind, number', doomed)
    unmarked[ASSET] = yield from _referring_first(unmarked[ASSET])
    pardoned[ASSET] = (yield from _referring_first(pardoned[ASSET]))[::-1]
    expired: dict[int, dict[int, int]] = {}
    for kind in _TABLES:
        expired[kind] = yield from _expired(kind)
    expired[ASSET] = {number: expired[ASSET][number] for number in (yield from _referring_first(expired[ASSET]))}
    stops = yield Statement(
        'SELECT b.number, COALESCE(r.stop, b.fork_seq) FROM branch b LEFT JOIN reach r ON r.branch = b.number'
        f' JOIN doomed d ON d.kind = {TAIL} AND d.number = b.number'
    )
    branches: dict[int, list[int]] = {number: [] for number in expired[CONVERSATION]}
    for conversation, branch in (yield Statement(_BRANCHES)):
        branches[integer(conversation)].append(integer(branch))
    return _Garbage(
        unmarked=unmarked,
        pardoned=pardoned,
        expired=expired,
        stops={integer(number): integer(stop) for number, stop in stops},
        branches=branches,
    )


_BRANCHES: Final = (
    'SELECT c.number, b.number FROM branch b JOIN conversation c ON c.id = b.conversation_id'
    f' JOIN doomed d ON d.kind = {CONVERSATION} AND d.number = c.number'
    f' JOIN doomed e ON e.kind = {BRANCH} AND e.number = b.number'
)


def _expired(kind: int) -> Operation[dict[int, int]]:
    """Return the expired rows of a kind, newest first: nodes, branches and versions refer to older ones."""
    rows = yield Statement(
        'SELECT g.number, g.since FROM condemned g JOIN doomed d ON d.kind = g.kind AND d.number = g.number'
        ' WHERE g.kind = ?1 ORDER BY g.number DESC',
        (kind,),
    )
    return {integer(number): integer(since) for number, since in rows}


def _referring_first(assets: Collection[int]) -> Operation[list[int]]:
    """Order assets so that each precedes those that it mentions."""
    sorter = TopologicalSorter[int](dict.fromkeys(assets, ()))
    if assets:
        for source, asset in (yield Statement(f'SELECT source, asset FROM reference WHERE kind = {ASSET}')):
            sorter.add(integer(asset), integer(source))
    wanted = set(assets)
    return [number for number in sorter.static_order() if number in wanted]


_Removed = tuple[dict[str, int], int]
"""Numbers of removed rows by table, and their size in bytes."""

_Batch = Callable[[], Operation[_Removed | None]]
"""Removes rows, or returns `None` if one of them is no longer condemned, in which case it removes nothing."""


def _batches(garbage: _Garbage) -> Iterator[_Batch]:
    expired = garbage.expired
    own = {branch for branches in garbage.branches.values() for branch in branches}
    for number in sorted({*garbage.stops, *expired[BRANCH]} - own, reverse=True):
        yield from _branch_batches(garbage, number)
    for numbers in chunks(expired[CONVERSATION], _CONVERSATIONS):
        yield partial(_remove_conversations, garbage, numbers)
    for kind in (MESSAGE, NODE, ASSET, CONFIG):
        for numbers in chunks(expired[kind], _BATCH):
            yield partial(_remove_contents, kind, {number: expired[kind][number] for number in numbers})


def _remove_all(garbage: _Garbage) -> Operation[_Removed]:
    """Remove all rows in one transaction, up to the first that is no longer condemned."""
    removed, freed = Counter[str](), 0
    for batch in _batches(garbage):
        result = yield from batch()
        if result is None:
            break
        removed.update(result[0])
        freed += result[1]
    return dict(removed), freed


def _take_marks(*marks_by_kind: tuple[int, Mapping[int, int]]) -> Operation[bool]:
    """Delete the marks of rows if all are those of the snapshot; return whether they were."""
    sql = f'SELECT number, since FROM condemned WHERE kind = ?1 AND number IN ({{}}) ORDER BY number{for_update()}'
    for kind, since_by_number in marks_by_kind:
        rows = yield from select_in(sql, sorted(since_by_number), kind)
        if {number: since for number, since in rows} != since_by_number:  # noqa: C416 - a row is not typed as a pair
            return False
    for kind, since_by_number in marks_by_kind:
        yield from clear_condemned(kind, since_by_number)
    return True


def _remove_contents(kind: int, since_by_number: Mapping[int, int]) -> Operation[_Removed | None]:
    if not (yield from _take_marks((kind, since_by_number))):
        return None
    numbers: list[Value] = [*since_by_number]
    listed = f'({marks(len(numbers))})'
    size = 0
    if kind in _SIZES:
        sql = f'SELECT SUM({_SIZES[kind]}) FROM {_TABLES[kind]} WHERE number IN {listed}'
        size = int((yield Statement(sql, numbers))[0][0] or 0)
    if kind in (MESSAGE, ASSET):
        yield from remove('reference', f'kind = {kind} AND source IN {listed}', numbers)
    if kind == CONFIG:
        yield from remove('config_field', f'config IN {listed}', numbers)
    return {_TABLES[kind]: (yield from remove(_TABLES[kind], f'number IN {listed}', numbers))}, size


_UNREACHABLE_DELEGATION: Final = (
    'NOT EXISTS (SELECT 1 FROM message x WHERE x.id = delegation.response_id AND NOT EXISTS'
    f' (SELECT 1 FROM condemned g WHERE g.kind = {MESSAGE} AND g.number = x.number))'
)


def _remove_conversations(garbage: _Garbage, numbers: Sequence[int]) -> Operation[_Removed | None]:
    """Remove conversations with everything that is their own.

    Their versions are those of subagents: versions of other conversations keep their conversation reachable.
    """
    listed = f'({marks(len(numbers))})'
    sql = f'SELECT number FROM version WHERE conversation IN {listed} ORDER BY number{for_update()}'
    versions = [row[0] for row in (yield Statement(sql, numbers))]
    branches = [branch for number in numbers for branch in garbage.branches[number]]
    yield from select_in(f'SELECT number FROM branch WHERE number IN ({{}}) ORDER BY number{for_update()}', branches)
    own = [
        (kind, {number: garbage.expired[kind][number] for number in rows})
        for kind, rows in ((BRANCH, branches), (CONVERSATION, numbers))
    ]
    if not (yield from _take_marks(*own)):
        return None
    yield from clear_condemned(TAIL, branches)
    ids = f'(SELECT id FROM conversation WHERE number IN {listed})'
    runs = f'(SELECT id FROM run WHERE conversation_id IN {ids})'
    for table in ('request', 'tool_call'):
        yield from remove(table, f'run_id IN {runs}', numbers)
    yield from remove('delegation', f'child_conversation_id IN {ids}', numbers)
    yield from remove('delegation', f'parent_run_id IN {runs} AND {_UNREACHABLE_DELEGATION}', numbers)
    yield from cut_edges(versions)
    yield from remove('edge', f'child IN (SELECT number FROM version WHERE conversation IN {listed})', numbers)
    yield from remove('version', f'conversation IN {listed}', numbers)
    yield from remove('approval', f'conversation_id IN {ids}', numbers)
    removed = {'run': (yield from remove('run', f'conversation_id IN {ids}', numbers))}
    for chunk in chunks(branches, _BATCH):
        yield from remove('entry', f'branch IN ({marks(len(chunk))})', chunk)
        count = yield from remove('branch', f'number IN ({marks(len(chunk))})', chunk)
        removed['branch'] = removed.get('branch', 0) + count
    # A branch that another conversation continues remains, and its conversation with it.
    is_empty = 'NOT EXISTS (SELECT 1 FROM branch b WHERE b.conversation_id = conversation.id)'
    removed['conversation'] = yield from remove('conversation', f'number IN {listed} AND {is_empty}', numbers)
    return removed, 0


def _branch_batches(garbage: _Garbage, number: int) -> Iterator[_Batch]:
    """Cut the messages at the end of a branch, last first, then remove it if it is unreachable."""
    is_complete = number not in garbage.stops

    def cut() -> Operation[_Removed | None]:
        nonlocal is_complete
        done = yield from _cut_branch(garbage, number)
        is_complete = done is not False
        return None if done is None else ({}, 0)

    while not is_complete:
        yield cut
    if number in garbage.expired[BRANCH]:
        yield partial(_remove_branch, garbage, number)


def _lock_branch(number: int) -> Operation[list[Row]]:
    return (yield Statement(f'{_rows.SELECT_BRANCH} WHERE b.number = ?1{for_update("b")}', (number,)))


def _cut_branch(garbage: _Garbage, number: int) -> Operation[bool | None]:
    """Remove messages from the end of a branch; return whether these were all, and `None` if its mark has changed."""
    rows = yield from _lock_branch(number)
    if not (yield from _take_marks((TAIL, {number: garbage.expired[TAIL][number]}))):
        return None
    branch = _rows.branch_from(rows[0])
    tip = min(branch.tip_seq, max(garbage.stops[number], branch.tip_seq - _BATCH))
    branch = branch._replace(tip_seq=tip)
    yield from update('branch', 'tip_seq, seal', [(number, tip, _rows.branch_seal(branch, *rows[0][11:13]))])
    yield from remove('entry', 'branch = ?1 AND seq >= ?2', (number, tip))
    if tip <= garbage.stops[number]:
        return True
    yield from _insert_marks([(TAIL, number, garbage.expired[TAIL][number])])
    return False


def _remove_branch(garbage: _Garbage, number: int) -> Operation[_Removed | None]:
    yield from _lock_branch(number)
    if not (yield from _take_marks((BRANCH, {number: garbage.expired[BRANCH][number]}))):
        return None
    yield from clear_condemned(TAIL, [number])
    yield from remove('entry', 'branch = ?1', (number,))  # of an append after the branch was condemned
    return {'branch': (yield from remove('branch', 'number = ?1', (number,)))}, 0
