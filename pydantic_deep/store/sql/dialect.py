"""`Dialect`: the parts of SQL in which SQLite and PostgreSQL differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, runtime_checkable

from pydantic_deep.store.engine import Engine, Operation

FORMAT: Final = 'pydantic-deep store'
"""Marks a database as a store, in the table `meta`."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The parts of SQL that are specific to one database."""

    bytes_type: str
    """The type of a column of bytes."""
    serial: str
    """The type of an auto-incrementing integer key."""
    clustered: str
    """Suffix of a table's definition that stores its rows in the order of the primary key."""
    table_exists: str
    """A query with the name of a table as its parameter, with a row if the table exists."""
    any_table: str
    """A query for the name of any table."""
    all_tables: str
    """A query for the names of all tables."""
    columns: str
    """A query for the columns of a table, which is its parameter."""
    keys: str
    """A query for the columns of a table's primary key."""
    after_insert: tuple[str, ...]
    """Statements that run `{statements}` after each insertion of a row into a `{table}`."""
    integrity: str
    """A query that checks the database's pages, with the result `ok`; empty if the database has none."""
    next_number: str
    """Sets the next number of a `{table}` to follow its largest; empty if the database does so itself."""
    text_type: str
    """The type of text that is compared by code points."""
    drop_after_insert: tuple[str, ...]
    """Statements that undo `after_insert` for a `{table}`."""
    writer_default: str
    """An expression for a number that no other open connection has; a constant if only one can write."""
    former_writers: str
    """A query for the numbers in `tally` that no open connection has."""
    append_entries: str
    """Appends entries to the log of a run in one statement, without waiting for the disk; empty if the database cannot."""
    clock: str
    """A query for the time in microseconds since 1970; empty if all processes are on one machine, and have its clock."""


Tables: TypeAlias = Callable[[Dialect], Operation[object]]
"""Brings the tables of a database up to date, or rejects it; runs in one transaction, before anything else."""


@runtime_checkable
class SupportsTables(Engine, Protocol):
    """An engine that also accepts tables other than those of a store."""

    @property
    def dialect(self) -> Dialect:
        """The SQL dialect of the database."""
        ...


SQLITE: Final = Dialect(
    bytes_type='BLOB',
    serial='INTEGER PRIMARY KEY AUTOINCREMENT',
    clustered=' WITHOUT ROWID',
    table_exists="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1",
    any_table="SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' LIMIT 1",
    all_tables="SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    columns='SELECT name FROM pragma_table_info(?1) ORDER BY cid',
    keys='SELECT name FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk',
    after_insert=('CREATE TRIGGER {table}_tally AFTER INSERT ON {table} BEGIN {statements} END',),
    integrity='PRAGMA integrity_check',
    next_number='',
    text_type='TEXT',
    drop_after_insert=('DROP TRIGGER {table}_tally',),
    writer_default='0',
    former_writers='SELECT writer FROM tally WHERE writer <> 0',
    append_entries='',
    clock='',
)
"""The dialect of SQLite."""

POSTGRES: Final = Dialect(
    bytes_type='BYTEA',
    serial='BIGSERIAL PRIMARY KEY',
    clustered='',
    table_exists='SELECT 1 FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = ?1',
    any_table='SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() LIMIT 1',
    all_tables='SELECT CAST(tablename AS text) FROM pg_tables WHERE schemaname = current_schema()',
    columns='SELECT CAST(attname AS text) FROM pg_attribute WHERE attrelid = CAST(CAST(?1 AS text) AS regclass)'
    ' AND attnum > 0 AND NOT attisdropped ORDER BY attnum',
    keys='SELECT CAST(a.attname AS text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid'
    ' AND a.attnum = ANY (i.indkey) WHERE i.indisprimary AND i.indrelid = CAST(CAST(?1 AS text) AS regclass)'
    ' ORDER BY array_position(CAST(i.indkey AS smallint[]), a.attnum)',
    after_insert=(
        'CREATE FUNCTION {table}_tally() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {statements} RETURN NULL; END $$',
        'CREATE TRIGGER {table}_tally AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_tally()',
    ),
    integrity='',
    next_number="SELECT setval(pg_get_serial_sequence('{table}', 'number'), COALESCE(MAX(number), 1), COUNT(*) > 0)"
    ' FROM {table}',
    text_type='TEXT COLLATE "C"',
    drop_after_insert=('DROP TRIGGER {table}_tally ON {table}', 'DROP FUNCTION {table}_tally'),
    writer_default='pg_backend_pid()',
    former_writers='SELECT writer FROM tally EXCEPT SELECT pid FROM pg_stat_activity',
    append_entries='WITH claim AS (UPDATE queued_run SET position = ?4'
    " WHERE run_id = ?1 AND epoch = ?2 AND position = ?3 AND set_config('synchronous_commit', 'off', true) = 'off'"
    ' RETURNING run_id, epoch, position) INSERT INTO run_event (run_id, epoch, last, entries)'
    ' SELECT run_id, epoch, position, CAST(?5 AS BYTEA) FROM claim RETURNING last',
    clock='SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)',
)
"""The dialect of PostgreSQL."""
