"""Backups with the contents that are outside of the database: `SqlStore.backup` and `restore_store` on an open engine.

The rows are those of one snapshot. The blobs that they name never change, and are read after it, so writers do not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path

from ._asset_blobs import AssetBlobs
from ._blob_store import BlobStore
from .engine import Engine
from .errors import BackupError, StoreCorruptedError, UnknownCommitError
from .operations._backup import BLOB, BackupWriter, Progress, backup, check_empty, contents_in, new_file, restore
from .operations._reads import StoredAsset
from .sql.dialect import Dialect


async def write_backup(
    path: Path, engine: Engine, dialect: Dialect, blobs: AssetBlobs | None, *, now: int, progress: Progress
) -> int:
    """Write a backup to a new file, and return the number of its rows. Contents pass in chunks.

    Raises:
        BackupError: Contents are missing, damaged, or in storage that was not opened.
        OSError: The file exists or cannot be written.
    """
    async with new_file(path) as file:
        writer, rows, outside = await engine.read(
            partial(backup, file, dialect, now, progress, has_blobs=blobs is not None)
        )
        if outside and blobs is not None:
            writer.begin_table(BLOB, ['digest', 'data'])
            # Coverage loses lines that follow a call of obstore.
            for stored in outside:  # pragma: no branch
                await _write_content(writer, stored, blobs)
        await asyncio.to_thread(writer.finish, rows)
    return rows


async def _write_content(writer: BackupWriter, stored: StoredAsset, blobs: AssetBlobs) -> None:
    digest = stored.record.digest
    try:
        async with aclosing(blobs.get(digest, stored.blob or '')) as chunks:
            await asyncio.to_thread(writer.chunk, digest, b'')
            async for chunk in chunks:
                await asyncio.to_thread(writer.chunk, digest, chunk)
    except StoreCorruptedError as error:
        raise BackupError(
            f'The content {digest} cannot be backed up: {error.problem}. If versions were deleted during the backup, make '
            'it again. Otherwise restore the object from a copy of the storage, or delete the versions that need it, '
            'which `pydantic-deep store check` lists, and run `pydantic-deep gc`.'
        ) from error
    writer.end_content()


async def restore_backup(
    path: Path, engine: Engine, dialect: Dialect, storage: BlobStore | None, progress: Progress
) -> int:
    """Restore a verified backup to an empty store, and return the number of its rows.

    Raises:
        BackupError: The store is not empty, or content is too large for a row.
        StoreUnavailableError: The store or the storage cannot be written.
    """
    names: dict[str, str] = {}
    try:
        if storage is not None:
            await engine.read(partial(check_empty, dialect, engine.url))
            async for digest, name in _upload(path, AssetBlobs(engine, storage)):
                names[digest] = name
                progress(BLOB, len(names))
        return await engine.write_alone(partial(restore, path, dialect, engine.url, progress, names))
    except UnknownCommitError:
        raise
    except Exception:  # not a cancellation, after which the rows may still be committed; `gc` removes unused blobs, too
        if storage is not None and names:
            with suppress(OSError):
                await storage.delete([*names.values()])
        raise


async def _upload(path: Path, blobs: AssetBlobs) -> AsyncGenerator[tuple[str, str]]:
    """Upload the contents of a backup one after another, and yield the digest and the name of each."""
    chunks = contents_in(path)
    chunk = await asyncio.to_thread(next, chunks, None)

    async def content(digest: str) -> AsyncGenerator[bytes]:
        nonlocal chunk
        while chunk is not None and chunk[0] == digest:
            yield chunk[1]
            chunk = await asyncio.to_thread(next, chunks, None)

    while chunk is not None:
        digest = chunk[0]
        name, _ = await blobs.put(digest, content(digest))
        yield digest, name
