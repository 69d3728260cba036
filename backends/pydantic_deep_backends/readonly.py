"""`ReadOnlyBackend`: read, search and capture files without changing them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Self

from ._dotdot import resolve_dotdot_strict
from .errors import ReadOnlyError
from .local._directory import mount_point_of
from .protocol import BackendProtocol, SupportsIdentity, SupportsSearch, SupportsSnapshots
from .tracking import SupportsTracking
from .trees._tree import Tree, TreeDiff
from .wrapper import WrapperBackend


class ReadOnlyBackend(WrapperBackend):
    """A read-only view of another backend; every change raises `ReadOnlyError`.

    It can search if the wrapped backend can. It never has `run`, `compare_and_swap` or `restore`, because each of these
    changes files; so it is not a `SupportsSnapshots`, although it has `snapshot` and `changes` if the wrapped backend
    has them. Its files can be tracked if those of the wrapped backend can and are mounted at `/`. Its location is
    identified if that of the wrapped backend is, and `make_root` is refused. The wrapped backend itself remains
    writable.

    Args:
        wrapped: The backend with the files.
    """

    capabilities: ClassVar[Sequence[type]] = (SupportsSearch, SupportsIdentity)

    snapshot: Callable[[], Awaitable[Tree]]
    """Return a tree of all current files. Missing if the wrapped backend is not a `SupportsSnapshots`."""

    changes: Callable[[Tree], Awaitable[TreeDiff]]
    """Return the changes from a tree to the current files. Missing if the wrapped backend is not a
    `SupportsSnapshots`."""

    def __init__(self, wrapped: BackendProtocol) -> None:
        super().__init__(wrapped)
        if isinstance(wrapped, SupportsSnapshots):
            self.snapshot = wrapped.snapshot
            self.changes = wrapped.changes
        if isinstance(wrapped, SupportsTracking) and mount_point_of(wrapped) == '/':
            vars(self).update(track=wrapped.track)

    def around(self, wrapped: BackendProtocol) -> Self:
        """Return a read-only view of another backend."""
        return type(self)(wrapped)

    async def refuse_change(self, path: str) -> None:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError(await resolve_dotdot_strict(self, path))

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Raise `ReadOnlyError`."""
        await self.refuse_change(path)

    async def make_dir(self, path: str) -> None:
        """Raise `ReadOnlyError`, even if the directory exists."""
        await self.refuse_change(path)

    async def remove(self, path: str) -> None:
        """Raise `ReadOnlyError`, even if the path does not exist."""
        await self.refuse_change(path)

    async def make_root(self) -> None:
        """Raise `ReadOnlyError`."""
        await self.refuse_change('/')
