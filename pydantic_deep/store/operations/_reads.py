"""Operations that read versions, messages and content."""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import Final, NamedTuple, cast

from pydantic_deep.store.engine import Operation, Row, Statement, Value
from pydantic_deep.store.errors import (
    AssetNotFoundError,
    MissingVersionError,
    StoreCorruptedError,
    VersionNotFoundError,
)
from pydantic_deep.store.records import (
    AssetRecord,
    BranchRecord,
    ConversationRecord,
    LineageRecord,
    MessageRecord,
    VersionFilter,
    VersionRecord,
)
from pydantic_deep.store.sql import _codec, _keys, _rows
from pydantic_deep.store.sql._commit_rows import canonical
from pydantic_deep.store.sql._seals import check_seal, reads, row_name
from pydantic_deep.store.sql._statements import (
    bytes_from,
    conditions,
    digest_from,
    id_from,
    id_or_none,
    integer,
    marks,
    select_in,
)
from pydantic_deep.store.sql._tallies import TOTAL, check_count, check_total, counted, parent_key
from pydantic_deep_backends.snapshots import digest_of, node_references

from ._commits import PARENT

_ASSET: Final = 'digest, data, media_type, size_bytes, created_at, seal'

OTHER_DIGEST: Final = 'its content has another digest'
"""Problem of an asset or node."""

_SHOWN_CANDIDATES: Final = 5
"""Maximum number of versions that the error for an ambiguous prefix lists."""


def version_by_id(id: str) -> Operation[VersionRecord | None]:
    """Read a version by its whole id, in one statement."""
    rows = yield Statement(_SELECT + ' WHERE v.id = ?1', (_keys.pack_id(id),))
    return _rows.version_from(rows[0]) if rows else None


def version(id: str) -> Operation[VersionRecord]:
    """Read a version by its id or a prefix of it."""
    number = yield from version_number(id)
    rows = yield Statement(_SELECT + ' WHERE v.number = ?1', (number,))
    if not rows:
        raise StoreCorruptedError('version', id, 'it is missing, but its index lists it')
    return _rows.version_from(rows[0])


def version_number(id: str) -> Operation[int]:
    """Look up the number of a version by its id or a prefix of it. Raises `VersionNotFoundError`."""
    rows = yield from find_by_prefix('version', id)
    if len(rows) == 1:
        return integer(rows[0][1])
    if not rows:
        too_short = f' A prefix of an id must have {_keys.MIN_PREFIX} characters.' if len(id) < 8 else ''
        raise VersionNotFoundError(id, f'It was deleted, or belongs to another store.{too_short}')
    names = ', '.join(id_from(row[0]) for row in rows[:_SHOWN_CANDIDATES])
    more = ', …' if len(rows) > _SHOWN_CANDIDATES else ''
    raise VersionNotFoundError(
        id, f'The prefix is ambiguous: {names}{more}. Use more digits; ids of one moment differ only at the end.'
    )


def find_by_prefix(table: str, id: str) -> Operation[list[Row]]:
    """Return (id, number) of the row with this id, or else of some rows with this prefix."""
    sql = f'SELECT id, number FROM {table} WHERE '
    if rows := (yield Statement(sql + 'id = ?1', (_keys.pack_id(id),))):
        return rows
    if (span := _keys.prefix_range(id)) is None:
        return []
    limit = _SHOWN_CANDIDATES + 1
    return (yield Statement(f'{sql}id >= ?1 AND id <= ?2 ORDER BY id LIMIT {limit}', span))


_SELECT: Final = f'{_rows.SELECT_VERSION} FROM version v{_rows.FROM_VERSION}'


_FEW: Final = 1000
"""Below this number, matching versions are found by their configs and sorted; above it, a page is read from the newest
version down.
"""


_IN_CONVERSATION: Final = (
    ', (SELECT COUNT(*) FROM version w JOIN conversation x ON x.number = w.conversation WHERE x.id = ?{id}),'
    ' (SELECT CAST(SUM(t.total) AS BIGINT) FROM tally t JOIN conversation x ON t.parent ='
    " CAST(CAST(x.number AS TEXT) AS {bytes}) WHERE t.name = 'version' AND x.id = ?{id}) FROM"
)
"""The numbers of versions that a conversation has, and that were written for it, as columns of a query."""


def versions(
    filter: VersionFilter, limit: int, offset: int, before: int | None, bytes_type: str
) -> Operation[list[VersionRecord]]:
    """Read a page of versions, newest first; those of a conversation in one statement.

    Args:
        filter: Which versions.
        limit: How many at most.
        offset: How many of the newest are omitted.
        before: The number of a version, from which older ones are read.
        bytes_type: The type of a column of bytes in the database; empty if it is unknown.
    """
    configs, values = _configs(filter)
    where: list[str] = []
    if configs:
        is_rare = False
        if filter.conversation_id is None and filter.run_id is None:  # which have an index
            probe = f'SELECT COUNT(*) FROM (SELECT 1 FROM version WHERE config IN ({configs}) LIMIT {_FEW}) found'
            is_rare = integer((yield Statement(probe, values))[0][0]) < _FEW
        # The plus prevents both databases from using the index, which would sort all matches for one page.
        where.append(f'{"" if is_rare else "+"}v.config IN ({configs})')
    where += _conditions(filter, values)
    if before is not None:
        values.append(before)
        where.append(f'v.number < ?{len(values)}')
    values += [limit, offset]
    page = f' ORDER BY v.number DESC LIMIT ?{len(values) - 1} OFFSET ?{len(values)}'
    sql = _SELECT + _all(where) + page
    if bytes_type and filter.conversation_id is not None and filter.run_id is None:
        columns = _IN_CONVERSATION.format(id=len(values) + 1, bytes=bytes_type)
        values.append(_keys.pack_id(filter.conversation_id))
        rows = yield Statement(sql.replace(' FROM', columns, 1), values)
        if not rows or rows[0][-2] != rows[0][-1]:
            yield from _check_versions(filter)
        return [_rows.version_from(row[:-2]) for row in rows]
    yield from _check_versions(filter)
    if offset or before is not None or filter != VersionFilter():
        rows = yield Statement(sql, values)
    else:
        rows = yield from counted('version', sql, values, limit=limit)
    return [_rows.version_from(row) for row in rows]


def newest_by_metadata(
    key: str, filter: VersionFilter, limit: int, before: int | None
) -> Operation[list[VersionRecord]]:
    """Read the newest version for each value of a metadata key, or of each conversation without it, newest first."""
    configs, values = _configs(filter)
    where = [f'v.config IN ({configs})'] if configs else []
    where += _conditions(filter, values)
    values.append(key)
    newest = (
        'SELECT MAX(v.number) FROM version v LEFT JOIN config_field g ON g.config = v.config'
        f' AND g.name = ?{len(values)}{_all(where)} GROUP BY COALESCE(g.value, CAST(v.conversation AS TEXT))'
    )
    older = ''
    if before is not None:
        values.append(before)
        older = f' AND v.number < ?{len(values)}'
    yield from _check_versions(filter)
    values.append(limit)
    page = f' WHERE v.number IN ({newest}){older} ORDER BY v.number DESC LIMIT ?{len(values)}'
    rows = yield Statement(_SELECT + page, values)
    return [_rows.version_from(row) for row in rows]


def _check_versions(filter: VersionFilter) -> Operation[None]:
    """Verify that no version is missing from the conversation that a filter names, directly or by a run."""
    ids = [_keys.pack_id(filter.conversation_id)] if filter.conversation_id is not None else []
    if filter.run_id is not None:
        rows = yield Statement('SELECT conversation_id FROM run WHERE id = ?1', (_keys.pack_id(filter.run_id),))
        ids += [row[0] for row in rows]
    rows = yield from select_in('SELECT number FROM conversation WHERE id IN ({})', set(ids))
    for (number,) in rows:
        total = TOTAL.format(table='version', parent='?2')
        sql = f'SELECT COUNT(*), COALESCE({total}, 0) FROM version WHERE conversation = ?1'
        present, written = (yield Statement(sql, (number, parent_key(number))))[0]
        check_count('version', integer(present), integer(written), number)


def count(filter: VersionFilter) -> Operation[int]:
    """Count versions."""
    configs, values = _configs(filter)
    where = [f'v.config IN ({configs})'] if configs else []
    where += _conditions(filter, values)
    yield from _check_versions(filter)
    rows = yield Statement(f'SELECT COUNT(*) FROM version v{_all(where)}', values)
    if not where:
        yield from check_total('version', integer(rows[0][0]))
    return integer(rows[0][0])


def _all(conditions: list[str]) -> str:
    return f' WHERE {" AND ".join(conditions)}' if conditions else ''


def _configs(filter: VersionFilter) -> tuple[str, list[Value]]:
    """Return a query for the matching configs, empty if all match, and its parameters, which include metadata keys."""
    values: list[Value] = []
    where = ['c.folded_name IS NOT NULL'] if filter.name == '' else []
    where += conditions(
        values,
        # Not by LIKE: SQLite refuses patterns of more than 50,000 bytes.
        ("REPLACE(c.folded_name, ?{}, '') <> c.folded_name", filter.name.casefold() if filter.name else None),
        ('c.name = ?{}', filter.exact_name),
        ('c.agent_name = ?{}', filter.agent_name),
        ('c.model = ?{}', filter.model),
    )
    for key, value in (filter.metadata or {}).items():
        values += [key, canonical(value)]
        where.append(
            'EXISTS (SELECT 1 FROM config_field f WHERE f.config = c.number'
            f' AND f.name = ?{len(values) - 1} AND f.value = ?{len(values)})'
        )
    for key in filter.metadata_keys or ():
        values.append(key)
        where.append(f'EXISTS (SELECT 1 FROM config_field f WHERE f.config = c.number AND f.name = ?{len(values)})')
    return f'SELECT c.number FROM config c{_all(where)}' if where else '', values


def _conditions(filter: VersionFilter, values: list[Value]) -> list[str]:
    """Return the other conditions on a version `v`, and append their parameters to `values`."""
    where: list[str] = []
    for column, wanted in (('kind', filter.kinds), ('state', filter.states)):
        if wanted is not None:
            where.append(f'v.{column} IN ({marks(len(wanted), len(values) + 1) or "NULL"})')
            values += wanted
    return where + conditions(
        values,
        ('v.conversation = (SELECT number FROM conversation WHERE id = ?{})', id_or_none(filter.conversation_id)),
        ('v.run_id = ?{}', id_or_none(filter.run_id)),
        ('v.created_at >= ?{}', filter.since),
        ('v.created_at < ?{}', filter.until),
    )


# A descendant has a larger number. The condition prevents a damaged row from causing an endless recursion.
_PARENT_EDGE: Final = f'LEFT JOIN edge e ON e.child = v.number AND e.kind = {PARENT}'

_LINEAGE: Final = (
    'WITH RECURSIVE line (number) AS (SELECT number FROM version WHERE number = ?1'
    f' UNION ALL SELECT e.parent FROM line JOIN edge e ON e.child = line.number AND e.kind = {PARENT}'
    ' WHERE e.parent < line.number)'
    f' {_rows.SELECT_LINE} FROM line LEFT JOIN version v ON v.number = line.number'
)


def lineage(id: str) -> Operation[LineageRecord]:
    """Read the lineage of a version."""
    number = yield from version_number(id)
    rows = yield Statement(_LINEAGE, (number,))
    if not rows:
        raise StoreCorruptedError('version', id, 'it is missing, but its index lists it')
    rows.sort(key=itemgetter(0))  # a parent has a smaller number than its child
    for place, row in enumerate(rows):
        if row[1] is None:
            above = 'SELECT parent_id FROM version WHERE number = ?1'
            children = (yield Statement(above, rows[place + 1][:1])) if place + 1 < len(rows) else []
            name = row_name(children[0][0]) if children else id
            raise MissingVersionError(name)
    sql = f'SELECT v.parent_id, e.child, e.parent FROM version v {_PARENT_EDGE} WHERE v.number = ?1'
    ((packed, child, parent),) = yield Statement(sql, (rows[0][0],))
    if parent is not None or (packed is not None and child is None):
        raise StoreCorruptedError('edge', str(rows[0][0]), 'it does not lead to the parent of its version')
    before = None if packed is None else row_name(packed)
    versions = yield from _with_shared(rows, before)
    return LineageRecord(versions=versions, truncated_at=before)


def _with_shared(rows: list[Row], before: str | None) -> Operation[tuple[VersionRecord, ...]]:
    """Convert rows of `SELECT_LINE` to versions; rows that they share are read once."""
    branches = yield from _by_number('branch', 'conversation_id, id, name', {row[6] for row in rows})
    configs = yield from _by_number(
        'config', 'agent_name, name, metadata, model, model_settings, backend', {row[9] for row in rows}
    )
    assets = yield from _by_number('asset', 'digest', {row[place] for row in rows for place in (12, 13)})
    nodes = yield from _by_number('node', 'digest', {row[14] for row in rows})
    shared = _rows.LineReferences(branches=branches, configs=configs, assets=assets, nodes=nodes)
    return _rows.versions_in_line(rows, before, shared)


def _by_number(table: str, columns: str, numbers: set[Value]) -> Operation[dict[object, Row]]:
    rows = yield from select_in(f'SELECT number, {columns} FROM {table} WHERE number IN ({{}})', numbers - {None})
    return {row[0]: row[1:] for row in rows}


def children(id: str) -> Operation[list[VersionRecord]]:
    """Read the versions that have this one as parent."""
    number = yield from version_number(id)
    select = _rows.SELECT_VERSION.replace('SELECT ', 'SELECT e.child, ', 1)
    sql = (
        f'{select} FROM edge e LEFT JOIN version v ON v.number = e.child{_rows.FROM_VERSION}'
        f' WHERE e.parent = ?1 AND e.kind = {PARENT} ORDER BY e.child'
    )
    records: list[VersionRecord] = []
    for child, *row in (yield from counted('edge', sql, (number,), number)):
        if row[0] is None:
            raise StoreCorruptedError('version', str(child), f'it is missing, and is a child of version {id}')
        version = _rows.version_from(tuple(row))
        if not _digits(version.parent_id or '').startswith(_digits(id)):
            raise StoreCorruptedError('edge', str(child), f'version {version.id} is not a child of version {id}')
        records.append(version)
    return records


def _digits(id: str) -> str:
    """Return an id or prefix without dashes, in lower case."""
    return id.replace('-', '').lower()


_BRANCH: Final = ', '.join(f'{{0}}.{name}' for name in _rows.BRANCH.split(', '))
_MESSAGES: Final = (
    f'WITH RECURSIVE chain (number, stop, {_rows.BRANCH}) AS ('
    f'SELECT b.number, CASE WHEN b.tip_seq < ?2 THEN b.tip_seq ELSE ?2 END, {_BRANCH.format("b")}'
    ' FROM branch b WHERE b.id = ?1'
    ' UNION ALL SELECT p.number, CASE WHEN c.stop < c.fork_seq THEN c.stop ELSE c.fork_seq END,'
    f' {_BRANCH.format("p")} FROM chain c JOIN branch p ON p.number = c.parent'
    ' WHERE c.fork_seq > ?3 AND p.number < c.number)'
    f' SELECT e.message, m.id, m.body, m.seal, e.seq, e.seal, c.stop, {_BRANCH.format("c")} FROM chain c'
    ' LEFT JOIN entry e ON e.branch = c.number AND e.seq < c.stop AND e.seq >= ?3'
    ' LEFT JOIN message m ON m.number = e.message'
)
"""One row for each message, with its branch. A branch without any of these messages has one row."""


def messages(branch_id: str, start: int, stop: int) -> Operation[list[MessageRecord]]:
    """Read messages of a branch: its own, and those inherited from its ancestors."""
    rows = yield Statement(_MESSAGES, (_keys.pack_id(branch_id), stop, start))
    checked: set[Value] = set()
    ordered: list[Row] = []
    packed_id = _keys.pack_id(branch_id)
    # Sorted here because a database would also move the bodies.
    for row in sorted(rows, key=_seq):
        number, id, body, stored, seq, placed, end, branch, *_ = row
        if branch not in checked:
            _rows.check_branch(row[7:])
            checked.add(branch)
            if branch == packed_id:
                stop = integer(end)
        if seq is None:
            continue
        if id is None:
            raise StoreCorruptedError('message', str(number), f'it is missing, and is message {seq} of {branch_id}')
        if seq != start + len(ordered):
            break
        ordered.append((id, body, stored, seq, placed, branch))
    if checked and len(ordered) != max(0, stop - start):
        missing = start + len(ordered)
        raise StoreCorruptedError('entry', f'{branch_id}, {missing}', f'message {missing} of the branch is missing')
    return _rows.messages_from(ordered)


def _seq(row: Row) -> int:
    """Return the position of a row of `_MESSAGES`; the row of a branch without messages comes first."""
    return -1 if row[4] is None else integer(row[4])


def branches(conversation_id: str) -> Operation[list[BranchRecord]]:
    """Read the branches of a conversation, oldest first."""
    sql = f'{_rows.SELECT_BRANCH} WHERE b.conversation_id = ?1 ORDER BY b.number'
    id = _keys.pack_id(conversation_id)
    return [_rows.branch_from(row) for row in (yield from counted('branch', sql, (id,), id))]


def conversation(id: str) -> Operation[ConversationRecord | None]:
    """Read a conversation."""
    rows = yield Statement(f'SELECT {_rows.CONVERSATION} FROM conversation WHERE id = ?1', (_keys.pack_id(id),))
    return _rows.conversation_from(rows[0]) if rows else None


def conversations(limit: int, offset: int) -> Operation[list[ConversationRecord]]:
    """Read a page of conversations, newest first."""
    sql = f'SELECT {_rows.CONVERSATION} FROM conversation ORDER BY number DESC LIMIT ?1 OFFSET ?2'
    rows = yield from counted('conversation', sql, (limit, offset), limit=0 if offset else limit)
    return [_rows.conversation_from(row) for row in rows]


class StoredAsset(NamedTuple):
    """An asset as it is in the database."""

    record: AssetRecord
    """The asset; with empty `data` if the content is in a blob."""
    blob: str | None
    """The name of the blob; `None` if the content is here, and verified."""


def asset(digest: str) -> Operation[StoredAsset]:
    """Read an asset, and verify its digest."""
    asset_by_digest = yield from assets([digest])
    if digest not in asset_by_digest:
        raise AssetNotFoundError(digest)
    return asset_by_digest[digest]


def assets(digests: Collection[str]) -> Operation[dict[str, StoredAsset]]:
    """Read the existing assets among these digests, and verify them."""
    rows = yield from select_in(
        f'SELECT {_ASSET} FROM asset WHERE digest IN ({{}})', map(_keys.pack_digest, set(digests))
    )
    return {stored.record.digest: stored for stored in map(_asset_from, rows)}


def assets_outside() -> Operation[list[tuple[int, StoredAsset]]]:
    """Read the assets with their content in a blob, with their numbers."""
    rows = yield Statement(f'SELECT number, {_ASSET} FROM asset WHERE SUBSTR(data, 1, 1) = ?1', (_codec.OUTSIDE,))
    return [(integer(row[0]), _asset_from(row[1:])) for row in rows]


def blobs_of(digests: Collection[str]) -> Operation[set[str]]:
    """Return the names of the blobs of these assets."""
    rows = yield from select_in('SELECT data FROM asset WHERE digest IN ({})', map(_keys.pack_digest, set(digests)))
    return {blob for row in rows if (blob := _codec.blob_in(cast('bytes', row[0]))) is not None}


@reads('asset')
def _asset_from(row: Row) -> StoredAsset:
    packed, stored, media_type, size_bytes, created_at, sealed = row
    digest = digest_from(packed)
    check_seal('asset', digest, (digest, media_type, size_bytes, created_at), sealed)
    blob = _codec.blob_in(cast('bytes', stored))
    data = bytes_from(stored) if blob is None else b''
    if blob is None and digest_of(data) != digest:
        raise StoreCorruptedError('asset', digest, OTHER_DIGEST)
    record = AssetRecord(
        digest=digest,
        data=data,
        media_type=str(media_type),
        size_bytes=integer(size_bytes),
        created_at=integer(created_at),
    )
    return StoredAsset(record, blob)


def store_id() -> Operation[str]:
    """Return the id of the store, with which the names of its blobs begin."""
    rows = yield Statement("SELECT value FROM meta WHERE key = 'id'")
    return str(rows[0][0])


def has_assets(digests: Collection[str]) -> Operation[set[str]]:
    """Return the digests of existing assets that are not condemned. Storing a condemned asset again clears its mark."""
    rows = yield from select_in(
        'SELECT a.digest FROM asset a LEFT JOIN condemned g ON g.kind = 0 AND g.number = a.number'
        ' WHERE g.since IS NULL AND a.digest IN ({})',
        map(_keys.pack_digest, set(digests)),
    )
    return {digest_from(row[0]) for row in rows}


def nodes(digest: str) -> Operation[dict[str, bytes]]:
    """Read all nodes of a tree, with one query per level."""
    data_by_digest: dict[str, bytes] = {}
    wanted = {digest}
    while wanted:
        packed = [_keys.pack_digest(node) for node in sorted(wanted)]
        rows = yield from select_in('SELECT digest, data FROM node WHERE digest IN ({})', packed)
        level = dict(map(_node_from, rows))
        if missing := wanted - level.keys():
            raise AssetNotFoundError(min(missing))
        data_by_digest |= level
        below = {node for data in level.values() for node in node_references(data)[0]}
        wanted = below - data_by_digest.keys()
    return data_by_digest


@reads('node')
def _node_from(row: Row) -> tuple[str, bytes]:
    digest, data = digest_from(row[0]), bytes_from(row[1])
    if digest_of(data) != digest:
        raise StoreCorruptedError('node', digest, OTHER_DIGEST)
    return digest, data
