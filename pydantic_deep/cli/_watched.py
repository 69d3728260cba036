"""Which files a turn changed, and by how many lines."""

from __future__ import annotations

from collections import Counter

from pydantic_deep_backends import BackendUnavailableError, LocalBackend

from ._events import FileChange


class WatchedBackend(LocalBackend):
    """A directory that remembers what each file held before it was first changed here.

    What others change in the directory meanwhile is not seen, and nothing but the files that change is read.
    """

    def __init__(self, root: str) -> None:
        """Open a directory.

        Args:
            root: The directory.
        """
        super().__init__(root)
        self._before: dict[str, bytes | None] = {}
        self._unreported: set[str] = set()

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Write the file, and remember what it was."""
        before = await self._read(path)
        await super().write_bytes(path, data)
        await self._remember(path, before)

    async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        """Write the file, and remember what it was."""
        before = await self._read(path)
        await super().compare_and_swap(path, data, expected=expected)
        await self._remember(path, before)

    async def take_changes(self) -> list[FileChange]:
        """Return the files that changed since the last call, by path."""
        paths, self._unreported = sorted(self._unreported), set()
        return [change for path in paths if (change := await self._change(path))]

    async def all_changes(self) -> list[FileChange]:
        """Return every file that differs from what it was at the beginning, by path."""
        return [change for path in sorted(self._before) if (change := await self._change(path))]

    async def _remember(self, path: str, before: bytes | None) -> None:
        canonical = await self.realpath(path)
        self._before.setdefault(canonical, before)
        self._unreported.add(canonical)

    async def _change(self, path: str) -> FileChange | None:
        return describe_change(path, self._before[path], await self._read(path))

    async def _read(self, path: str) -> bytes | None:
        try:
            return await self.read_bytes(path)
        except (OSError, BackendUnavailableError):
            return None


def describe_change(path: str, before: bytes | None, after: bytes | None) -> FileChange | None:
    """Return how a file differs, `None` if it does not; a file that is not there is `None`.

    Lines are counted as a set with repetitions: a linear count, in which a line that only moved is no change.
    """
    if before == after:
        return None
    old, new = Counter((before or b'').splitlines()), Counter((after or b'').splitlines())
    return FileChange(
        path=path,
        change='created' if before is None else 'removed' if after is None else 'changed',
        added_lines=(new - old).total(),
        removed_lines=(old - new).total(),
    )
