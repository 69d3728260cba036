"""The integrity check: reads every row, and verifies values and references."""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, cast

from pydantic_deep.store.engine import Operation, Row, Statement, Value
from pydantic_deep.store.errors import StoreCorruptedError
from pydantic_deep.store.sql._codec import blob_in
from pydantic_deep.store.sql._commit_rows import config_digest, digests_in, fields_of
from pydantic_deep.store.sql._keys import pack_digest
from pydantic_deep.store.sql._scans import NODES, SEALED, Scan
from pydantic_deep.store.sql._seals import DAMAGED, reads, row_name
from pydantic_deep.store.sql._statements import bytes_from, digest_from, integer
from pydantic_deep.store.sql._tallies import COUNTED, check_totals
from pydantic_deep.store.sql.dialect import Dialect
from pydantic_deep_backends.snapshots import digest_of, node_references

from ._backup import large_pages
from ._commits import MERGED, PARENT
from ._contents import ASSET, MESSAGE


@dataclass(frozen=True, kw_only=True)
class Damage:
    """Damage in a store, and the versions that depend on it."""

    table: str | None
    """The damaged table; `None` if only a page of the file is known."""
    row: str | None
    """The id, digest or number of the row; `None` if unknown."""
    problem: str
    """Description of the damage."""
    versions: tuple[str, ...] = ()
    """Ids of the versions that cannot be read completely because of it."""
    conversations: tuple[str, ...] = ()
    """Ids of their conversations."""


class _DamagedRow(NamedTuple):
    """A damaged row, and the key of the row that depends on it."""

    table: str
    row: str
    problem: str
    origin: str
    """The table of the row that `key` identifies."""
    key: Row


class _Reference(NamedTuple):
    """References from rows of one table to rows of another."""

    table: str
    keys: str
    column: str
    target: str
    target_column: str = 'number'


_REFERENCES: Final = (
    _Reference('entry', 'branch, seq', 'message', 'message'),
    _Reference('entry', 'branch, seq', 'branch', 'branch'),
    _Reference('branch', 'number', 'parent', 'branch'),
    _Reference('branch', 'number', 'rewrites', 'branch'),
    _Reference('branch', 'number', 'conversation_id', 'conversation', 'id'),
    _Reference('version', 'number', 'conversation', 'conversation'),
    _Reference('version', 'number', 'branch', 'branch'),
    _Reference('version', 'number', 'config', 'config'),
    _Reference('version', 'number', 'pending', 'asset'),
    _Reference('version', 'number', 'deps', 'asset'),
    _Reference('version', 'number', 'tree', 'node'),
    _Reference('edge', 'child', 'child', 'version'),
    _Reference('edge', 'child', 'parent', 'version'),
    _Reference('config_field', 'config', 'config', 'config'),
    _Reference('conversation', 'number', 'head_id', 'version', 'id'),
    _Reference('request', 'run_id, number', 'parameters', 'asset'),
    _Reference('request', 'run_id, number', 'message_digests', 'asset'),
    _Reference('tool_call', 'number', 'tree', 'node'),
    _Reference('reference', 'asset', 'asset', 'asset'),
)
"""References that must have an existing target. Runs, approvals and delegations may outlive their targets."""

_REACH: Final = (
    'WITH RECURSIVE reach (branch, seq) AS ({start} UNION'
    ' SELECT b.number, r.seq FROM reach r JOIN branch b ON b.parent = r.branch AND b.fork_seq > r.seq)'
    ' SELECT v.id, b.conversation_id FROM version v JOIN reach r ON r.branch = v.branch AND v.message_count > r.seq'
    ' LEFT JOIN branch b ON b.number = v.branch'
)
_VERSIONS: Final = 'SELECT v.id, b.conversation_id FROM version v LEFT JOIN branch b ON b.number = v.branch WHERE '

_DEPENDENTS: Final[Mapping[str, str]] = {
    'message': _REACH.format(start='SELECT branch, seq FROM entry WHERE message = ?1'),
    'entry': _REACH.format(start='SELECT CAST(?1 AS BIGINT), CAST(?2 AS BIGINT)'),
    'branch': _REACH.format(start='SELECT CAST(?1 AS BIGINT), CAST(-1 AS BIGINT)'),
    'version': f'{_VERSIONS}v.number = ?1',
    'edge': f'{_VERSIONS}v.number = ?1',
    'conversation': f'{_VERSIONS}v.conversation = ?1 UNION SELECT NULL, id FROM conversation WHERE number = ?1',
    'config': f'{_VERSIONS}v.config = ?1',
    'config_field': f'{_VERSIONS}v.config = ?1',
    'asset': f'{_VERSIONS}v.pending = ?1 OR v.deps = ?1 OR v.run_id IN'
    ' (SELECT run_id FROM request WHERE parameters = ?1 OR message_digests = ?1)',
    'node': f'{_VERSIONS}v.tree = ?1',
    'run': f'{_VERSIONS}v.run_id = (SELECT id FROM run WHERE number = ?1)'
    ' UNION SELECT NULL, conversation_id FROM run WHERE number = ?1',
    'request': f'{_VERSIONS}v.run_id = ?1 UNION SELECT NULL, conversation_id FROM run WHERE id = ?1',
    'tool_call': f'{_VERSIONS}v.run_id = (SELECT run_id FROM tool_call WHERE number = ?1)',
    'delegation': f'{_VERSIONS}v.run_id = (SELECT parent_run_id FROM delegation WHERE number = ?1)',
    'approval': f'{_VERSIONS}v.id = (SELECT version_id FROM approval WHERE number = ?1)',
}
"""Queries for the versions and conversations that depend on a row, keyed by table; the parameters are the row's key."""

Part = tuple[str | None, Callable[[], Operation[list[Damage]]]]
"""A table, and the operation that checks it."""


def check_parts(dialect: Dialect) -> Iterator[Part]:
    """Yield the parts of a check. One part may fail without affecting the others."""
    if dialect.integrity:
        yield None, partial(_pages, dialect.integrity)
    for scan in (*SEALED, NODES):
        yield scan.table, partial(_with_dependents, partial(_rows_of, scan))
    for table in COUNTED:
        yield table, partial(_totals, table)
    yield 'reference', _references
    for reference in _REFERENCES:
        yield reference.table, partial(_with_dependents, partial(_missing, reference))
    for table, check in (
        ('asset', _contents), ('node', _trees), ('entry', _gaps), ('config', _configs), ('edge', _edges),
        ('request', _requests), ('message', _bodies),
    ):  # fmt: skip
        yield table, partial(_with_dependents, check)


def _pages(sql: str) -> Operation[list[Damage]]:
    """Run the database's own check of its pages and indexes."""
    rows = yield Statement(sql)
    return [Damage(table=None, row=None, problem=str(row[0])) for row in rows if row != ('ok',)]


def _totals(table: str) -> Operation[list[Damage]]:
    """Compare the number of rows with the number written."""
    yield from check_totals(table)
    return []


def _references() -> Operation[list[Damage]]:
    """Find references to assets that have no source row."""
    rows = yield Statement(
        f'SELECT r.kind, r.source, r.asset FROM reference r LEFT JOIN message m ON r.kind = {MESSAGE}'
        f' AND m.number = r.source LEFT JOIN asset a ON r.kind = {ASSET} AND a.number = r.source'
        ' WHERE m.number IS NULL AND a.number IS NULL'
    )
    return [
        Damage(
            table='reference', row=', '.join(map(row_name, row)), problem='the source of the reference does not exist'
        )
        for row in rows
    ]


def _with_dependents(find: Callable[[], Operation[list[_DamagedRow]]]) -> Operation[list[Damage]]:
    return (yield from _name_dependents((yield from find())))


def _name_dependents(damaged_rows: list[_DamagedRow]) -> Operation[list[Damage]]:
    """Return the damage, with the versions and conversations that depend on it."""
    damages: list[Damage] = []
    for damaged in damaged_rows:
        sql = _DEPENDENTS.get(damaged.origin, '')
        rows = (yield Statement(sql, damaged.key[: 1 + sql.count('?2')])) if sql else []
        versions, conversations = (sorted({row_name(row[place]) for row in rows if row[place]}) for place in (0, 1))
        damages.append(
            Damage(
                table=damaged.table,
                row=damaged.row,
                problem=damaged.problem,
                versions=tuple(versions),
                conversations=tuple(conversations),
            )
        )
    return damages


def _rows_of(scan: Scan) -> Operation[list[_DamagedRow]]:
    """Verify the seals of a table or, for nodes, the digests."""
    damaged: list[_DamagedRow] = []
    count = len(scan.keys)
    read = reads(scan.table)(lambda row: scan.expected(row[:-1]) == row[-1])
    after: Row = ()
    while page := (yield scan.page(after)):
        after = page[-1][:count]
        for row in page:
            if scan.table == 'entry' and None in row[count:-1]:
                continue  # its missing target is reported separately
            try:
                problem = '' if read(row[count:]) else 'a value differs from the one that was written'
            except StoreCorruptedError as error:
                problem = error.problem
            if problem:
                name = row[count] if count == 1 else ', '.join(map(row_name, row[:count]))
                damaged.append(_DamagedRow(scan.table, row_name(name), problem, scan.table, row[:count]))
    return damaged


def _missing(reference: _Reference) -> Operation[list[_DamagedRow]]:
    """Find rows that refer to a missing row."""
    table, keys, column, target, target_column = reference
    named = ', '.join(f'x.{key}' for key in keys.split(', '))
    rows = yield Statement(
        f'SELECT x.{column}, {named} FROM {table} x LEFT JOIN {target} t ON t.{target_column} = x.{column}'
        f' WHERE x.{column} IS NOT NULL AND t.{target_column} IS NULL'
    )
    return [
        _DamagedRow(target, row_name(row[0]), f'it is missing, and a row of `{table}` refers to it', table, row[1:])
        for row in rows
    ]


def _contents() -> Operation[list[_DamagedRow]]:
    """Compare the content of assets with their digests."""
    return _digests('asset', 4, ASSET)


def _trees() -> Operation[list[_DamagedRow]]:
    """Find nodes and files that trees refer to and that do not exist."""
    damaged: list[_DamagedRow] = []
    children: dict[bytes, tuple[int, set[str], set[str]]] = {}

    def read(page: list[Row]) -> None:
        for row in page:
            with suppress(*DAMAGED):  # reported by its digest
                nodes, files = node_references(bytes_from(row[2]))
                children[pack_digest(digest_from(row[1]))] = integer(row[0]), set(nodes), set(files)

    yield from large_pages('node', read)
    assets = {row[0] for row in (yield Statement('SELECT digest FROM asset'))}
    roots = {row[0] for row in (yield Statement('SELECT DISTINCT tree FROM version WHERE tree IS NOT NULL'))}
    for digest, (number, _, _) in children.items():
        if number in roots:
            for table, row in sorted(_absent_below(digest, children, assets)):
                damaged.append(_DamagedRow(table, row, 'it is missing, and a tree refers to it', 'node', (number,)))
    return damaged


def _absent_below(
    root: bytes, children: Mapping[bytes, tuple[int, set[str], set[str]]], assets: set[Value]
) -> set[tuple[str, str]]:
    """Return the missing nodes and files of a tree."""
    absent: set[tuple[str, str]] = set()
    seen = {root}
    level = [root]
    while level:
        _, nodes, files = children[level.pop()]
        absent |= {('asset', file) for file in files if pack_digest(file) not in assets}
        for node in nodes:
            packed = pack_digest(node)
            if packed not in children:
                absent.add(('node', node))
            elif packed not in seen:
                seen.add(packed)
                level.append(packed)
    return absent


def _bodies() -> Operation[list[_DamagedRow]]:
    """Decode the bodies of messages: their seals cover only the stored form."""
    return _digests('message', 2, MESSAGE)


def _digests(table: str, place: int, kind: int) -> Operation[list[_DamagedRow]]:
    """Decode the content of a table. Compare it with its digests, if any, and with the references to assets in it."""
    damaged: list[_DamagedRow] = []
    digests_by_source: dict[Value, set[str]] = {}
    sql = f'SELECT r.source, a.digest FROM reference r JOIN asset a ON a.number = r.asset WHERE r.kind = {kind}'
    for source, digest in (yield Statement(sql)):
        digests_by_source.setdefault(source, set()).add(row_name(digest))

    def read(page: list[Row]) -> None:
        for row in page:
            if table == 'asset' and blob_in(cast('bytes', row[place])) is not None:
                continue  # `SqlStore.check` reads blobs
            problem, location = '', (table, row_name(row[1]))
            try:
                data = bytes_from(row[place])
                if table == 'asset' and digest_of(data) != digest_from(row[1]):
                    problem = 'its content has another digest'
                elif row[0] in digests_by_source and not digests_by_source[row[0]].issubset(digests_in(data)):
                    problem, location = (
                        'it names content that is not mentioned there',
                        ('reference', f'{kind}, {row[0]}'),
                    )
            except StoreCorruptedError as error:
                problem = error.problem
            except DAMAGED as error:
                problem = f'it cannot be decoded ({error})'
            if problem:
                damaged.append(_DamagedRow(*location, problem, table, row[:1]))

    yield from large_pages(table, read)
    return damaged


def asset_damage(number: int, digest: str, problem: str) -> Operation[list[Damage]]:
    """Return the damage of an asset whose blob is damaged."""
    return _name_dependents([_DamagedRow('asset', digest, problem, 'asset', (number,))])


def _gaps() -> Operation[list[_DamagedRow]]:
    """Find branches with missing or surplus messages."""
    rows = yield Statement(
        'SELECT b.number, b.id, b.fork_seq, b.tip_seq, COUNT(e.seq), MIN(e.seq), MAX(e.seq) FROM branch b'
        ' LEFT JOIN entry e ON e.branch = b.number GROUP BY b.number, b.id, b.fork_seq, b.tip_seq'
        ' HAVING COUNT(e.seq) <> b.tip_seq - b.fork_seq OR MIN(e.seq) <> b.fork_seq OR MAX(e.seq) <> b.tip_seq - 1'
    )
    damaged: list[_DamagedRow] = []
    for number, id, fork, tip, *_ in rows:
        seqs = yield Statement('SELECT seq FROM entry WHERE branch = ?1', (number,))
        wrong = {row[0] for row in seqs} ^ set(range(integer(fork), integer(tip)))
        for seq in sorted(integer(seq) for seq in wrong):
            problem = f'message {seq} of the branch is missing, or beyond its {tip} messages'
            damaged.append(_DamagedRow('entry', f'{row_name(id)}, {seq}', problem, 'entry', (number, seq)))
    return damaged


def _configs() -> Operation[list[_DamagedRow]]:
    """Verify the configurations that versions share, and the metadata fields for filters."""
    damaged: list[_DamagedRow] = []
    sql = 'SELECT number, digest, agent_name, name, folded_name, metadata, model, model_settings, backend FROM config'
    fields: dict[Value, set[tuple[Value, Value]]] = {}
    for config, name, value in (yield Statement('SELECT config, name, value FROM config_field')):
        fields.setdefault(config, set()).add((name, value))
    for number, digest, *values in (yield Statement(sql)):
        if config_digest(tuple(values)) != digest:
            damaged.append(
                _DamagedRow('config', str(number), 'a value differs from the one that was written', 'config', (number,))
            )
        elif set(fields_of(str(values[3]))) != fields.get(number, set()):
            problem = 'the fields of its metadata differ from those that were written'
            damaged.append(_DamagedRow('config_field', str(number), problem, 'config', (number,)))
    return damaged


def _edges() -> Operation[list[_DamagedRow]]:
    """Find versions with a missing edge, or with an edge that contradicts the parent in the record."""
    damaged: list[_DamagedRow] = []
    for kind, column in ((PARENT, 'parent_id'), (MERGED, 'merged_from')):
        rows = yield Statement(
            f'SELECT v.number, v.id FROM version v LEFT JOIN edge e ON e.child = v.number AND e.kind = {kind}'
            f' LEFT JOIN version p ON p.number = e.parent WHERE (v.{column} IS NOT NULL AND e.child IS NULL)'
            f' OR (p.id IS NOT NULL AND (v.{column} IS NULL OR p.id <> v.{column}))'
            f' OR (e.parent IS NULL AND EXISTS (SELECT 1 FROM version q WHERE q.id = v.{column}))'
        )
        problem = f'it does not lead to the `{column}` of its version'
        damaged += [
            _DamagedRow('edge', f'{number}, {kind}', f'{problem} {row_name(id)}', 'edge', (number,))
            for number, id in rows
        ]
    rows = yield Statement(f'SELECT child, kind FROM edge WHERE kind NOT IN ({PARENT}, {MERGED})')
    return damaged + [
        _DamagedRow('edge', f'{child}, {kind}', 'its kind is unknown', 'edge', (child,)) for child, kind in rows
    ]


def _requests() -> Operation[list[_DamagedRow]]:
    """Find runs with gaps in their requests."""
    rows = yield Statement(
        'SELECT run_id, COUNT(*), MAX(number) FROM request GROUP BY run_id HAVING COUNT(*) <> MAX(number)'
    )
    return [
        _DamagedRow(
            'request',
            row_name(run),
            f'{integer(last) - integer(count)} requests of the run are missing',
            'request',
            (run,),
        )
        for run, count, last in rows
    ]
