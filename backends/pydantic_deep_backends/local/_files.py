"""`LocalFiles`: the file operations and searches of `LocalBackend`. Snapshots and commands are in `_backend`."""

from __future__ import annotations

import errno
import os
import stat
from functools import partial

from pydantic_deep_backends._checks import check_contents
from pydantic_deep_backends.errors import FileChangedError
from pydantic_deep_backends.files._confined_root import Components, Location, OpenRoot, make_directory
from pydantic_deep_backends.files._directories import stat_location
from pydantic_deep_backends.files._mount_point import directory_entry, path_from
from pydantic_deep_backends.files._operations import locked, remove_entry, replace_file, writable_mode
from pydantic_deep_backends.protocol import FileEntry
from pydantic_deep_backends.search import GlobResult, GrepResult, glob_tree, grep_file, grep_tree
from pydantic_deep_backends.snapshots import digest_of

from ._directory import LocalDirectory, file_entry, read_at


class LocalFiles(LocalDirectory):
    """Reads, writes and searches the files of a directory."""

    async def working_dir(self) -> str:
        """Return the mount point: `/`, or the real path if commands are allowed. Raises `BackendUnavailableError`."""
        return await self._run_at_root(lambda root: self._virtual(()))

    async def read_bytes(self, path: str) -> bytes:
        """Return the contents of a regular file.

        Raises:
            FileNotFoundError: The path does not exist.
            IsADirectoryError: The path is a directory.
            OutsideRootError: A link leads outside.
            OSError: The path is not a regular file, cannot be read, or is larger than 1 GiB.
        """
        return await self._run(path, lambda root, parts: root.visit(parts, partial(read_at, root)))

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace or create a file atomically. Creates parents, writes through links and preserves the mode.

        Raises:
            IsADirectoryError: The path is a directory.
            NotADirectoryError: A parent is a file.
            OutsideRootError: A link leads outside.
            OSError: The write failed; the old file is intact.
        """

        def write(place: Location) -> None:
            with locked(place.directory), self._recording(place):
                _replace(place, data)

        await self._run_locked(path, lambda root, parts: root.visit(parts, write, make_dirs=True))

    async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        """Write `data` if the file still has the digest `expected`. No other writer can write in between.

        Args:
            path: The file.
            data: Its new contents.
            expected: `digest_of` the contents that the caller read; `None` if no file may exist yet.

        Raises:
            FileChangedError: The file has another digest, exists unexpectedly, or no longer exists.
            OSError: As for `write_bytes`.
        """

        def swap(root: OpenRoot, place: Location) -> None:
            with locked(place.directory):
                actual = _digest_or_none(root, place)
                if actual != expected:
                    raise FileChangedError(path, expected=expected, actual=actual)
                with self._recording(place):
                    _replace(place, data)

        gone = () if expected is None else FileNotFoundError
        try:
            await self._run_locked(
                path, lambda root, parts: root.visit(parts, partial(swap, root), make_dirs=expected is None)
            )
        except gone:
            raise FileChangedError(path, expected=expected, actual=None) from None

    async def stat(self, path: str) -> FileEntry:
        """Return the metadata of a file or directory; for a symbolic link, of its target."""

        def look(root: OpenRoot, parts: Components) -> FileEntry:
            return file_entry(self._virtual(parts), root.visit(parts, stat_location))

        return await self._run(path, look, above=lambda root, names: directory_entry(names))

    async def list_dir(self, path: str) -> list[FileEntry]:
        """Return the entries of one directory, sorted by name.

        Names are the real ones, including names that are not valid in paths: with control characters, or not UTF-8
        (with `surrogateescape`). A link that is broken or leads outside is listed with no size, and not as a directory.
        """

        def list_above(root: OpenRoot, names: Components) -> list[FileEntry]:
            return [directory_entry(self._mount_parts()[: len(names) + 1])]

        return await self._run(path, self._list, above=list_above)

    async def make_dir(self, path: str) -> None:
        """Create a directory and its parents. An existing directory is fine; a file raises `FileExistsError`."""

        def make(root: OpenRoot, parts: Components) -> None:
            root.visit(parts, _make, make_dirs=True)

        await self._run(path, make, above=lambda root, names: None, is_change=True)

    async def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it. A symbolic link is removed itself, not its target.

        Raises:
            FileNotFoundError: The path does not exist.
            ValueError: The path is the directory itself, or above it.
        """

        def remove_place(place: Location) -> None:
            with locked(place.directory), self._recording(place):
                remove_entry(place.directory, place.name)

        def refuse(root: OpenRoot, names: Components) -> None:
            raise ValueError(
                f'{path_from(names)!r} is the root of the backend or above it, and cannot be removed. Remove its contents.'
            )

        def remove(root: OpenRoot, parts: Components) -> None:
            if not parts:
                refuse(root, self._mount_parts())
            root.visit(parts, remove_place, follow='parents')

        await self._run_locked(path, remove, above=refuse)

    async def exists(self, path: str) -> bool:
        """Return whether a file or directory exists; `False` for a broken or circular link.

        Raises:
            OutsideRootError: A link leads outside.
        """
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno == errno.ELOOP:
                return False
            raise
        return True

    async def realpath(self, path: str) -> str:
        """Return the path with symbolic links resolved; components that do not exist are left unchanged."""

        def resolve(root: OpenRoot, parts: Components) -> str:
            return self._virtual(root.resolve(parts))

        return await self._run(
            path, resolve, above=lambda root, names: path_from(names), resolve_parent=OpenRoot.resolve
        )

    async def glob(self, pattern: str, path: str = '/') -> GlobResult:
        """Return the files under `path` that match `pattern`, relative to it. Links to directories are not followed.

        Raises:
            InvalidPatternError: The pattern cannot be used.
            FileNotFoundError: `path` does not exist.
            NotADirectoryError: `path` is a file.
        """

        def find(root: OpenRoot, parts: Components) -> GlobResult:
            with self._searched(root, parts) as tree:
                return glob_tree(tree, pattern, self._virtual(parts))

        def find_above(root: OpenRoot, names: Components) -> GlobResult:
            with self._searched_above(root, names) as tree:
                return glob_tree(tree, pattern, path_from(names))

        return await self._run(path, find, above=find_above)

    async def grep(self, pattern: str, path: str = '/', *, glob: str | None = None, limit: int = 1000) -> GrepResult:
        """Return the lines that match a regular expression (RE2), in the file `path` or the files under it.

        Args:
            pattern: An RE2 regular expression.
            path: A file, or a directory; links to directories below it are not followed.
            glob: Search only files that match, relative to `path`.
            limit: Maximum number of lines to return; the counts per file are always complete.

        Raises:
            InvalidPatternError: The pattern cannot be used.
            FileNotFoundError: `path` does not exist.
        """

        def search(root: OpenRoot, parts: Components) -> GrepResult:
            if stat.S_ISDIR(root.visit(parts, stat_location).st_mode):
                with self._searched(root, parts) as tree:
                    return grep_tree(tree, pattern, self._virtual(parts), glob=glob, limit=limit)
            return grep_file(self._virtual(parts), root.visit(parts, partial(read_at, root)), pattern, limit=limit)

        def search_above(root: OpenRoot, names: Components) -> GrepResult:
            with self._searched_above(root, names) as tree:
                return grep_tree(tree, pattern, path_from(names), glob=glob, limit=limit)

        return await self._run(path, search, above=search_above)


def _digest_or_none(root: OpenRoot, place: Location) -> str | None:
    try:
        return digest_of(read_at(root, place))
    except FileNotFoundError:
        return None


def _replace(place: Location, data: bytes) -> None:
    check_contents(data)
    replace_file(place.directory, place.name, data, mode=writable_mode(place.directory, place.name))


def _make(place: Location) -> None:
    make_directory(place.directory, place.name)
    if not stat.S_ISDIR(stat_location(place).st_mode):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
