"""Operations that read versions, messages and contents."""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import Final

from pydantic_deep_backends.snapshots import digest_of, node_references

from . import _codec, _keys, _rows
from ._engine import Operation, Row, Statement, Value
from ._operations_commit import PARENT
from ._prepare import canonical
from ._sql import bytes_from, digest_from, id_from, id_or_none, integer, marks, select_in
from ._types import AssetRecord, BranchRecord, ConversationRecord, Lineage, MessageRecord, VersionFilter, VersionRecord
from .errors import AssetNotFoundError, StoreUnavailableError, VersionNotFoundError

_SHOWN_CANDIDATES: Final = 5
"""How many versions an error names, if the beginning of an id fits several."""


def version(id: str) -> Operation[VersionRecord]:
    """Read a version by its id or the beginning of it."""
    number = yield from version_number(id)
    rows = yield Statement(_SELECT + ' WHERE v.number = ?1', (number,))
    return _rows.version_from(rows[0])


def version_number(id: str) -> Operation[int]:
    """Look up a version by its id or the beginning of it. Raises `VersionNotFoundError`."""
    rows = yield from find_by_prefix('version', id)
    if len(rows) == 1:
        return integer(rows[0][1])
    if not rows:
        too_short = f' The beginning of an id must have {_keys.MIN_PREFIX} characters.' if len(id) < 8 else ''
        raise VersionNotFoundError(id, f'It was deleted, or belongs to another store.{too_short}')
    names = ', '.join(id_from(row[0]) for row in rows[:_SHOWN_CANDIDATES])
    more = ', …' if len(rows) > _SHOWN_CANDIDATES else ''
    raise VersionNotFoundError(id, f'Several begin so: {names}{more}. Give more of it; ids of one moment are alike.')


def find_by_prefix(table: str, id: str) -> Operation[list[Row]]:
    """Return (id, number) of the row of this id, or else of some whose ids begin so."""
    sql = f'SELECT id, number FROM {table} WHERE '
    if rows := (yield Statement(sql + 'id = ?1', (_keys.pack_id(id),))):
        return rows
    if (span := _keys.prefix_range(id)) is None:
        return []
    limit = _SHOWN_CANDIDATES + 1
    return (yield Statement(f'{sql}id >= ?1 AND id <= ?2 ORDER BY id LIMIT {limit}', span))


_SELECT: Final = f'{_rows.SELECT_VERSION} FROM version v{_rows.FROM_VERSION}'


_FEW: Final = 1000
"""Up to as many versions are found by their configs and then sorted; of more, a page is found from the newest down."""


def versions(filter: VersionFilter, limit: int, offset: int, before: int | None) -> Operation[list[VersionRecord]]:
    """Read a page of versions, newest first."""
    configs, values = _configs(filter)
    where: list[str] = []
    if configs:
        probe = f'SELECT COUNT(*) FROM (SELECT 1 FROM version WHERE config IN ({configs}) LIMIT {_FEW}) found'
        is_rare = integer((yield Statement(probe, values))[0][0]) < _FEW
        # The plus keeps the planner from the index, on both databases: it would sort all that fit for one page.
        where.append(f'{"" if is_rare else "+"}v.config IN ({configs})')
    where += _conditions(filter, values)
    if before is not None:
        values.append(before)
        where.append(f'v.number < ?{len(values)}')
    values += [limit, offset]
    page = f' ORDER BY v.number DESC LIMIT ?{len(values) - 1} OFFSET ?{len(values)}'
    rows = yield Statement(_SELECT + _all(where) + page, values)
    return [_rows.version_from(row) for row in rows]


def count(filter: VersionFilter) -> Operation[int]:
    """Count versions."""
    configs, values = _configs(filter)
    where = [f'v.config IN ({configs})'] if configs else []
    where += _conditions(filter, values)
    rows = yield Statement(f'SELECT COUNT(*) FROM version v{_all(where)}', values)
    return integer(rows[0][0])


def _all(conditions: list[str]) -> str:
    return f' WHERE {" AND ".join(conditions)}' if conditions else ''


def _configs(filter: VersionFilter) -> tuple[str, list[Value]]:
    """Return a query for the configs that fit, empty if all do, and its parameters: keys of metadata are bound too."""
    values: list[Value] = []
    where: list[str] = []
    if filter.name == '':
        where.append('c.folded_name IS NOT NULL')
    elif filter.name is not None:  # not by LIKE: SQLite refuses patterns of more than 50,000 bytes
        values.append(filter.name.casefold())
        where.append(f"REPLACE(c.folded_name, ?{len(values)}, '') <> c.folded_name")
    for column, wanted in (('name', filter.exact_name), ('agent_name', filter.agent_name), ('model', filter.model)):
        if wanted is not None:
            values.append(wanted)
            where.append(f'c.{column} = ?{len(values)}')
    for key, value in (filter.metadata or {}).items():
        values += [key, canonical(value)]
        where.append(
            'EXISTS (SELECT 1 FROM config_field f WHERE f.config = c.number'
            f' AND f.name = ?{len(values) - 1} AND f.value = ?{len(values)})'
        )
    return f'SELECT c.number FROM config c{_all(where)}' if where else '', values


def _conditions(filter: VersionFilter, values: list[Value]) -> list[str]:
    """Return the other conditions on a version `v`, and add their parameters."""
    where: list[str] = []
    for column, wanted in (('kind', filter.kinds), ('state', filter.states)):
        if wanted is not None:
            where.append(f'v.{column} IN ({marks(len(wanted), len(values) + 1) or "NULL"})')
            values += wanted
    for condition, value in (
        ('v.conversation = (SELECT number FROM conversation WHERE id = ?{})', id_or_none(filter.conversation_id)),
        ('v.run_id = ?{}', id_or_none(filter.run_id)),
        ('v.created_at >= ?{}', filter.since),
        ('v.created_at < ?{}', filter.until),
    ):
        if value is not None:
            values.append(value)
            where.append(condition.format(len(values)))
    return where


_LINEAGE: Final = (
    'WITH RECURSIVE line (number) AS (SELECT number FROM version WHERE number = ?1'
    f' UNION ALL SELECT e.parent FROM line JOIN edge e ON e.child = line.number AND e.kind = {PARENT}'
    ' WHERE e.parent IS NOT NULL)'
    f' {_rows.SELECT_LINE} FROM line LEFT JOIN version v ON v.number = line.number'
)


def lineage(id: str) -> Operation[Lineage]:
    """Read the way from the root to a version."""
    number = yield from version_number(id)
    rows = yield Statement(_LINEAGE, (number,))
    rows.sort(key=itemgetter(0))  # a parent's number is smaller than its child's
    holes = [place for place, row in enumerate(rows) if row[1] is None]
    first = rows[holes[-1] + 1 if holes else 0]
    (found,) = yield Statement('SELECT parent_id FROM version WHERE number = ?1', (first[0],))
    before = id_from(found[0]) if found[0] else None
    if holes:
        raise VersionNotFoundError(
            str(before), f'The version {id_from(first[1])} came from it, and it was not deleted: the store is damaged.'
        )
    versions = yield from _with_shared(rows, before)
    return Lineage(versions=versions, truncated_at=before)


def _with_shared(rows: list[Row], before: str | None) -> Operation[tuple[VersionRecord, ...]]:
    """Read rows of `SELECT_LINE`, and once what they share."""
    branches = yield from _by_number('branch', 'conversation_id, id, name', {row[6] for row in rows})
    configs = yield from _by_number(
        'config', 'agent_name, name, metadata, model, model_settings, backend', {row[9] for row in rows}
    )
    assets = yield from _by_number('asset', 'digest', {row[place] for row in rows for place in (12, 13)})
    nodes = yield from _by_number('node', 'digest', {row[14] for row in rows})
    return _rows.versions_in_line(
        rows,
        before,
        branches={number: (id_from(row[0]), id_from(row[1]), row[2]) for number, row in branches.items()},
        configs=configs,
        assets={None: None} | {number: digest_from(row[0]) for number, row in assets.items()},
        nodes={None: None} | {number: digest_from(row[0]) for number, row in nodes.items()},
    )


def _by_number(table: str, columns: str, numbers: set[Value]) -> Operation[dict[object, Row]]:
    rows = yield from select_in(f'SELECT number, {columns} FROM {table} WHERE number IN ({{}})', numbers - {None})
    return {row[0]: row[1:] for row in rows}


def children(id: str) -> Operation[list[VersionRecord]]:
    """Read the versions that have this one as parent."""
    number = yield from version_number(id)
    sql = f'{_SELECT} JOIN edge e ON e.child = v.number AND e.kind = {PARENT} WHERE e.parent = ?1 ORDER BY v.number'
    return [_rows.version_from(row) for row in (yield Statement(sql, (number,)))]


_MESSAGES: Final = (
    'WITH RECURSIVE chain (number, parent, fork_seq, stop) AS ('
    'SELECT number, parent, fork_seq, CASE WHEN tip_seq < ?2 THEN tip_seq ELSE ?2 END FROM branch WHERE id = ?1'
    ' UNION ALL SELECT p.number, p.parent, p.fork_seq, CASE WHEN c.stop < c.fork_seq THEN c.stop ELSE c.fork_seq END'
    ' FROM chain c JOIN branch p ON p.number = c.parent WHERE c.fork_seq > ?3)'
    ' SELECT m.id, e.seq, m.body FROM chain c JOIN entry e ON e.branch = c.number AND e.seq < c.stop AND e.seq >= ?3'
    ' JOIN message m ON m.number = e.message ORDER BY e.seq'
)


def messages(branch_id: str, start: int, stop: int) -> Operation[list[MessageRecord]]:
    """Read messages of a branch: its own, and those of its parents up to where it left them."""
    rows = yield Statement(_MESSAGES, (_keys.pack_id(branch_id), stop, start))
    return [MessageRecord(id_from(id), integer(seq), bytes_from(body)) for id, seq, body in rows]


def branches(conversation_id: str) -> Operation[list[BranchRecord]]:
    """Read the branches of a conversation, oldest first."""
    sql = f'{_rows.SELECT_BRANCH} WHERE b.conversation_id = ?1 ORDER BY b.number'
    return [_rows.branch_from(row) for row in (yield Statement(sql, (_keys.pack_id(conversation_id),)))]


def conversation(id: str) -> Operation[ConversationRecord | None]:
    """Read a conversation."""
    rows = yield Statement(f'SELECT {_rows.CONVERSATION} FROM conversation WHERE id = ?1', (_keys.pack_id(id),))
    return _rows.conversation_from(rows[0]) if rows else None


def conversations(limit: int, offset: int) -> Operation[list[ConversationRecord]]:
    """Read a page of conversations, newest first."""
    sql = f'SELECT {_rows.CONVERSATION} FROM conversation ORDER BY number DESC LIMIT ?1 OFFSET ?2'
    return [_rows.conversation_from(row) for row in (yield Statement(sql, (limit, offset)))]


def asset(digest: str) -> Operation[AssetRecord]:
    """Read an asset, and make sure that it is what its digest says."""
    found = yield from assets([digest])
    if digest not in found:
        raise AssetNotFoundError(digest)
    return found[digest]


def assets(digests: Collection[str]) -> Operation[dict[str, AssetRecord]]:
    """Read those assets that are there, and make sure that they are what their digests say."""
    rows = yield from select_in(
        'SELECT digest, data, media_type, size_bytes, created_at FROM asset WHERE digest IN ({})',
        map(_keys.pack_digest, set(digests)),
    )
    return {record.digest: record for record in map(_asset_from, rows)}


def _asset_from(row: Row) -> AssetRecord:
    packed, stored, media_type, size_bytes, created_at = row
    digest = digest_from(packed)
    data = _codec.decode(stored if isinstance(stored, bytes) else b'')
    if digest_of(data) != digest:
        raise StoreUnavailableError(f'The asset {digest!r} is damaged. Restore the database from a backup.')
    return AssetRecord(
        digest=digest,
        data=data,
        media_type=str(media_type),
        size_bytes=integer(size_bytes),
        created_at=integer(created_at),
    )


def has_assets(digests: Collection[str]) -> Operation[set[str]]:
    """Return those that are there, and not condemned: whoever stores the others again pardons them."""
    rows = yield from select_in(
        'SELECT a.digest FROM asset a LEFT JOIN condemned g ON g.kind = 0 AND g.number = a.number'
        ' WHERE g.since IS NULL AND a.digest IN ({})',
        map(_keys.pack_digest, set(digests)),
    )
    return {digest_from(row[0]) for row in rows}


def nodes(digest: str) -> Operation[dict[str, bytes]]:
    """Read all nodes of a tree, one query for each level of it."""
    found: dict[str, bytes] = {}
    wanted = {digest}
    while wanted:
        packed = [_keys.pack_digest(each) for each in sorted(wanted)]
        rows = yield from select_in('SELECT digest, data FROM node WHERE digest IN ({})', packed)
        level = {digest_from(each): bytes_from(data) for each, data in rows}
        if missing := wanted - level.keys():
            raise AssetNotFoundError(min(missing))
        found |= level
        below = {each for data in level.values() for each in node_references(data)[0]}
        wanted = below - found.keys()
    return found
