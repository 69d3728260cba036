"""Costs of a store on DuckDB compared with SQLite: `python benchmarks/engines.py`, in an environment with `duckdb`.

Both store the same table durably in a file on the same disk: SQLite in WAL mode with `synchronous=FULL`. The figures
are CPU seconds of this process, so that a busy machine or a slow disk has little effect; read them as ratios.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import duckdb

COMMITS = 500
"""Number of transactions with one row each."""

LOOKUPS = 500
"""Number of rows read by key, one query each."""

DEPTH = 10_000
"""Number of versions in one line."""

LINEAGE = (
    'WITH RECURSIVE line(id, parent) AS (SELECT id, parent FROM version WHERE id = ? UNION ALL'
    ' SELECT v.id, v.parent FROM line l JOIN version v ON v.id = l.parent) SELECT count(*) FROM line'
)

OPEN_SQLITE = (
    "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM version').fetchone())"
)
OPEN_DUCKDB = (
    "import duckdb, sys; print(duckdb.connect(sys.argv[1], read_only=True).execute('FROM version').fetchone())"
)


class Connection(Protocol):
    """The common interface of both drivers."""

    def execute(self, query: str, parameters: Sequence[object] = ..., /) -> object: ...


def measure(
    connection: Connection, fetch: Callable[[str, Sequence[object]], list[tuple[object, ...]]]
) -> dict[str, float]:
    """Return CPU milliseconds by operation."""
    connection.execute('CREATE TABLE version (id BIGINT PRIMARY KEY, parent BIGINT, body TEXT)')

    def commit(number: int) -> None:
        connection.execute('BEGIN')
        connection.execute('INSERT INTO version VALUES (?, ?, ?)', [number, number - 1, 'x' * 500])
        connection.execute('COMMIT')

    figures = {'commit of one row': timed(COMMITS, commit)}
    connection.execute('BEGIN')
    connection.execute(
        'INSERT INTO version WITH RECURSIVE n(i) AS (SELECT CAST(? AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < ?)'
        " SELECT i, i - 1, 'body' FROM n",
        [COMMITS, DEPTH - 1],
    )
    connection.execute('COMMIT')
    figures['point look-up'] = timed(LOOKUPS, lambda i: fetch('SELECT body FROM version WHERE id = ?', [i * 7]))
    figures[f'lineage of {DEPTH:,}'] = timed(3, lambda _: check(fetch(LINEAGE, [DEPTH - 1])))
    return figures


def measure_inserts(duck: duckdb.DuckDBPyConnection) -> dict[str, float]:
    """Return CPU microseconds per row, for each way to insert 2,000 rows that needs no other package."""
    rows = [[number, 'x' * 100] for number in range(2000)]
    duck.execute('CREATE TABLE row (number BIGINT, body TEXT)')
    values = ', '.join('(?, ?)' for _ in range(200))

    def in_values(_: int) -> None:
        for start in range(0, len(rows), 200):
            duck.execute(
                f'INSERT INTO row VALUES {values}', [cell for row in rows[start : start + 200] for cell in row]
            )

    def as_lists(_: int) -> None:
        lists = [list(column) for column in zip(*rows, strict=True)]
        duck.execute('INSERT INTO row SELECT unnest(?::BIGINT[]), unnest(?::VARCHAR[])', lists)

    ways: dict[str, Callable[[int], object]] = {
        'executemany': lambda _: duck.executemany('INSERT INTO row VALUES (?, ?)', rows),
        '200 rows of VALUES': in_values,
        'a list for each column': as_lists,
    }
    return {name: timed(1, way) / len(rows) * 1000 for name, way in ways.items()}


def timed(count: int, work: Callable[[int], object]) -> float:
    """Return the CPU milliseconds of one call of `work`."""
    start = time.process_time()
    for number in range(count):
        work(number)
    return (time.process_time() - start) / count * 1000


def check(rows: list[tuple[object, ...]]) -> None:
    """Check that the query followed the whole line."""
    assert rows == [(DEPTH,)], rows


def opens_elsewhere(program: str, path: Path) -> str:
    """Return whether another process can read the file while this one has it open."""
    done = subprocess.run([sys.executable, '-c', program, str(path)], capture_output=True, check=False)
    return 'no' if done.returncode else 'yes'


def main() -> None:
    """Measure both engines and print a table."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        files = Path(directory) / 'sqlite.db', Path(directory) / 'duckdb.db'
        sqlite = sqlite3.connect(files[0], isolation_level=None)
        sqlite.execute('PRAGMA journal_mode = WAL')
        sqlite.execute('PRAGMA synchronous = FULL')
        small = measure(sqlite, lambda query, values: list(sqlite.execute(query, values)))
        duck = duckdb.connect(str(files[1]))
        large = measure(duck, lambda query, values: duck.execute(query, values).fetchall())
        second = opens_elsewhere(OPEN_SQLITE, files[0]), opens_elsewhere(OPEN_DUCKDB, files[1])
        inserts = measure_inserts(duck)
        sqlite.close()
        duck.close()
    print(f'SQLite {sqlite3.sqlite_version}, DuckDB {duckdb.__version__}\n')
    print('| CPU ms | SQLite, WAL, FULL | DuckDB | ratio |\n|:--|--:|--:|--:|')
    for name, milliseconds in small.items():
        print(f'| {name} | {milliseconds:.3f} | {large[name]:.3f} | {large[name] / milliseconds:.0f} × |')
    print(f'| a second process can read the file | {second[0]} | {second[1]} | |')
    print('\n| a row into DuckDB | CPU µs |\n|:--|--:|')
    for name, microseconds in inserts.items():
        print(f'| {name} | {microseconds:.1f} |')


if __name__ == '__main__':
    main()
