"""Views: the files of a tree as a backend of its own, so that branches of one directory run side by side."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
    digest_of,
)
from pydantic_deep_backends.errors import MissingBlobError


@dataclass(frozen=True, kw_only=True)
class View:
    """A backend, and the directories that were made for it."""

    backend: BackendProtocol
    directories: tuple[Path, ...] = ()

    async def aclose(self) -> None:
        """Remove the directories."""
        with anyio.CancelScope(shield=True):
            for directory in self.directories:
                await anyio.to_thread.run_sync(partial(shutil.rmtree, directory, ignore_errors=True))


async def open_view(
    backend: BackendProtocol, tree: Tree, read_blob: ReadBlob, scratch: str | os.PathLike[str] | None
) -> View | None:
    """Return a view of a backend with the files of a tree; `None` if there is none for such a backend."""
    if isinstance(backend, LocalBackend) and isinstance(backend, SupportsCommands):
        return await _open_directory(backend, tree, read_blob, scratch)
    if isinstance(backend, LocalBackend | StateBackend):
        return View(backend=StateBackend.of(tree, read_blob))
    if isinstance(backend, ReadOnlyBackend):
        return View(backend=ReadOnlyBackend(StateBackend.of(tree, read_blob)))
    if isinstance(backend, CompositeBackend):
        return await _open_composite(backend, tree, read_blob, scratch)
    return None


async def _open_composite(
    backend: CompositeBackend, tree: Tree, read_blob: ReadBlob, scratch: str | os.PathLike[str] | None
) -> View | None:
    parts = {'/': backend.default, **backend.mounts}
    views: dict[str, View] = {}
    async with AsyncExitStack() as opened:
        for share in backend.split(tree):
            view = await open_view(parts[share.mount], share.tree, read_blob, scratch)
            if view is None:
                return None
            opened.push_async_callback(view.aclose)
            views[share.mount] = view
        opened.pop_all()
    default = views.pop('/')
    return View(
        backend=CompositeBackend(default.backend, {path: view.backend for path, view in views.items()}),
        directories=tuple(directory for view in (default, *views.values()) for directory in view.directories),
    )


async def _open_directory(
    backend: LocalBackend, tree: Tree, read_blob: ReadBlob, scratch: str | os.PathLike[str] | None
) -> View:
    directory = Path(
        await anyio.to_thread.run_sync(partial(tempfile.mkdtemp, prefix='pydantic-deep-view-', dir=scratch))
    )
    there = backend.in_directory(directory)
    view = View(backend=there, directories=(directory,))
    try:
        await fill(there, tree, read_blob)
    except BaseException:
        await view.aclose()
        raise
    return view


async def fill(backend: LocalBackend, tree: Tree, read_blob: ReadBlob) -> None:
    """Write the files of a tree into an empty directory, a few at a time."""
    paths: list[str] = []
    contents: dict[str, bytes] = {}
    size_bytes = 0
    for path, version in tree.items():
        paths.append(path)
        if version.digest not in contents:
            contents[version.digest] = await fetch(read_blob, path, version.digest)
            size_bytes += version.size
        if size_bytes > MAX_BATCH_BYTES:
            await backend.patch(tree, paths, contents, is_durable=False)
            paths, contents, size_bytes = [], {}, 0
    await backend.patch(tree, paths, contents, is_durable=False)


MAX_BATCH_BYTES = 67_108_864
"""How much is in memory before it is written."""


async def fetch(read_blob: ReadBlob, path: str, digest: str) -> bytes:
    """Return contents by digest. Raises `MissingBlobError` if they are not to be had."""
    try:
        data = await read_blob(digest)
    except KeyError:
        raise MissingBlobError((path,)) from None
    if digest_of(data) != digest:
        raise MissingBlobError((path,))
    return data
