"""Scans of all rows of a table, page by page, for `check` and for the migration that adds seals."""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from pydantic_deep.store.engine import Operation, Row, Statement, Value
from pydantic_deep.store.errors import StoreCorruptedError
from pydantic_deep_backends.snapshots import digest_of

from . import _rows
from ._commit_rows import asset_seal
from ._seals import reads, row_name, seal
from ._statements import Kind, bytes_from, decoded, digest_from, id_from, integer, marks
from ._tallies import check_total

_PAGE: Final = 500
"""Number of rows per query; the content of one may be large."""


class Scan(NamedTuple):
    """A scan of a table in the order of its keys."""

    table: str
    keys: tuple[str, ...]
    """Columns of the primary key."""
    columns: str
    """Columns of each row `x` to read beside its key; the seal, if any, is last."""
    joins: str
    """Joins of the query."""
    expected: Callable[[Row], int]
    """Computes the expected seal of a row from its columns without the seal."""

    def page(self, after: Row) -> Statement:
        """Return the query for the page after a key; an empty key is before the first row."""
        keys = ', '.join(f'x.{key}' for key in self.keys)
        where = f' WHERE ({keys}) > ({marks(len(after))})' if after else ''
        sql = f'SELECT {keys}, {self.columns} FROM {self.table} x{self.joins}{where} ORDER BY {keys} LIMIT {_PAGE}'
        return Statement(sql, after)


def _record(kinds: tuple[Kind | None, ...]) -> Callable[[Row], int]:
    return lambda row: seal(tuple(decoded(row, kinds)))


def _version(row: Row) -> int:
    return _rows.version_seal(_rows.decode_version(row))


def _branch(row: Row) -> int:
    return seal((id_from(row[0]), id_from(row[1]), *row[2:]))


def _message(row: Row) -> int:
    return _rows.message_seal(id_from(row[0]), cast('bytes', row[1]))


def _entry(row: Row) -> int:
    return _rows.entry_seal(id_from(row[0]), integer(row[1]), id_from(row[2]))


def _asset(row: Row) -> int:
    return asset_seal(digest_from(row[0]), str(row[1]), integer(row[2]), integer(row[3]))


def _columns(names: str) -> str:
    return f'x.{names}'.replace(', ', ', x.')


_NUMBER: Final = ('number',)

SEALED: Final = (
    Scan('conversation', _NUMBER, _columns(_rows.CONVERSATION), '', _record(_rows.CONVERSATION_KINDS)),
    Scan('branch', _NUMBER, _columns(_rows.BRANCH), '', _branch),
    Scan('message', _NUMBER, _columns(_rows.MESSAGE), '', _message),
    Scan(
        'entry',
        ('branch', 'seq'),
        'b.id, x.seq, m.id, x.seal',
        ' LEFT JOIN branch b ON b.number = x.branch LEFT JOIN message m ON m.number = x.message',
        _entry,
    ),
    Scan('asset', _NUMBER, _columns('digest, media_type, size_bytes, created_at, seal'), '', _asset),
    Scan(
        'version',
        _NUMBER,
        _rows.SELECT_VERSION.removeprefix('SELECT ').replace('v.', 'x.'),
        _rows.FROM_VERSION.replace('v.', 'x.'),
        _version,
    ),
    Scan('run', _NUMBER, _columns(_rows.RUN), '', _record(_rows.RUN_KINDS)),
    Scan(
        'request',
        ('run_id', 'number'),
        _rows.SELECT_REQUEST.removeprefix('SELECT ').partition(' FROM')[0].replace('r.', 'x.'),
        _rows.SELECT_REQUEST.partition('request r')[2].replace('r.', 'x.'),
        _record(_rows.REQUEST_KINDS),
    ),
    Scan(
        'tool_call',
        _NUMBER,
        _rows.SELECT_CALL.removeprefix('SELECT ').partition(' FROM')[0].replace('c.', 'x.'),
        _rows.SELECT_CALL.partition('tool_call c')[2].replace('c.', 'x.'),
        _record(_rows.CALL_KINDS),
    ),
    Scan('delegation', _NUMBER, _columns(_rows.DELEGATION), '', _record(_rows.DELEGATION_KINDS)),
    Scan('approval', _NUMBER, _columns(_rows.APPROVAL), '', _record(_rows.APPROVAL_KINDS)),
    Scan('workspace', ('backend',), _columns(_rows.WORKSPACE), '', _record(_rows.WORKSPACE_KINDS)),
)
"""Scans of the tables with seals."""


_COLUMN: Final = re.compile(r'\bx\.(\w+)')


def _column_or_null(existing: Collection[Value], column: re.Match[str]) -> str:
    return column[0] if column[1] in existing else 'NULL'


def _node(row: Row) -> int:
    digest = digest_from(row[0])
    return 0 if digest_of(bytes_from(row[1])) == digest else 1


NODES: Final = Scan('node', _NUMBER, 'x.digest, x.data, 0', '', _node)
"""Nodes have no seals: their keys are the digests of their content."""


def verify(table: str, integrity: str) -> Operation[None]:
    """Verify all rows of a table.

    Args:
        table: The table.
        integrity: The database's own check of pages and indexes; empty if it has none.

    Raises:
        StoreCorruptedError: A row differs from the one that was written, or an index lacks it.
    """
    for row in (yield Statement(f'{integrity}({table})')) if integrity else []:
        if row != ('ok',):
            raise StoreCorruptedError(table, None, str(row[0]))
    for scan in (*SEALED, NODES):
        if scan.table == table:
            read = reads(table)(partial(_check, scan))
            after: Row = ()
            count = 0
            while page := (yield scan.page(after)):
                after = page[-1][: len(scan.keys)]
                count += len(page)
                for row in page:
                    read(row)
            yield from check_total(table, count)


def verify_rows(table: str, column: str, keys: Sequence[Value]) -> Operation[None]:
    """Verify the rows of a table in which a column has one of these values.

    Raises:
        StoreCorruptedError: A row differs from the one that was written.
    """
    scan = next(scan for scan in (*SEALED, NODES) if scan.table == table)
    read = reads(table)(partial(_check, scan))
    names = ', '.join(f'x.{key}' for key in scan.keys)
    sql = f'SELECT {names}, {scan.columns} FROM {table} x{scan.joins} WHERE x.{column} IN ({marks(len(keys))})'
    for row in (yield Statement(sql, keys)):
        read(row)


def _check(scan: Scan, row: Row) -> None:
    if scan.expected(row[len(scan.keys) : -1]) != row[-1]:
        name = ', '.join(map(row_name, row[: len(scan.keys)]))
        raise StoreCorruptedError(scan.table, name, 'a value differs from the one that was written')


def seal_everything(columns: str) -> Operation[None]:
    """Write the seals of all rows of a store that had none.

    Args:
        columns: A query for the columns of a table, as later migrations have added some of the columns that a scan
            reads.
    """
    for sealed in SEALED:
        existing = {row[0] for row in (yield Statement(columns, (sealed.table,)))}
        scan = sealed._replace(columns=_COLUMN.sub(partial(_column_or_null, existing), sealed.columns))
        count = len(scan.keys)
        where = ' AND '.join(f'{key} = ?{place}' for place, key in enumerate(scan.keys, 2))
        after: Row = ()
        while page := (yield scan.page(after)):
            after = page[-1][:count]
            rows: list[Row] = [(scan.expected(row[count:-1]), *row[:count]) for row in page]
            yield Statement(f'UPDATE {scan.table} SET seal = ?1 WHERE {where}', (), rows)
