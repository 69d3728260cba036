"""`open_store` and `restore_store`: open a store by its URL, or restore a backup into a new one."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

from pydantic_deep._checks import check_member, check_object, check_seconds

from ._backups import restore_backup
from ._blob_store import BlobStore
from ._store import SqlStore
from .engine import Engine
from .operations._backup import Progress, check_backup, migrate_to, no_progress
from .sql._migrations import migrate
from .sql.dialect import SupportsTables, Tables

_FORMS: Final = (
    'Write "sqlite:///agents.db" for a file here, "sqlite:////srv/agents.db" for one elsewhere, '
    '"postgresql://user@host/database" for a server, or "memory:" for none.'
)


_NO_FILES: Final = ('', ':memory:')
"""Paths that are not files: `sqlite:///:memory:` is a database in memory for SQLAlchemy, and here would be a file."""


@asynccontextmanager
async def open_store(
    url: str, *, read_only: bool = False, blobs: str | BlobStore | None = None, wait_seconds: float = 30
) -> AsyncGenerator[SqlStore]:
    """Open the store at `url`, and close it on exit.

    The store belongs to this process and, on PostgreSQL, to this event loop. A relative path is resolved immediately:
    later changes of the working directory have no effect.

    Args:
        url: `sqlite:///agents.db` (relative), `sqlite:////srv/agents.db` (absolute), `postgresql://…`, or `memory:`.
            `memory:NAME` is shared within this process.
        read_only: Whether to refuse writes. The store must exist. Its file, directory and file system may be read-only,
            a PostgreSQL role needs only `SELECT`, and no lock is taken. Methods that write raise `StoreReadOnlyError`.
        blobs: Storage for large contents: `s3://bucket/prefix`, `gs://…`, `az://…`, `file:///srv/blobs`, `memory:`, or a
            `BlobStore`. Pass the same one whenever you open the store. See `object_storage` for credentials.
        wait_seconds: How long operations wait for a PostgreSQL server that is restarted or unreachable, counted from the
            loss of the connection; 0 to fail at once. Opening does not wait.

    Raises:
        ValueError: A URL has none of these forms, or `wait_seconds` is not a duration.
        StoreFormatError: The database exists but is not a store, or its format is that of a newer release.
        StoreUnavailableError: The store cannot be opened.
        ImportError: The driver is not installed.
    """
    check_seconds('wait_seconds', wait_seconds)
    storage = await _open_blobs(blobs)
    engine = await open_engine(url, read_only=read_only, wait_seconds=wait_seconds)
    async with SqlStore(engine, blobs=storage) as store:
        yield store


async def _open_blobs(blobs: str | BlobStore | None) -> BlobStore | None:
    if blobs is not None and not isinstance(blobs, str):
        check_member('blobs', blobs, 'put', 'BlobStore', 'Or pass a URL: for a directory, `path.as_uri()`.')
    if not isinstance(blobs, str):
        return blobs
    object_storage = await asyncio.to_thread(importlib.import_module, f'{__package__}.object_storage')
    return cast('BlobStore', object_storage.ObjectStorage.open(blobs))


async def restore_store(
    url: str,
    path: str | os.PathLike[str],
    *,
    blobs: str | BlobStore | None = None,
    on_progress: Progress = no_progress,
) -> int:
    """Restore a backup that `SqlStore.backup` made into a new store at `url`, on any engine, completely or not at all.

    Runs that were in progress during the backup are orphans in the new store. Call `recover()` there only if the
    original store is gone: otherwise their tool calls run twice.

    Args:
        url: The target, as for `open_store`; an existing store must be empty.
        path: The backup.
        blobs: Storage for the large contents of the new store, as for `open_store`. It may be that of the original
            store, whose objects remain. The contents that the original store had in `blobs` go there; without it, they
            go to the database, of which each must fit into memory.
        on_progress: Called with each table and the number of its rows restored so far, from any thread; with `blob` and
            the number of contents that were uploaded.

    Returns:
        The number of restored rows.

    Raises:
        BackupError: The file is damaged, truncated or not a backup, the store is not empty, or content of more than
            512 MiB would go to the database.
        ValueError: A URL has none of the known forms.
        OSError: The file cannot be read.
        StoreUnavailableError: The store or its `blobs` cannot be opened or written.
    """
    backup, storage = Path(path), await _open_blobs(blobs)
    version = await asyncio.to_thread(check_backup, backup)
    engine = await open_engine(url, migrate_to(version))
    try:
        assert isinstance(engine, SupportsTables)  # noqa: S101 - all that have a URL are
        return await restore_backup(backup, engine, engine.dialect, storage, on_progress)
    finally:
        await engine.aclose()


async def open_engine(
    url: str, tables: Tables = migrate, *, read_only: bool = False, wait_seconds: float = 30
) -> Engine:
    """Open the engine of a URL. Raises the errors of `open_store`.

    Args:
        url: As for `open_store`.
        tables: Brings the tables up to date; a database in memory always has the tables of a store.
        read_only: Whether to refuse writes.
        wait_seconds: As for `open_store`.
    """
    check_object('url', url, str, _FORMS)
    scheme, colon, rest = url.partition(':')
    if scheme == 'memory' and colon and '/' not in rest:
        from .memory import MemoryEngine

        return MemoryEngine.open(rest, read_only=read_only)
    if scheme == 'sqlite' and rest.startswith('///') and rest[3:] not in _NO_FILES and '\0' not in rest:
        from .sqlite import SqliteEngine

        return await SqliteEngine.open(Path(rest[3:]), tables, read_only=read_only)
    if scheme in ('postgresql', 'postgres') and rest.startswith('//'):
        from .postgres import PostgresEngine

        return await PostgresEngine.open(url, tables, read_only=read_only, wait_seconds=wait_seconds)
    raise ValueError(f'There is no store at {_without_password(url)!r}. {_FORMS}')


def _without_password(url: str) -> str:
    """Return the URL with its password masked."""
    before, at, after = url.rpartition('@')
    user, colon, _ = before.rpartition(':')
    return f'{user}:***@{after}' if at and colon and '//' in user else url
