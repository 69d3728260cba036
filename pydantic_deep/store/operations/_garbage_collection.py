"""The operation of garbage collection: mark reachable rows, condemn the rest, remove rows that stayed condemned.

Roots are manually created versions, runs that are `running`, and pending approvals. Marking proceeds to conversations,
branches (with the number of reachable messages), messages, the subagents' conversations that these delegated to, whose
versions are marked in the same way, trees and assets. The database joins the sets; only tree nodes are read, because
their references are in their content.
"""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from typing import Final

from pydantic_deep.store.engine import Operation, Row, Statement, Value
from pydantic_deep.store.records import GarbageReport
from pydantic_deep.store.sql import _keys, _rows
from pydantic_deep.store.sql._commit_rows import digests_in
from pydantic_deep.store.sql._statements import bytes_from, insert_many, integer, select_in, update
from pydantic_deep.store.sql._tallies import COUNTED, complete, cut_edges, remove
from pydantic_deep_backends.snapshots import node_references

from ._contents import ASSET, BRANCH, CONVERSATION, MESSAGE, NODE

_TABLES: Final = {CONVERSATION: 'conversation', BRANCH: 'branch', MESSAGE: 'message', NODE: 'node', ASSET: 'asset'}
_CONTENTS: Final = {MESSAGE: 'body', NODE: 'data', ASSET: 'data'}
"""Kinds of rows with content, which is counted in bytes, and its column."""

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


def gc(now: int, grace: int) -> Operation[GarbageReport]:
    """Collect garbage; `grace` is in microseconds. A missing row is an error: its references cannot be marked."""
    yield from complete(COUNTED)
    yield Statement('CREATE TEMPORARY TABLE marked (kind BIGINT, number BIGINT, PRIMARY KEY (kind, number))')
    yield Statement('CREATE TEMPORARY TABLE doomed (kind BIGINT, number BIGINT, PRIMARY KEY (kind, number))')
    yield Statement('CREATE TEMPORARY TABLE reach (branch BIGINT PRIMARY KEY, done BIGINT, stop BIGINT)')
    yield Statement('CREATE TEMPORARY TABLE named AS SELECT digest FROM asset WHERE 1 = 0')
    yield Statement('CREATE UNIQUE INDEX named_digest ON named (digest)')
    yield from _mark_messages()
    yield from _mark_trees()
    yield from _mark_unsettled_assets()
    yield Statement(_MARK_ASSETS)
    for kind in _TABLES:
        yield from _condemn(kind, now, grace)
    removed, freed_bytes = yield from _count_rows()
    yield from _remove()
    rows = yield Statement('SELECT COUNT(*) FROM condemned')
    for table in ('marked', 'doomed', 'reach', 'named'):
        yield Statement(f'DROP TABLE {table}')
    return GarbageReport(removed=removed, condemned=integer(rows[0][0]), freed_bytes=freed_bytes)


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


def _condemn(kind: int, now: int, grace: int) -> Operation[None]:
    """Clear the mark of reachable rows and condemn the others; rows condemned for `grace` are removed later."""
    marked = f'SELECT number FROM marked WHERE kind = {kind}'
    yield Statement(f'DELETE FROM condemned WHERE kind = {kind} AND number IN ({marked})')
    yield Statement(
        f'INSERT INTO condemned (kind, number, since) SELECT {kind}, x.number, CAST(?1 AS BIGINT) FROM {_TABLES[kind]} x'
        f' WHERE NOT EXISTS (SELECT 1 FROM marked m WHERE m.kind = {kind} AND m.number = x.number)'
        ' ON CONFLICT DO NOTHING',
        (now,),
    )
    yield Statement(
        f'INSERT INTO doomed (kind, number) SELECT kind, number FROM condemned WHERE kind = {kind} AND since <= ?1',
        (now - grace,),
    )


def _count_rows() -> Operation[tuple[dict[str, int], int]]:
    removed: dict[str, int] = {}
    freed = 0
    for kind, table in _TABLES.items():
        size = f'COALESCE(SUM(LENGTH(x.{_CONTENTS[kind]})), 0)' if kind in _CONTENTS else '0'
        sql = f'SELECT COUNT(*), {size} FROM {table} x JOIN doomed d ON d.kind = {kind} AND d.number = x.number'
        rows = yield Statement(sql)
        removed[table] = integer(rows[0][0])
        freed += int(rows[0][1] or 0)
    rows = yield Statement(f'SELECT COUNT(*) FROM run WHERE conversation_id IN ({_EXPIRED_IDS})')
    return removed | {'run': integer(rows[0][0])}, freed


def _expired(kind: int) -> str:
    return f'SELECT number FROM doomed WHERE kind = {kind}'


_EXPIRED_IDS: Final = f'SELECT id FROM conversation WHERE number IN ({_expired(CONVERSATION)})'
_EXPIRED_RUNS: Final = f'SELECT id FROM run WHERE conversation_id IN ({_EXPIRED_IDS})'
_EXPIRED_VERSIONS: Final = f'SELECT number FROM version WHERE conversation IN ({_expired(CONVERSATION)})'
"""Versions of subagents' conversations; versions of other conversations keep their conversation reachable."""
_CUT_BRANCHES: Final = f'SELECT branch FROM entry WHERE message IN ({_expired(MESSAGE)})'


def _remove() -> Operation[None]:
    """Delete rows that were condemned for long enough, and rows that belong only to them."""
    for table in ('request', 'tool_call'):
        yield from remove(table, f'run_id IN ({_EXPIRED_RUNS})')
    yield from remove('delegation', f'child_conversation_id IN ({_EXPIRED_IDS})')
    yield from remove('delegation', f'parent_run_id IN ({_EXPIRED_RUNS}) AND NOT {_IS_DELEGATION_REACHABLE}')
    yield from cut_edges([row[0] for row in (yield Statement(_EXPIRED_VERSIONS))])
    yield from remove('edge', f'child IN ({_EXPIRED_VERSIONS})')
    yield from remove('version', f'conversation IN ({_expired(CONVERSATION)})')
    for table in ('approval', 'run'):
        yield from remove(table, f'conversation_id IN ({_EXPIRED_IDS})')
    yield from remove('entry', f'branch IN ({_expired(BRANCH)})')
    yield from _cut_branches()
    tip = 'SELECT tip_seq FROM branch WHERE branch.number = entry.branch'
    yield from remove('entry', f'branch IN ({_CUT_BRANCHES}) AND seq >= ({tip})')
    for kind in (MESSAGE, ASSET):
        yield from remove('reference', f'kind = {kind} AND source IN ({_expired(kind)})')
    for kind, table in _TABLES.items():
        yield from remove(table, f'number IN ({_expired(kind)})')
        yield Statement(f'DELETE FROM condemned WHERE kind = {kind} AND number IN ({_expired(kind)})')
    yield from remove('config', 'number NOT IN (SELECT config FROM version)')
    yield from remove('config_field', 'config NOT IN (SELECT number FROM config)')


def _cut_branches() -> Operation[None]:
    """Truncate branches before their first removed message."""
    sql = f'{_rows.SELECT_BRANCH} JOIN reach ON reach.branch = b.number WHERE b.number IN ({_CUT_BRANCHES})'
    rows = yield Statement(sql.replace(' FROM', ', reach.stop FROM', 1))
    cut: list[Row] = []
    for row in rows:
        branch = _rows.branch_from(row[:-1])._replace(tip_seq=integer(row[-1]))
        cut.append((row[9], branch.tip_seq, _rows.branch_seal(branch, row[11], row[12])))
    yield from update('branch', 'tip_seq, seal', cut)
