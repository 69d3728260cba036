"""Views: the files of a tree as a separate backend, so that branches of one directory can run concurrently."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import anyio.to_thread

from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    LocalBackend,
    ReadBlob,
    ReadOnlyBackend,
    StateBackend,
    SupportsCommands,
    Tree,
    WrapperBackend,
    digest_of,
)
from pydantic_deep_backends.errors import MissingBlobError

from ._asset_streams import AssetStreams, large_files
from ._scratch_directories import Scratch


@dataclass(frozen=True, kw_only=True)
class View:
    """A backend, with the directories that were created for it."""

    backend: BackendProtocol
    scratch: Scratch | None = None

    async def aclose(self) -> None:
        """Remove the directories of the view."""
        if self.scratch is not None:
            await _remove(self.scratch)


async def _remove(scratch: Scratch) -> None:
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(scratch.remove)


async def open_view(
    backend: BackendProtocol, tree: Tree, read_blob: ReadBlob, scratch: Scratch, streams: AssetStreams | None = None
) -> View | None:
    """Open a view of a backend with the files of a tree; `None` if such backends have no views."""
    viewed = None
    try:
        viewed = await _viewed(backend, tree, read_blob, scratch, streams)
    finally:
        if viewed is None:
            await _remove(scratch)
    return None if viewed is None else View(backend=viewed, scratch=scratch)


async def _viewed(
    backend: BackendProtocol, tree: Tree, read_blob: ReadBlob, scratch: Scratch, streams: AssetStreams | None
) -> BackendProtocol | None:
    if isinstance(backend, LocalBackend) and isinstance(backend, SupportsCommands):
        there = backend.in_directory(await anyio.to_thread.run_sync(scratch.make_directory))
        await fill(there, tree, read_blob, streams)
        return there
    if isinstance(backend, LocalBackend | StateBackend):
        return StateBackend.of(tree, read_blob, protected=backend.protected)
    if isinstance(backend, ReadOnlyBackend):
        return backend.around(StateBackend.of(tree, read_blob))
    if isinstance(backend, WrapperBackend):
        view = await _viewed(backend.wrapped, tree, read_blob, scratch, streams)
        return None if view is None else backend.around(view)
    if not isinstance(backend, CompositeBackend):
        return None
    parts = {'/': backend.default, **backend.mounts}
    views: dict[str, BackendProtocol] = {}
    for share in backend.split(tree):
        part = await _viewed(parts[share.mount], share.tree, read_blob, scratch, streams)
        if part is None:
            return None
        views[share.mount] = part
    return CompositeBackend(views.pop('/'), views)


async def fill(backend: LocalBackend, tree: Tree, read_blob: ReadBlob, streams: AssetStreams | None = None) -> None:
    """Write the files of a tree into an empty directory, in batches."""
    paths: list[str] = []
    contents: dict[str, bytes] = {}
    size_bytes = 0
    large = large_files(streams, backend, tree, tree)
    if streams is not None:
        await streams.restore(backend, tree, large, is_durable=False)
    for path, version in tree.items():
        if path in large:
            continue
        paths.append(path)
        if version.digest not in contents:
            contents[version.digest] = await fetch(read_blob, path, version.digest)
            size_bytes += version.size
        if size_bytes > MAX_BATCH_BYTES:
            await backend.patch(tree, paths, contents, is_durable=False)
            paths, contents, size_bytes = [], {}, 0
    await backend.patch(tree, paths, contents, is_durable=False)


MAX_BATCH_BYTES = 67_108_864
"""The size of a batch. Contents are collected in memory until they exceed it, then written."""


async def fetch(read_blob: ReadBlob, path: str, digest: str) -> bytes:
    """Return contents by digest. Raises `MissingBlobError` if they are not available."""
    try:
        data = await read_blob(digest)
    except KeyError:
        raise MissingBlobError((path,)) from None
    if digest_of(data) != digest:
        raise MissingBlobError((path,))
    return data
