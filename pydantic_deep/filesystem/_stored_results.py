"""The directory of large results together with the user's files in it, to list and search both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from pydantic_deep_backends import StateBackend, WrapperBackend
from pydantic_deep_backends.protocol import BackendProtocol, FileEntryLike


class FilesAndResults(WrapperBackend):
    """The user's files with the large results that none of them hides. It is for reading only."""

    capabilities: ClassVar[Sequence[type]] = ()  # a search of the user's backend would not find the results

    def __init__(
        self,
        wrapped: BackendProtocol,
        results: StateBackend,
        directory: str,
        is_result: Callable[[str], Awaitable[bool]],
    ) -> None:
        """Define both parts.

        Args:
            wrapped: The user's backend.
            results: The large results.
            directory: The directory of all large results. It has no subdirectories.
            is_result: Returns whether an absolute path is a large result that the user's backend does not hide.
        """
        super().__init__(wrapped)
        self._results = results
        self._directory = directory
        self._is_result = is_result

    async def list_dir(self, path: str) -> Sequence[FileEntryLike]:
        """Return the entries of both parts in one directory, sorted by name."""
        entries = {entry.name: entry for entry in await self.wrapped.list_dir(path)}
        for entry in await self._results.list_dir(path) if path == self._directory else ():
            if entry.name not in entries or await self._is_result(entry.path):
                entries[entry.name] = entry
        return [entries[name] for name in sorted(entries)]

    async def read_bytes(self, path: str) -> bytes:
        """Return the contents of a large result or a file."""
        return await (self._results if await self._is_result(path) else self.wrapped).read_bytes(path)

    async def realpath(self, path: str) -> str:
        """Return the path with symbolic links resolved; that of a large result has none."""
        return path if await self._is_result(path) else await self.wrapped.realpath(path)
