"""`ReadOnlyBackend`: a backend whose files can be read, searched and captured, and not changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from ._dotdot import resolve_dotdot_strict
from .errors import ReadOnlyError
from .local._backend import mount_point_of
from .protocol import BackendProtocol, FileEntryLike, SupportsIdentity, SupportsSearch, SupportsSnapshots
from .tracking import SupportsTracking
from .trees._tree import Tree, TreeDiff


class ReadOnlyBackend:
    """The files of another backend, as they are at each moment; every change raises `ReadOnlyError`.

    It searches if the other backend does. It never has `run`, `compare_and_swap` or `restore`, because each of these
    changes files; so it is not a `SupportsSnapshots`, though `snapshot` and `changes` are there where the other has
    them. Its files can be tracked if those of the other can, and appear at their root; its place is
    identified if that of the other is, and never made. Whoever opened the other backend closes it, and can still write to it.

    Args:
        backend: Whose files these are.
    """

    snapshot: Callable[[], Awaitable[Tree]]
    """Return the tree of all files now. Missing if the other backend is not a `SupportsSnapshots`."""

    changes: Callable[[Tree], Awaitable[TreeDiff]]
    """Return what changed from a tree to the files now. Missing if the other backend is not a `SupportsSnapshots`."""

    def __init__(self, backend: BackendProtocol) -> None:
        self._backend = backend
        # Members that are there only sometimes are set on the instance: `isinstance` looks for them by name.
        if isinstance(backend, SupportsSearch):
            vars(self).update(glob=backend.glob, grep=backend.grep)
        if isinstance(backend, SupportsSnapshots):
            self.snapshot = backend.snapshot
            self.changes = backend.changes
        if isinstance(backend, SupportsTracking) and mount_point_of(backend) == '/':
            vars(self).update(track=backend.track)
        if isinstance(backend, SupportsIdentity):
            vars(self).update(
                identity=backend.identity, has_identity=backend.has_identity, make_root=partial(self.make_dir, '/')
            )

    @property
    def ref(self) -> object:
        """The identity of the files: that of the other backend."""
        return self._backend.ref

    async def working_dir(self) -> str:
        """Return the working directory of the other backend."""
        return await self._backend.working_dir()

    async def read_bytes(self, path: str) -> bytes:
        """Return the contents of a file."""
        return await self._backend.read_bytes(path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError(await resolve_dotdot_strict(self, path))

    async def stat(self, path: str) -> FileEntryLike:
        """Return the metadata of a file or directory."""
        return await self._backend.stat(path)

    async def list_dir(self, path: str) -> Sequence[FileEntryLike]:
        """Return the entries of one directory, sorted by name."""
        return await self._backend.list_dir(path)

    async def refuse_change(self, path: str) -> None:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError(await resolve_dotdot_strict(self, path))

    async def make_dir(self, path: str) -> None:
        """Raise `ReadOnlyError`, also if the directory exists."""
        raise ReadOnlyError(await resolve_dotdot_strict(self, path))

    async def remove(self, path: str) -> None:
        """Raise `ReadOnlyError`, also if nothing is there."""
        raise ReadOnlyError(await resolve_dotdot_strict(self, path))

    async def exists(self, path: str) -> bool:
        """Return whether a file or directory is there."""
        return await self._backend.exists(path)

    async def realpath(self, path: str) -> str:
        """Return the path with symbolic links resolved."""
        return await self._backend.realpath(path)

    def __repr__(self) -> str:
        return f'ReadOnlyBackend({self._backend!r})'
