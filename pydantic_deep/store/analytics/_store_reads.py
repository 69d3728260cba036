"""Queries by which a replica follows a store: surveys, changes, and rows by number.

Every kind of row has a `number` that increases. A follower runs one query for the count and the highest number of each
kind (`survey`). If there are new rows, and the engine runs writes at the same time, it waits for the writes in progress (see
`Engine.wait_for_writes`), and surveys the rows up to these numbers again. Then it fetches the rows beyond its own highest number, and those that were unsettled when
it read them. If the counts still differ, rows were deleted, and a comparison of all `marks` finds them.

Rows are returned as stored; `_cells` decodes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pydantic_deep.store.engine import Operation, Row, Statement, Value
from pydantic_deep.store.errors import StoreCorruptedError
from pydantic_deep.store.sql import _rows, _statements
from pydantic_deep.store.sql._scans import verify_rows
from pydantic_deep.store.sql._statements import bytes_from, digest_from, id_from, integer
from pydantic_deep_backends.snapshots import digest_of

_MARK_QUERIES: Final = {
    'version': 'SELECT number, 0 AS mark FROM version',
    'run': 'SELECT number, 0 AS mark FROM run',
    'tool_call': 'SELECT number, 0 AS mark FROM tool_call',
    'delegation': 'SELECT number, 0 AS mark FROM delegation',
    'approval': 'SELECT number, 0 AS mark FROM approval',
    'branch': 'SELECT number, tip_seq AS mark FROM branch',
    'message': 'SELECT number, 0 AS mark FROM message',
    'conversation': 'SELECT c.number AS number, COALESCE(v.number, 0) AS mark'
    ' FROM conversation c LEFT JOIN version v ON v.id = c.head_id',
}
"""The number of each row, with a mark that changes when the row does: the tip of a branch, the head of a conversation.
"""

KINDS: Final = tuple(_MARK_QUERIES)
"""The kinds of rows, in the order in which they must be followed."""

_ROWS: Final = {
    'version': 'SELECT v.number, v.id, v.parent_id, v.cloned_from, v.merged_from, v.kind, v.state, b.conversation_id,'
    ' b.id, b.name, v.message_count, v.run_id, c.agent_name, c.name, c.metadata, c.model, c.model_settings, v.usage,'
    ' v.output, d.digest, t.digest, v.created_at, q.digest, b.number'
    ' FROM version v JOIN branch b ON b.number = v.branch JOIN config c ON c.number = v.config'
    ' LEFT JOIN asset d ON d.number = v.deps LEFT JOIN node t ON t.number = v.tree'
    ' LEFT JOIN version p ON p.id = v.parent_id LEFT JOIN node q ON q.number = p.tree WHERE v.number IN ({0})',
    'run': 'SELECT number, id, conversation_id, base_id, agent_name, attempt_of, parent_run_id, state, cost, usage, error,'
    ' trace_id, started_at, ended_at FROM run WHERE number IN ({0})',
    'request': 'SELECT run_id, number, response_id, model, model_settings, input_tokens, output_tokens,'
    " cache_read_tokens, cache_write_tokens, cost, COALESCE(kind, 'answer'), started_at, duration_us FROM request"
    ' WHERE run_id IN ({0})',
    'tool_call': 'SELECT t.number, t.run_id, t.response_id, t.tool_call_id, r.conversation_id, r.agent_name, t.tool_name,'
    ' t.arguments, t.effect, t.status, t.result, t.error, t.started_at, t.ended_at'
    ' FROM tool_call t LEFT JOIN run r ON r.id = t.run_id WHERE t.number IN ({0})',
    'delegation': 'SELECT number, parent_run_id, response_id, tool_call_id, child_conversation_id, subagent, intent,'
    ' arguments, created_at FROM delegation WHERE number IN ({0})',
    'approval': 'SELECT number, id, version_id, conversation_id, agent_name, path, tool_name, arguments, status, decision,'
    ' decided_by, reason, resumed_by, superseded_by, created_at, decided_at, expires_at'
    ' FROM approval WHERE number IN ({0})',
    'branch': 'SELECT b.number, b.id, b.conversation_id, b.name, p.id, b.fork_seq, b.tip_seq, r.id, b.rewrites_seq,'
    ' b.created_at FROM branch b LEFT JOIN branch p ON p.number = b.parent LEFT JOIN branch r ON r.number = b.rewrites'
    ' WHERE b.number IN ({0})',
    'conversation': 'SELECT number, id, agent_name, head_id, created_at FROM conversation WHERE number IN ({0})',
    'asset': 'SELECT digest, data FROM asset WHERE digest IN ({0})',
    'node': 'SELECT digest, data FROM node WHERE digest IN ({0})',
}
"""Queries for the rows of each kind by numbers, ids or digests."""

_KEYS: Final = {'request': 'run_id', 'asset': 'digest', 'node': 'digest'}
"""The key columns of kinds that are not fetched by number."""

MAX_NUMBERS: Final = 500
"""Maximum number of rows per query: below the 999 parameters that an old SQLite allows."""

MAX_MESSAGES: Final = 128
"""Maximum number of messages in memory; a turn may have 200 KB of text."""


class Survey(NamedTuple):
    """Summary of the rows of a kind, which changes when a row is added, deleted or marked differently."""

    total: int
    last: int
    """The highest number; 0 if there are no rows."""
    mark_sum: int
    """The sum of the marks."""


class Position(NamedTuple):
    """The position from which to continue a branch."""

    branch: int
    """Number of the branch."""
    seq: int
    """Position of the first message to fetch."""


def survey(highest: Mapping[str, Survey] | None = None) -> Operation[dict[str, Survey]]:
    """Return the survey of each kind, in one query; with `highest`, of the rows up to the last ones of that survey."""
    limits = {kind: 2**62 if highest is None else highest[kind].last for kind in KINDS}
    parts = (
        f"SELECT '{kind}', COUNT(*), CAST(COALESCE(MAX(number), 0) AS BIGINT), CAST(COALESCE(SUM(mark), 0) AS BIGINT)"  # noqa: S608
        f' FROM ({sql}) AS {kind}_signs WHERE number <= ?{place}'
        for place, (kind, sql) in enumerate(_MARK_QUERIES.items(), 1)
    )
    rows = yield Statement(' UNION ALL '.join(parts), [limits[kind] for kind in _MARK_QUERIES])
    return {str(row[0]): Survey(*(integer(value) for value in row[1:])) for row in rows}


def marks(kind: str, after: int, last: int, limit: int) -> Operation[list[tuple[int, int]]]:
    """Return the numbers beyond `after`, up to `last`, with their marks, in order."""
    rows = yield Statement(
        f'SELECT number, mark FROM ({_MARK_QUERIES[kind]}) AS signs WHERE number > ?1 AND number <= ?2 ORDER BY number LIMIT ?3',  # noqa: S608
        (after, last, limit),
    )
    return [(integer(number), integer(mark)) for number, mark in rows]


def rows(kind: str, keys: Sequence[Value]) -> Operation[list[Row]]:
    """Return the existing rows with these keys, of which there may be at most `MAX_NUMBERS`.

    Raises:
        StoreCorruptedError: A row differs from the one that was written.
    """
    yield from verify_rows(kind, _KEYS.get(kind, 'number'), tuple(keys))
    records = yield Statement(_ROWS[kind].format(_statements.marks(len(keys))), tuple(keys))
    for row in records if kind == 'asset' else ():
        if digest_of(bytes_from(row[1])) != digest_from(row[0]):
            raise StoreCorruptedError('asset', digest_from(row[0]), 'its content has another digest')
    return records


def changed_by_versions(after: int) -> Operation[tuple[list[int], list[int]]]:
    """Return the numbers of the branches and conversations that versions beyond a number belong to."""
    branches = yield Statement('SELECT DISTINCT branch FROM version WHERE number > ?1', (after,))
    conversations = yield Statement(
        'SELECT DISTINCT c.number FROM version v JOIN branch b ON b.number = v.branch'
        ' JOIN conversation c ON c.id = b.conversation_id WHERE v.number > ?1',
        (after,),
    )
    return [integer(row[0]) for row in branches], [integer(row[0]) for row in conversations]


def branch_messages(positions: Sequence[Position]) -> Operation[list[Row]]:
    """Return at most `MAX_MESSAGES` messages of branches from these positions on, each with its branch's number.

    Raises:
        StoreCorruptedError: A message is missing, or differs from the one that was written.
    """
    wanted = ', '.join(f'(CAST(?{2 * i + 1} AS BIGINT), CAST(?{2 * i + 2} AS BIGINT))' for i in range(len(positions)))
    records = yield Statement(
        f'WITH wanted (branch, seq) AS (VALUES {wanted})'  # noqa: S608
        ' SELECT e.branch, m.number, m.id, b.conversation_id, b.id, e.seq, m.body, e.message, m.seal, e.seal FROM wanted w'
        ' JOIN entry e ON e.branch = w.branch AND e.seq >= w.seq LEFT JOIN message m ON m.number = e.message'
        f' JOIN branch b ON b.number = e.branch ORDER BY e.branch, e.seq LIMIT {MAX_MESSAGES}',
        [value for position in positions for value in position],
    )
    seq_by_branch: dict[Value, int] = dict(positions)
    for row in records:
        branch, seq = row[0], integer(row[5])
        if seq != seq_by_branch[branch]:
            name = f'{id_from(row[4])}, {seq_by_branch[branch]}'
            raise StoreCorruptedError('entry', name, f'message {seq_by_branch[branch]} of the branch is missing')
        seq_by_branch[branch] = seq + 1
        if row[2] is None:
            raise StoreCorruptedError(
                'message', str(row[7]), f'it is missing, and is message {seq} of {id_from(row[4])}'
            )
        _rows.messages_from([(row[2], row[6], row[8], seq, row[9], row[4])])
    return [row[:7] for row in records]
