"""Backups: all rows of a store in one file, which can be restored to any engine.

```
pydantic-deep backup 1 LF
zlib (RFC 1950) of lines of JSON, in UTF-8:
    {"tables_version": 2, "made_at": 1767225600000000}
    {"table": "asset", "columns": ["number", …]}    then an array for each row, with bytes as {"b": base64}
    …
    {"table": "tally", "columns": ["name", …]}    row counts as written, which reveal rows missing in the source
    {"table": "rows_api_key", "columns": ["key", "body"]}    of each repository; other columns are derived from these
    {"table": "blob", "columns": ["digest", "data"]}    the chunks of contents outside of the database, in order
    {"rows": 1234}
SHA-256 of everything before it, 32 bytes
```
"""

# ruff: noqa: S608 - names of tables and columns are those of the database; every value is bound

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import secrets
import sys
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, Final, TypeAlias, cast

from pydantic_deep.store.engine import Operation, Row, Statement, Value
from pydantic_deep.store.errors import BackupError
from pydantic_deep.store.sql import _codec, _keys
from pydantic_deep.store.sql._migrations import MIGRATIONS, migrate
from pydantic_deep.store.sql._statements import digest_from, insert_many, integer, marks
from pydantic_deep.store.sql.dialect import Dialect
from pydantic_deep.store.sql.repository_tables import NO_COLUMNS, is_rows_table, repository_table, rows_table

from ._reads import StoredAsset, assets_outside

MAGIC: Final = b'pydantic-deep backup 1\n'
"""First line of a backup of this format."""

_DIGEST_BYTES: Final = 32

_PAGE: Final = 500
"""Maximum number of rows per query, unless rows are large."""

_LARGE_TABLES: Final = {'asset': 'data', 'message': 'body', 'node': 'data'}
"""Tables with large rows, and the column of the large values."""

_PAGE_BYTES: Final = 8 * 1024 * 1024
"""Maximum total size of large rows per query; a single row may exceed it."""

_CHUNK_BYTES: Final = 1024 * 1024

_MAX_INSIDE_BYTES: Final = 512 * 1024 * 1024
"""Maximum size of content that a row receives: SQLite and PostgreSQL store at most about 1 GB, compressed or not."""

BLOB: Final = 'blob'
"""The table of a backup that has contents outside of the database, which has no such table."""

_TALLY: Final = 'tally'

_OTHERS: Final = ('meta', 'repository', _TALLY)
"""Tables that are not part of the store's data, or count the rows of other tables. Names of repository tables start
with `rows_`.
"""

_REPOSITORY_COLUMNS: Final[tuple[str, ...]] = ('name', 'key_field', 'key_kind', 'layout')

Progress: TypeAlias = Callable[[str, int], None]
"""Called with a table and the number of its completed rows, in any thread; with `blob` for contents outside of the
database.
"""


def no_progress(_table: str, _rows: int) -> None:
    """Ignore progress."""


def tables_of(dialect: Dialect) -> Operation[list[str]]:
    """Return the names of a store's tables, sorted."""
    rows = yield Statement(dialect.all_tables)
    names = [str(row[0]) for row in rows]
    return sorted(name for name in names if name not in _OTHERS and not name.startswith('rows_'))


def backup(
    file: IO[bytes], dialect: Dialect, now: int, progress: Progress, *, has_blobs: bool
) -> Operation[tuple[BackupWriter, int, list[StoredAsset]]]:
    """Write all rows of one consistent snapshot to a file; return the writer, the number of rows, and the assets with
    their contents outside of the database, which are to be written next.

    Args:
        file: A new file. What a failed attempt has written to it is removed.
        dialect: The dialect of the database.
        now: The current time.
        progress: Called with each page.
        has_blobs: Whether contents outside of the database can be read.

    Raises:
        BackupError: There are such contents, and they cannot be read.
        OSError: The file cannot be written.
    """
    outside = [stored for _, stored in (yield from assets_outside())]
    if outside and not has_blobs:
        raise BackupError(
            f'The store has {len(outside)} contents in object storage, which was not opened, so a backup would not be '
            'complete. Open the store with the `blobs` that it was written with (on the command line: '
            '`PYDANTIC_DEEP_BLOBS`).'
        )
    file.seek(0)
    file.truncate()
    writer = BackupWriter(file, progress)
    writer.line({'tables_version': len(MIGRATIONS), 'made_at': now})
    total = 0
    for table in [*(yield from tables_of(dialect)), _TALLY, *(yield from _repositories_of(dialect))]:
        if is_rows_table(table):
            columns, keys, selected = ['key', 'body'], ['key'], 'key, body'
        elif table == 'repository':
            columns, keys = _REPOSITORY_COLUMNS, ['name']
            selected = f"name, key_field, key_kind, '{NO_COLUMNS}'"
        else:
            columns = [str(row[0]) for row in (yield Statement(dialect.columns, (table,)))]
            keys = [str(row[0]) for row in (yield Statement(dialect.keys, (table,)))]
            selected = '*'
        writer.begin_table(table, columns)
        if table in _LARGE_TABLES:
            yield from large_pages(table, writer.rows)
        else:
            yield from _pages(table, columns, keys, selected, writer.rows)
        total += 0 if table == _TALLY else writer.count
    return writer, total, outside


def _repositories_of(dialect: Dialect) -> Operation[list[str]]:
    """Return the table of repositories and the repositories' own tables, in the order of restoration."""
    names = [str(row[0]) for row in (yield Statement(dialect.all_tables))]
    return ['repository', *sorted(filter(is_rows_table, names))] if 'repository' in names else []


def _pages(
    table: str, columns: Sequence[str], keys: Sequence[str], selected: str, use: Callable[[list[Row]], None]
) -> Operation[None]:
    """Read all rows, in the order of their keys, and call `use` with each page; the last one is empty."""
    places = [columns.index(key) for key in keys]
    order = ', '.join(keys)
    after: Row = ()
    while True:
        where = f' WHERE ({order}) > ({marks(len(after))})' if after else ''
        page = yield Statement(f'SELECT {selected} FROM {table}{where} ORDER BY {order} LIMIT {_PAGE}', after)
        use(page)
        if not page:
            return
        after = tuple(page[-1][place] for place in places)


def large_pages(table: str, use: Callable[[list[Row]], None]) -> Operation[None]:
    """Read all rows of a numbered table, and call `use` with each page; their sizes are read first."""
    after = 0
    length = f'LENGTH({_LARGE_TABLES[table]})'
    sizes_of = f'SELECT number, {length} FROM {table} WHERE number > ?1 ORDER BY number LIMIT {_PAGE}'
    sql = f'SELECT * FROM {table} WHERE number > ?1 AND number <= ?2 ORDER BY number'
    while sizes := (yield Statement(sizes_of, (after,))):
        first, total = after, 0
        for number, size in sizes:
            if total and total + integer(size) > _PAGE_BYTES:
                use((yield Statement(sql, (first, after))))
                first, total = after, 0
            after = integer(number)
            total += integer(size)
        use((yield Statement(sql, (first, after))))


def _encoded(value: Value) -> object:
    return {'b': base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _decoded(value: object) -> Value:
    if isinstance(value, dict):
        return base64.b64decode(cast('dict[str, str]', value)['b'])
    return cast('Value', value)


class BackupWriter:
    """Writes compressed lines, and a digest at the end."""

    def __init__(self, file: IO[bytes], progress: Progress) -> None:
        self._file = file
        self._progress = progress
        self._table = ''
        self.count = 0
        """Number of rows of the current table so far."""
        self._packer = zlib.compressobj(1)
        self._digest = hashlib.sha256()
        self._write(MAGIC)

    def line(self, value: object) -> None:
        """Write a value as one line."""
        text = json.dumps(value, ensure_ascii=False, separators=(',', ':'))
        self._write(self._packer.compress(f'{text}\n'.encode()))

    def begin_table(self, table: str, columns: Sequence[str]) -> None:
        """Write the header of a table."""
        self.line({'table': table, 'columns': columns})
        self._table, self.count = table, 0

    def rows(self, page: list[Row]) -> None:
        """Write rows of the current table, and report the progress."""
        for row in page:
            self.line([_encoded(value) for value in row])
        self.count += len(page)
        self._progress(self._table, self.count)

    def chunk(self, digest: str, data: bytes) -> None:
        """Write the next chunk of content, which has at least one."""
        self.line([digest, _encoded(data)])

    def end_content(self) -> None:
        """Count content as completed, and report the progress."""
        self.count += 1
        self._progress(self._table, self.count)

    def finish(self, rows: int) -> None:
        """Write the number of rows, and the digest."""
        self.line({'rows': rows})
        self._write(self._packer.flush())
        self._file.write(self._digest.digest())

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)


@asynccontextmanager
async def new_file(path: Path) -> AsyncGenerator[IO[bytes]]:
    """Create a file for its user alone, which appears under its name once it is complete and on disk."""
    part = path.with_name(f'.{path.name}.{secrets.token_hex(4)}.part')
    file = await asyncio.to_thread(_create, path, part)
    try:
        with file:
            yield file
            await asyncio.to_thread(_complete, file, part, path)
    finally:
        part.unlink(missing_ok=True)


def _create(path: Path, part: Path) -> IO[bytes]:
    if path.exists():
        raise FileExistsError(f'The file {str(path)!r} exists already. Choose another name for the backup.')
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f'There is no directory {str(path.parent)!r} for the backup. Create it, or choose another.'
        )
    return os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), 'wb')


def _complete(file: IO[bytes], part: Path, path: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    os.link(part, path)  # refuses a name that was taken meanwhile
    if sys.platform != 'win32':  # where directories cannot be opened
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def check_backup(path: Path) -> int:
    """Verify that a backup is complete; return the version of its tables.

    Raises:
        BackupError: The file is damaged, truncated, not a backup, or from a newer release.
        OSError: The file cannot be read.
    """
    with path.open('rb') as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise BackupError(
                f'{str(path)!r} is not a backup of a store, or is one of a newer release. Choose another file.'
            )
        rest = os.fstat(file.fileno()).st_size - len(MAGIC) - _DIGEST_BYTES
        digest = hashlib.sha256(MAGIC)
        while rest > 0 and (data := file.read(min(rest, _CHUNK_BYTES))):
            digest.update(data)
            rest -= len(data)
        if rest != 0 or file.read() != digest.digest():
            raise BackupError(f'The backup {str(path)!r} is damaged or truncated. Choose another one.')
    header = cast('dict[str, int]', next(_lines(path)))
    if header['tables_version'] > len(MIGRATIONS):
        raise BackupError(f'The backup {str(path)!r} was made by a newer release of pydantic-deep. Install that.')
    return header['tables_version']


def _lines(path: Path) -> Iterator[object]:
    """Yield the lines of a verified backup."""
    return map(json.loads, _texts(path))


def _texts(path: Path) -> Iterator[bytes]:
    unpacker = zlib.decompressobj()
    rest = b''
    with path.open('rb') as file:
        file.seek(len(MAGIC))
        while not unpacker.eof:  # then the digest follows
            data = unpacker.unconsumed_tail or file.read(_CHUNK_BYTES)
            *lines, rest = (rest + unpacker.decompress(data, _CHUNK_BYTES)).split(b'\n')
            yield from lines


def contents_in(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the chunks of the contents outside of the database, each with its digest, from a verified backup."""
    is_here = False
    for text in _texts(path):
        if text.startswith(b'{'):
            is_here = json.loads(text).get('table') == BLOB
        elif is_here:
            digest, data = json.loads(text)
            yield digest, cast('bytes', _decoded(data))


def check_empty(dialect: Dialect, url: str) -> Operation[None]:
    """Raise `BackupError` if the store at a URL is not empty."""
    for table in [*(yield from tables_of(dialect)), *(yield from _repositories_of(dialect))]:
        if (yield Statement(f'SELECT 1 FROM {table} LIMIT 1')):
            raise BackupError(
                f'The store {url!r} is not empty. Restore the backup to a new one (on the command line: `--store '
                'sqlite:///NEW.db`).'
            )


def restore(path: Path, dialect: Dialect, url: str, progress: Progress, blobs: Mapping[str, str]) -> Operation[int]:
    """Insert all rows of a backup into the tables of an empty store of the same version; return their number.

    Args:
        path: The verified backup.
        dialect: The dialect of the database.
        url: The URL of the store, for errors.
        progress: Called with each page.
        blobs: The names of the blobs that have contents already, by digest. Other contents are stored in their rows.

    Raises:
        BackupError: The store is not empty, or content is too large for a row.
    """
    yield from check_empty(dialect, url)
    total = 0
    table, columns = '', ''
    rows: list[Row] = []
    places: list[int] = []
    size = count = 0
    content = _Content()
    for line in _lines(path):
        if table == BLOB:
            digest, data = cast('tuple[str, object]', line) if isinstance(line, list) else (None, None)
            if content.digest not in (None, digest):
                yield from content.store()
                count += 1
                progress(BLOB, count)
            if digest is not None:
                if digest not in blobs:
                    content = content if content.digest == digest else _Content(digest)
                    content.add(cast('bytes', _decoded(data)))
                continue
            count = 0
        if isinstance(line, list):
            rows.append(_outside(tuple(map(_decoded, cast('list[object]', line))), places, blobs))
            size += sum(len(value) for value in rows[-1] if isinstance(value, bytes))
        if rows and (isinstance(line, dict) or len(rows) == _PAGE or size > _PAGE_BYTES):
            yield from insert_many(table, columns, rows)
            count += len(rows)
            progress(table, count)
            rows, size = [], 0
        if isinstance(line, dict) and 'table' in line:
            header = cast('dict[str, list[str]]', line)
            total += 0 if table == _TALLY else count
            table, columns, count = str(header['table']), ', '.join(header['columns']), 0
            places = [header['columns'].index(name) for name in ('digest', 'data')] if table == 'asset' else []
            if table == 'repository':
                yield repository_table()
            elif table == _TALLY:
                yield Statement('DELETE FROM tally')  # the triggers have counted the rows of the backup
            elif is_rows_table(table):
                yield rows_table(dialect, table)
    for name in (yield from tables_of(dialect)):
        keys = yield Statement(dialect.keys, (name,))
        if keys == [('number',)] and dialect.next_number:
            yield Statement(dialect.next_number.format(table=name))
    yield from migrate(dialect)
    return total + (0 if table == _TALLY else count)


def _outside(row: Row, places: Sequence[int], blobs: Mapping[str, str]) -> Row:
    """Return a row that names the blob that has its content, if it is that of an asset with one."""
    if not places or _codec.blob_in(cast('bytes', row[places[1]])) is None:
        return row
    name = blobs.get(digest_from(row[places[0]]))
    changed = [*row]
    changed[places[1]] = row[places[1]] if name is None else _codec.encode_outside(name)
    return tuple(changed)


class _Content:
    """Content of a backup that goes to its row."""

    def __init__(self, digest: str | None = None) -> None:
        self.digest = digest
        self._chunks: list[bytes] = []
        self._size_bytes = 0

    def add(self, chunk: bytes) -> None:
        """Add a chunk. Raises `BackupError` if there are too many."""
        self._chunks.append(chunk)
        self._size_bytes += len(chunk)
        if self._size_bytes > _MAX_INSIDE_BYTES:
            raise BackupError(
                f'The content {self.digest} of the backup has more than {_MAX_INSIDE_BYTES:,} bytes, too many for a '
                'database. Restore the backup with `blobs`, object storage or a directory for large contents (on the '
                'command line: `PYDANTIC_DEEP_BLOBS`).'
            )

    def store(self) -> Operation[None]:
        """Replace the name of a blob in the row by the content."""
        data = _codec.encode(b''.join(self._chunks))
        yield Statement('UPDATE asset SET data = ?2 WHERE digest = ?1', (_keys.pack_digest(self.digest or ''), data))


def migrate_to(version: int) -> Callable[[Dialect], Operation[object]]:
    """Return the operation that creates the tables of a version."""
    return partial(migrate, last=version)
