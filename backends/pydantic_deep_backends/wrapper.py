"""`WrapperBackend`: a base class for backends that change a few operations of another backend."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic_deep_backends._checks import check_backend

from .protection._types import SupportsProtection
from .protocol import (
    BackendProtocol,
    FileEntryLike,
    RefusesChanges,
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsIdentity,
    SupportsSearch,
    SupportsSnapshots,
)
from .tracking import SupportsPatch, SupportsStreamedPatch, SupportsTracking

_CHANGES: tuple[type, ...] = (
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsSnapshots,
    SupportsPatch,
    SupportsStreamedPatch,
)
"""The optional protocols whose members change files."""

_CHANGING = ('write_bytes', 'make_dir', 'remove')
"""The other operations that change files."""


class WrapperBackend:
    """Forwards every operation to another backend. Subclass it and override individual operations.

    An instance implements an optional protocol exactly if the wrapped backend does and the class lists the protocol in
    `capabilities`. A subclass that defines a member of an optional protocol has that member regardless of the wrapped
    backend.

    Files can be changed by more operations than `write_bytes`, `make_dir` and `remove`: `compare_and_swap`, `restore`,
    `patch`, `patch_stream` and `run` change them too. If a subclass overrides one of the first three, the protocols of the others are
    not forwarded, so that no change bypasses the subclass. Override these as well, or list their protocols in
    `capabilities`.

    The wrapper does not own the wrapped backend. Close that where you opened it.

    Args:
        wrapped: The backend that performs the operations.
    """

    capabilities: ClassVar[Sequence[type]] = (
        SupportsCommands,
        SupportsSearch,
        SupportsCompareAndSwap,
        SupportsSnapshots,
        SupportsIdentity,
        SupportsProtection,
        SupportsTracking,
        SupportsPatch,
        SupportsStreamedPatch,
        RefusesChanges,
    )
    """The optional protocols that are forwarded if the wrapped backend implements them."""

    def __init__(self, wrapped: BackendProtocol) -> None:
        check_backend(wrapped)
        self.wrapped: BackendProtocol = wrapped
        """The backend that performs the operations."""
        excluded = _CHANGES if self._overrides_changes() else ()
        # Set on the instance, because `isinstance` with a protocol looks up its members by name.
        for capability in self.capabilities:
            if isinstance(wrapped, capability) and capability not in excluded:
                names = [
                    name for name in vars(capability) if not name.startswith('_') and not hasattr(type(self), name)
                ]
                vars(self).update({name: getattr(wrapped, name) for name in names})

    def around(self, wrapped: BackendProtocol) -> Self:
        """Return a copy of this wrapper around another backend.

        A subclass that stores anything that belongs to its backend must override this.

        Args:
            wrapped: The backend that performs the operations of the copy.
        """
        other = copy.copy(self)
        for name in {name for capability in self.capabilities for name in vars(capability)}:
            vars(other).pop(name, None)
        WrapperBackend.__init__(other, wrapped)
        return other

    @classmethod
    def _overrides_changes(cls) -> bool:
        """Return whether the class overrides changes, and does not list the protocols that it forwards."""
        overrides = [getattr(cls, name) is not getattr(WrapperBackend, name) for name in _CHANGING]
        return any(overrides) and cls.capabilities is WrapperBackend.capabilities

    @property
    def ref(self) -> object:
        """The identity of the files."""
        return self.wrapped.ref

    async def working_dir(self) -> str:
        """Return the directory that relative paths start from."""
        return await self.wrapped.working_dir()

    async def read_bytes(self, path: str) -> bytes:
        """Return the contents of a regular file."""
        return await self.wrapped.read_bytes(path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace or create a file."""
        await self.wrapped.write_bytes(path, data)

    async def stat(self, path: str) -> FileEntryLike:
        """Return the metadata of a file or directory."""
        return await self.wrapped.stat(path)

    async def list_dir(self, path: str) -> Sequence[FileEntryLike]:
        """Return the entries of one directory, sorted by name."""
        return await self.wrapped.list_dir(path)

    async def make_dir(self, path: str) -> None:
        """Create a directory and its parents."""
        await self.wrapped.make_dir(path)

    async def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it."""
        await self.wrapped.remove(path)

    async def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        return await self.wrapped.exists(path)

    async def realpath(self, path: str) -> str:
        """Return the path with symbolic links resolved."""
        return await self.wrapped.realpath(path)

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.wrapped!r})'
