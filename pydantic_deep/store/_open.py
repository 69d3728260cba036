"""`open_store`: the store that a URL names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from ._store import SqlStore
from .engine import Engine
from .operations._backup import Progress, check_backup, migrate_to, no_progress, restore
from .sql._migrations import migrate
from .sql.dialect import SupportsTables, Tables

_FORMS: Final = (
    'Write "sqlite:///agents.db" for a file here, "sqlite:////srv/agents.db" for one elsewhere, '
    '"postgresql://user@host/database" for a server, or "memory:" for none.'
)


@asynccontextmanager
async def open_store(url: str, *, read_only: bool = False) -> AsyncGenerator[SqlStore]:
    """Open the store at `url`, and close it at the end.

    The store belongs to this process; one on PostgreSQL also to this event loop. A relative path is resolved now:
    later changes of the working directory do not matter.

    Args:
        url: `sqlite:///agents.db` (relative), `sqlite:////srv/agents.db` (absolute), `postgresql://…`, or `memory:`.
            `memory:NAME` is one that others of this process can open too.
        read_only: Whether nothing may be written. The store must exist then; its file, directory and file system may be
            read-only, the role of PostgreSQL needs no more than `SELECT`, and no lock is taken. Methods that write
            raise `StoreReadOnlyError`.

    Raises:
        ValueError: It is no such URL.
        StoreFormatError: What is there is no store, or one of a newer release.
        StoreUnavailableError: It cannot be opened.
        ImportError: The driver is not installed.
    """
    async with SqlStore(await open_engine(url, read_only=read_only)) as store:
        yield store


async def restore_store(url: str, path: str | os.PathLike[str], *, on_progress: Progress = no_progress) -> int:
    """Bring a backup that `SqlStore.backup` made into a new store at `url`, on any engine.

    Either everything of it is there afterwards or nothing. Runs that were going on when it was made are orphans in
    the new store: call `recover()` there only if the original is gone, or their calls run twice.

    Args:
        url: Where, as `open_store` takes it; a store that is there must be empty.
        path: The backup.
        on_progress: Is told each table and how many of its rows are there; called in any thread.

    Returns:
        How many rows there are.

    Raises:
        BackupError: The file is damaged, was cut off or is something else, or the store is not empty.
        OSError: The file cannot be read.
        StoreUnavailableError: The store cannot be opened or written.
    """
    backup = Path(path)
    version = await asyncio.to_thread(check_backup, backup)
    engine = await open_engine(url, migrate_to(version))
    try:
        assert isinstance(engine, SupportsTables)  # noqa: S101 - all that have a URL are
        return await engine.write(partial(restore, backup, engine.dialect, on_progress))
    finally:
        await engine.aclose()


async def open_engine(url: str, tables: Tables = migrate, *, read_only: bool = False) -> Engine:
    """Open the engine of a URL. Raises what `open_store` raises.

    Args:
        url: As `open_store` takes it.
        tables: What brings the tables up to date; a place in memory always has those of a store.
        read_only: Whether nothing may be written.
    """
    scheme, colon, rest = url.partition(':')
    if scheme == 'memory' and colon and '/' not in rest:
        from .memory import MemoryEngine

        return MemoryEngine.open(rest, read_only=read_only)
    if scheme == 'sqlite' and rest.startswith('///') and len(rest) > 3 and '\0' not in rest:
        from .sqlite import SqliteEngine

        return await SqliteEngine.open(Path(rest[3:]), tables, read_only=read_only)
    if scheme in ('postgresql', 'postgres') and rest.startswith('//'):
        from .postgres import PostgresEngine

        return await PostgresEngine.open(url, tables, read_only=read_only)
    raise ValueError(f'There is no store at {_without_password(url)!r}. {_FORMS}')


def _without_password(url: str) -> str:
    """Return the URL as it may be shown."""
    before, at, after = url.rpartition('@')
    user, colon, _ = before.rpartition(':')
    return f'{user}:***@{after}' if at and colon and '//' in user else url
