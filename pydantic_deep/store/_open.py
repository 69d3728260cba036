"""`open_store`: the store that a URL names."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from ._engine import Engine
from ._schema import Tables, migrate
from ._store import SqlStore

_FORMS: Final = (
    'Write "sqlite:///agents.db" for a file here, "sqlite:////srv/agents.db" for one elsewhere, '
    '"postgresql://user@host/database" for a server, or "memory:" for none.'
)


@asynccontextmanager
async def open_store(url: str) -> AsyncGenerator[SqlStore]:
    """Open the store at `url`, and close it at the end.

    Args:
        url: `sqlite:///agents.db` (relative), `sqlite:////srv/agents.db` (absolute), `postgresql://…`, or `memory:`.
            `memory:NAME` is one that others of this process can open too.

    Raises:
        ValueError: It is no such URL.
        StoreFormatError: What is there is no store, or one of a newer release.
        StoreUnavailableError: It cannot be opened.
        ImportError: The driver is not installed.
    """
    async with SqlStore(await open_engine(url)) as store:
        yield store


async def open_engine(url: str, tables: Tables = migrate) -> Engine:
    """Open the engine of a URL. Raises what `open_store` raises.

    Args:
        url: As `open_store` takes it.
        tables: What brings the tables up to date; a place in memory always has those of a store.
    """
    scheme, colon, rest = url.partition(':')
    if scheme == 'memory' and colon and '/' not in rest:
        from .memory import MemoryEngine

        return MemoryEngine.open(rest)
    if scheme == 'sqlite' and rest.startswith('///') and len(rest) > 3 and '\0' not in rest:
        from .sqlite import SqliteEngine

        return await SqliteEngine.open(Path(rest[3:]), tables)
    if scheme in ('postgresql', 'postgres') and rest.startswith('//'):
        return await _open_postgres(url, tables)
    raise ValueError(f'There is no store at {_without_password(url)!r}. {_FORMS}')


async def _open_postgres(url: str, tables: Tables) -> Engine:
    try:
        from .postgres import PostgresEngine
    except ModuleNotFoundError as error:
        if error.name != 'asyncpg':
            raise
        raise ImportError('A store on PostgreSQL needs asyncpg. Run `pip install asyncpg`.') from error
    return await PostgresEngine.open(url, tables)


def _without_password(url: str) -> str:
    """Return the URL as it may be shown."""
    before, at, after = url.rpartition('@')
    user, colon, _ = before.rpartition(':')
    return f'{user}:***@{after}' if at and colon and '//' in user else url
