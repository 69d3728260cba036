"""Tallies: the number of rows of a table, and of each run, conversation or version.

Database triggers count inserted rows; `remove` subtracts the rows that we delete. If a row disappears otherwise, a read
finds fewer rows than were counted and reports the damage.

A tally is stored as one row per `writer`, and their sum counts. On PostgreSQL each connection is a writer, so that
concurrent writes do not wait for each other to count; on SQLite there is one. `merge_tallies` combines the rows of
connections that have ended.
"""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from pydantic_deep.store.engine import Operation, Row, Statement, Value
from pydantic_deep.store.errors import StoreCorruptedError

from ._seals import row_name
from ._statements import insert_many, integer
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
"""The counted tables, with the column by which their rows are also counted."""

_LATER: Final = 'reference'
"""Counted since a later migration."""

_NUMBERS: Final = ('version', 'edge')
"""Tables with a numeric parent column."""

COUNTED: Final = tuple(_PARENTS)
"""The names of the counted tables."""

_WITH_PARENT: Final = ' WHERE {}parent IS NOT NULL AND {}kind = 0'
"""Condition of the edges that are counted."""

ALL: Final = b''
"""In place of a parent: all rows of the table."""

_SUM: Final = 'CAST(SUM(total) AS BIGINT)'

TOTAL: Final = f"(SELECT {_SUM} FROM tally t WHERE t.name = '{{table}}' AND t.parent = {{parent}})"
"""The number of rows, as an expression in a query; `parent` is a parameter."""


def parent_key(value: Value) -> bytes:
    """Return the key of a parent in the tallies."""
    return value if isinstance(value, bytes) else str(value).encode()


def make_tallies(dialect: Dialect) -> Operation[None]:
    """Create the first form of the table and its triggers, and count the existing rows."""
    yield Statement(
        f'CREATE TABLE tally (name TEXT NOT NULL, parent {dialect.bytes_type} NOT NULL, total BIGINT NOT NULL,'
        f' PRIMARY KEY (name, parent)){dialect.clustered}'
    )
    for table in COUNTED:
        if table != _LATER:
            yield from _begin_to_count(table, dialect)


def count_references(dialect: Dialect) -> Operation[None]:
    """Count the rows of `reference`, on which garbage collection relies."""
    yield from _begin_to_count(_LATER, dialect)


def split_tallies(dialect: Dialect) -> Operation[None]:
    """Give each writer rows of its own."""
    yield Statement('ALTER TABLE tally RENAME TO tally_of_all')
    for table in COUNTED:
        for sql in dialect.drop_after_insert:
            yield Statement(sql.format(table=table))
    yield Statement(
        f'CREATE TABLE tally (name TEXT NOT NULL, parent {dialect.bytes_type} NOT NULL,'
        # Columns of the key come first: otherwise SQLite 3.40 finds damage in its check of integrity.
        f' writer BIGINT NOT NULL DEFAULT {dialect.writer_default}, total BIGINT NOT NULL,'
        f' PRIMARY KEY (name, parent, writer)){dialect.clustered}'
    )
    yield Statement('INSERT INTO tally (name, parent, total) SELECT name, parent, total FROM tally_of_all')
    yield Statement('DROP TABLE tally_of_all')
    for table in COUNTED:
        yield from _create_trigger(table, dialect, ', writer')


def _begin_to_count(table: str, dialect: Dialect) -> Operation[None]:
    """Count the rows of a table, and create the trigger that counts inserted rows."""
    everything = f"CAST('' AS {dialect.bytes_type})"
    yield Statement(f"INSERT INTO tally SELECT '{table}', {everything}, COUNT(*) FROM {table}")
    if (parent := _parent_of(table, dialect)) is not None:
        where = _WITH_PARENT if table == 'edge' else ''
        yield Statement(
            f"INSERT INTO tally SELECT '{table}', {parent.format('x.')}, COUNT(*) FROM {table} x"
            f'{where.format("x.", "x.")} GROUP BY {parent.format("x.")}'
        )
    yield from _create_trigger(table, dialect)


def _parent_of(table: str, dialect: Dialect) -> str | None:
    """Return the key of a row's parent, as an expression; `{}` is the prefix of the column."""
    if (column := _PARENTS[table]) is None:
        return None
    return f'CAST(CAST({{}}{column} AS TEXT) AS {dialect.bytes_type})' if table in _NUMBERS else f'{{}}{column}'


def _create_trigger(table: str, dialect: Dialect, writer: str = '') -> Operation[None]:
    inserts = [_increment(table, f"CAST('' AS {dialect.bytes_type})", writer)]
    if (parent := _parent_of(table, dialect)) is not None:
        where = _WITH_PARENT if table == 'edge' else ''
        inserts.append(_increment(table, parent.format('NEW.'), writer, where.format('NEW.', 'NEW.')))
    for sql in dialect.after_insert:
        yield Statement(sql.format(table=table, statements=' '.join(inserts)))


def _increment(table: str, parent: str, writer: str, where: str = ' WHERE 1 = 1') -> str:
    """Return a statement for a trigger. It always has a `WHERE`, which separates its `SELECT` from `ON CONFLICT`."""
    return (
        f"INSERT INTO tally (name, parent, total) SELECT '{table}', {parent}, 1{where or ' WHERE 1 = 1'}"
        f' ON CONFLICT (name, parent{writer}) DO UPDATE SET total = tally.total + 1;'
    )


def remove(table: str, where: str, values: Sequence[Value] = ()) -> Operation[int]:
    """Delete rows of a table, and subtract them from its tallies; return their number."""
    column = _PARENTS[table]
    returned = "''" if column is None else f'{column}, kind' if table == 'edge' else column
    rows = yield Statement(f'DELETE FROM {table} WHERE {where} RETURNING {returned}', values)
    counts = Counter(
        parent_key(row[0]) for row in rows if column is not None and row[0] is not None and row[1:] in ((), (0,))
    )
    counts[ALL] = len(rows)
    yield from _add([(table, parent, -count) for parent, count in counts.items() if count])
    return len(rows)


def _add(changes: Sequence[Row]) -> Operation[None]:
    """Add (table, parent, number) to the tallies of this writer."""
    suffix = 'ON CONFLICT (name, parent, writer) DO UPDATE SET total = tally.total + excluded.total'
    yield from insert_many('tally', 'name, parent, total', changes, suffix)


def merge_tallies(dialect: Dialect) -> Operation[None]:
    """Add the numbers of all rows of each table that were counted by former writers to those of this one."""
    rows = yield Statement(
        f'DELETE FROM tally WHERE parent = ?1 AND writer IN ({dialect.former_writers}) RETURNING name, total', (ALL,)
    )
    yield from _add([(name, ALL, total) for name, total in rows])


def cut_edges(numbers: Sequence[Value]) -> Operation[None]:
    """Remove the parent from the edges of the children of deleted versions."""
    rows: list[Row] = [(number,) for number in numbers]
    if rows:
        yield Statement('UPDATE edge SET parent = NULL WHERE parent = ?1', (), rows)
        keys: list[Row] = [(parent_key(number),) for number in numbers]
        yield Statement("DELETE FROM tally WHERE name = 'edge' AND parent = ?1", (), keys)


def total_of(table: str, parents: Sequence[Value] = (ALL,)) -> Operation[int]:
    """Return the number of rows that were counted."""
    total = 0
    for parent in parents:
        sql = f'SELECT {_SUM} FROM tally WHERE name = ?1 AND parent = ?2'
        ((counted_rows,),) = yield Statement(sql, (table, parent_key(parent)))
        total += integer(counted_rows or 0)
    return total


def counted(
    table: str, sql: str, values: Sequence[Value], parent: Value = ALL, *, limit: int | None = None
) -> Operation[list[Row]]:
    """Return the rows of a query after verifying that none is missing.

    Args:
        table: The table of the rows.
        sql: A query for all rows of the table, or of one parent in it, or for a page of them.
        values: The parameters of the query.
        parent: The parent of the rows.
        limit: The limit of the query: a full page is not verified.
    """
    total = TOTAL.format(table=table, parent=f'?{len(values) + 1}')
    rows = yield Statement(sql.replace(' FROM', f', {total} FROM', 1), (*values, parent_key(parent)))
    if limit is not None and len(rows) >= limit:
        return [row[:-1] for row in rows]
    expected = integer(rows[0][-1] or 0) if rows else (yield from total_of(table, [parent]))
    check_count(table, len(rows), expected, parent)
    return [row[:-1] for row in rows]


def complete(tables: Collection[str]) -> Operation[None]:
    """Raise `StoreCorruptedError` if the number of rows of a table differs from the counted one."""
    for table in tables:
        sql = f'SELECT COUNT(*), {TOTAL.format(table=table, parent="?1")} FROM {table}'
        ((present, expected),) = yield Statement(sql, (ALL,))  # in one statement: others may be writing
        check_count(table, integer(present), integer(expected or 0))


def check_total(table: str, present: int) -> Operation[None]:
    """Raise `StoreCorruptedError` if the number of rows of a table differs from the counted one."""
    check_count(table, present, (yield from total_of(table)))


def check_count(table: str, present: int, expected: int, parent: Value = ALL) -> None:
    """Raise `StoreCorruptedError` if the number of rows of a table, or of one parent, differs from the counted one."""
    if expected != present:
        owner = None if parent == ALL else f'of {row_name(parent)}'
        raise StoreCorruptedError(table, owner, f'{expected} rows were written, and {present} exist')


def check_totals(table: str) -> Operation[None]:
    """Raise `StoreCorruptedError` if the number of rows of a table, or of any parent in it, differs from the counted
    one.
    """
    counts = {ALL: integer((yield Statement(f'SELECT COUNT(*) FROM {table}'))[0][0])}
    if (column := _PARENTS[table]) is not None:
        where = _WITH_PARENT.format('', '') if table == 'edge' else ''
        rows = yield Statement(f'SELECT {column}, COUNT(*) FROM {table}{where} GROUP BY {column}')
        counts |= {parent_key(parent): integer(count) for parent, count in rows}
    sql = f'SELECT parent, {_SUM} FROM tally WHERE name = ?1 GROUP BY parent'
    totals = {row[0]: row[1] for row in (yield Statement(sql, (table,)))}
    for parent in sorted(counts.keys() | totals.keys(), key=parent_key):
        check_count(table, counts.get(parent_key(parent), 0), integer(totals.get(parent, 0)), parent)
