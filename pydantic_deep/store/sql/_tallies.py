"""Tallies: how many rows there are of a table, and how many belong to one run, conversation or version.

The database counts what is inserted, by triggers; what we delete is taken off by `remove`. A row that is gone otherwise
is damage, which a read notices that finds fewer rows than were counted.
"""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from pydantic_deep.store.engine import Operation, Row, Statement, Value
from pydantic_deep.store.errors import StoreCorruptedError

from ._seals import row_name
from ._statements import integer
from .dialect import Dialect

_PARENTS: Final = {
    'asset': None,
    'node': None,
    'conversation': None,
    'message': None,
    'entry': None,
    'config': None,
    'config_field': None,
    'workspace': None,
    'branch': 'conversation_id',
    'version': 'conversation',
    'edge': 'parent',
    'run': 'conversation_id',
    'request': 'run_id',
    'tool_call': 'run_id',
    'delegation': 'parent_run_id',
    'approval': 'version_id',
    'reference': None,
}
"""The tables that are counted, and the column by which their rows are counted besides."""

_LATER: Final = 'reference'
"""Is counted since a version of the tables of its own."""

_NUMBERS: Final = ('version', 'edge')
"""Tables whose column is a number."""

COUNTED: Final = tuple(_PARENTS)
"""The tables that are counted."""

_WITH_PARENT: Final = ' WHERE {}parent IS NOT NULL AND {}kind = 0'
"""The edges that are counted."""

ALL: Final = b''
"""Stands for all rows of a table in the place of a parent."""

TOTAL: Final = "(SELECT t.total FROM tally t WHERE t.name = '{table}' AND t.parent = {parent})"
"""The number of rows, as a value in a query; `parent` is a parameter."""


def parent_key(value: Value) -> bytes:
    """Return the key of a parent."""
    return value if isinstance(value, bytes) else str(value).encode()


def make_tallies(dialect: Dialect) -> Operation[None]:
    """Make the table and the triggers, and count what is there."""
    yield Statement(
        f'CREATE TABLE tally (name TEXT NOT NULL, parent {dialect.bytes_type} NOT NULL, total BIGINT NOT NULL,'
        f' PRIMARY KEY (name, parent)){dialect.clustered}'
    )
    for table in COUNTED:
        if table != _LATER:
            yield from _begin_to_count(table, dialect)


def count_references(dialect: Dialect) -> Operation[None]:
    """Count what says which contents messages and other contents mention: garbage collection goes by it."""
    yield from _begin_to_count(_LATER, dialect)


def _begin_to_count(table: str, dialect: Dialect) -> Operation[None]:
    """Count the rows of a table, and make the trigger that counts what is inserted."""
    everything = f"CAST('' AS {dialect.bytes_type})"
    yield Statement(f"INSERT INTO tally SELECT '{table}', {everything}, COUNT(*) FROM {table}")
    inserts = [_increment(table, everything)]
    if (column := _PARENTS[table]) is not None:
        parent = f'CAST(CAST({{}}{column} AS TEXT) AS {dialect.bytes_type})' if table in _NUMBERS else f'{{}}{column}'
        where = _WITH_PARENT if table == 'edge' else ''
        yield Statement(
            f"INSERT INTO tally SELECT '{table}', {parent.format('x.')}, COUNT(*) FROM {table} x"
            f'{where.format("x.", "x.")} GROUP BY {parent.format("x.")}'
        )
        inserts.append(_increment(table, parent.format('NEW.'), where.format('NEW.', 'NEW.')))
    for sql in dialect.after_insert:
        yield Statement(sql.format(table=table, statements=' '.join(inserts)))


def _increment(table: str, parent: str, where: str = ' WHERE 1 = 1') -> str:
    """Return a statement of a trigger; a `WHERE` keeps its `SELECT` apart from `ON CONFLICT`."""
    return (
        f"INSERT INTO tally (name, parent, total) SELECT '{table}', {parent}, 1{where or ' WHERE 1 = 1'}"
        ' ON CONFLICT (name, parent) DO UPDATE SET total = tally.total + 1;'
    )


def remove(table: str, where: str, values: Sequence[Value] = ()) -> Operation[None]:
    """Delete rows of a table, and take them off its tallies."""
    column = _PARENTS[table]
    returned = "''" if column is None else f'{column}, kind' if table == 'edge' else column
    rows = yield Statement(f'DELETE FROM {table} WHERE {where} RETURNING {returned}', values)
    counts = Counter(
        parent_key(row[0]) for row in rows if column is not None and row[0] is not None and row[1:] in ((), (0,))
    )
    counts[ALL] = len(rows)
    off: list[Row] = [(table, parent, count) for parent, count in counts.items() if count]
    if off:
        yield Statement('UPDATE tally SET total = total - ?3 WHERE name = ?1 AND parent = ?2', (), off)


def cut_edges(numbers: Sequence[Value]) -> Operation[None]:
    """Let the children of deleted versions have no parent any more."""
    rows: list[Row] = [(number,) for number in numbers]
    if rows:
        yield Statement('UPDATE edge SET parent = NULL WHERE parent = ?1', (), rows)
        keys: list[Row] = [(parent_key(number),) for number in numbers]
        yield Statement("DELETE FROM tally WHERE name = 'edge' AND parent = ?1", (), keys)


def total_of(table: str, parents: Sequence[Value] = (ALL,)) -> Operation[int]:
    """Return how many rows were counted."""
    total = 0
    for parent in parents:
        rows = yield Statement('SELECT total FROM tally WHERE name = ?1 AND parent = ?2', (table, parent_key(parent)))
        total += integer(rows[0][0]) if rows else 0
    return total


def counted(
    table: str, sql: str, values: Sequence[Value], parent: Value = ALL, *, limit: int | None = None
) -> Operation[list[Row]]:
    """Return rows without the tally that is last in each, and make sure that none is missing.

    Args:
        table: The table of the rows.
        sql: A query whose last column is `TOTAL` of that table and parent.
        values: Its parameters.
        parent: Whose rows they are.
        limit: At most how many it returns: as many may be fewer than there are.
    """
    rows = yield Statement(sql, values)
    if limit is not None and len(rows) >= limit:
        return [row[:-1] for row in rows]
    expected = integer(rows[0][-1] or 0) if rows else (yield from total_of(table, [parent]))
    check_count(table, len(rows), expected, parent)
    return [row[:-1] for row in rows]


def complete(tables: Collection[str]) -> Operation[None]:
    """Raise `StoreCorruptedError` if a table has other than the counted number of rows."""
    for table in tables:
        sql = f'SELECT COUNT(*), {TOTAL.format(table=table, parent="?1")} FROM {table}'
        ((found, expected),) = yield Statement(sql, (ALL,))  # at once: others may be writing
        check_count(table, integer(found), integer(expected or 0))


def check_total(table: str, found: int) -> Operation[None]:
    """Raise `StoreCorruptedError` if a table has other than the counted number of rows."""
    check_count(table, found, (yield from total_of(table)))


def check_count(table: str, found: int, expected: int, parent: Value = ALL) -> None:
    """Raise `StoreCorruptedError` if there are other than the counted rows of a table, or of one parent."""
    if expected != found:
        whose = None if parent == ALL else f'of {row_name(parent)}'
        raise StoreCorruptedError(table, whose, f'{expected} rows were written, and {found} are there')


def check_totals(table: str) -> Operation[None]:
    """Raise `StoreCorruptedError` if a table, or one run, conversation or version, has other than the counted rows."""
    found = {ALL: integer((yield Statement(f'SELECT COUNT(*) FROM {table}'))[0][0])}
    if (column := _PARENTS[table]) is not None:
        where = _WITH_PARENT.format('', '') if table == 'edge' else ''
        rows = yield Statement(f'SELECT {column}, COUNT(*) FROM {table}{where} GROUP BY {column}')
        found |= {parent_key(parent): integer(count) for parent, count in rows}
    totals = {row[0]: row[1] for row in (yield Statement('SELECT parent, total FROM tally WHERE name = ?1', (table,)))}
    for parent in sorted(found.keys() | totals.keys(), key=parent_key):
        check_count(table, found.get(parent_key(parent), 0), integer(totals.get(parent, 0)), parent)
