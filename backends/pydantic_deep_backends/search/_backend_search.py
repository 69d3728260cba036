"""Search through any backend by listing and reading, for backends without a search of their own.

Each directory and each file costs one call, so a backend with fast access to its files should use `glob_tree` and
`grep_tree`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from pydantic_deep_backends._dotdot import DirectoryResolver, resolve_dotdot_strict
from pydantic_deep_backends._search_results import MAX_ENTRIES, MAX_FILE_BYTES, GlobResult, GrepResult
from pydantic_deep_backends._threads import check_cancelled, run_to_completion
from pydantic_deep_backends.paths import parse_path
from pydantic_deep_backends.protocol import FileEntryLike

from ._glob import compile_glob
from ._grep import GrepBuilder, compile_grep, too_large
from ._walk import Walk, error_reason

_BATCH_BYTES = 1_048_576
"""Bytes to search per worker thread call: the call itself takes as long as searching some 100 KB for a plain word."""

_BATCH_FILES = 256
"""Maximum number of files to search per worker thread call."""


class SearchableFiles(Protocol):
    """The part of a backend, or of a pydantic-ai workspace, that a search needs."""

    async def read_bytes(self, path: str) -> bytes:
        """Return the contents of a file."""
        ...

    async def stat(self, path: str) -> FileEntryLike:
        """Return the metadata of a file or directory."""
        ...

    async def list_dir(self, path: str) -> Sequence[FileEntryLike]:
        """Return the entries of one directory."""
        ...


async def glob_backend(
    backend: SearchableFiles, pattern: str, path: str = '/', *, max_entries: int = MAX_ENTRIES
) -> GlobResult:
    """Return the files of any backend that match a glob; for backends without `SupportsSearch`.

    Args:
        backend: A backend, or a pydantic-ai workspace with files.
        pattern: A glob, relative to `path`.
        path: A directory.
        max_entries: Number of files and directories after which the search stops and reports that.

    Raises:
        InvalidPatternError: The pattern cannot be used.
        FileNotFoundError: `path` does not exist.
        NotADirectoryError: `path` is a file.
    """
    path = await _resolve_dotdot(backend, path)
    walk = Walk(compile_glob(pattern), path, max_entries=max_entries)
    if not (await backend.stat(path)).is_dir:
        raise NotADirectoryError(f'{path!r} is a file. Search in a directory.')
    lister = _Lister(backend, walk)
    paths: list[str] = []
    while (directory := walk.next_directory()) is not None:
        names, _ = await lister.take(directory)
        paths += walk.paths_of(names)
    return walk.result(paths)


async def grep_backend(
    backend: SearchableFiles,
    pattern: str,
    path: str = '/',
    *,
    glob: str | None = None,
    limit: int = 1000,
    max_entries: int = MAX_ENTRIES,
) -> GrepResult:
    """Return the lines of any backend that match a regular expression; for backends without `SupportsSearch`.

    Args:
        backend: A backend, or a pydantic-ai workspace with files.
        pattern: An RE2 regular expression.
        path: A directory, or a file, which is searched regardless of its name and `glob`.
        glob: Search only files that match, relative to `path`; `None` for all files that are not hidden.
        limit: Maximum number of lines to return; the counts per file are always complete.
        max_entries: Number of files and directories after which the search stops and reports that.

    Raises:
        InvalidPatternError: A pattern cannot be used.
        FileNotFoundError: `path` does not exist.
    """
    path = await _resolve_dotdot(backend, path)
    builder = GrepBuilder(compile_grep(pattern), limit)
    walk = Walk(compile_glob('**' if glob is None else glob), path, max_entries=max_entries)
    reader = _Reader(backend, builder)
    start = await backend.stat(path)
    if start.is_dir:
        lister = _Lister(backend, walk)
        while (directory := walk.next_directory()) is not None:
            names, sizes = await lister.take(directory)
            for name, file_path in zip(names, walk.paths_of(names), strict=True):
                if walk.is_late():
                    break
                await reader.add(file_path, sizes[name])
    else:
        await reader.add(path, start.size)
    await reader.search()
    return builder.result(walk.problems)


async def _resolve_dotdot(backend: SearchableFiles, path: str) -> str:
    return await resolve_dotdot_strict(backend, path) if isinstance(backend, DirectoryResolver) else parse_path(path)


class _Lister:
    """Lists the directories of a walk through a backend."""

    def __init__(self, backend: SearchableFiles, walk: Walk) -> None:
        self._backend = backend
        self._walk = walk
        self._real_root: str | None = None

    async def take(self, directory: str) -> tuple[list[str], dict[str, int | None]]:
        """Return the names of the files to search, and the size of each entry."""
        try:
            if await self._is_behind_link(directory):
                return [], {}
            entries = await self._backend.list_dir(self._walk.path_of(directory))
        except OSError as error:
            self._walk.skip(error)
            return [], {}
        names = self._walk.take([(entry.name, entry.is_dir) for entry in entries])
        return names, {entry.name: entry.size for entry in entries}

    async def _is_behind_link(self, directory: str) -> bool:
        """Return whether the path contains a link: a listing does not show that, and a cycle of links would not end."""
        if not directory or not isinstance(self._backend, DirectoryResolver):
            return False
        if self._real_root is None:
            self._real_root = await self._backend.realpath(self._walk.path_of(''))
        expected = f'{self._real_root.rstrip("/")}/{directory}'
        return await self._backend.realpath(self._walk.path_of(directory)) != expected


class _Reader:
    """Reads files, and searches them in a worker thread, as an expression may take seconds for a megabyte."""

    def __init__(self, backend: SearchableFiles, builder: GrepBuilder) -> None:
        self._backend = backend
        self._builder = builder
        self._files: list[tuple[str, bytes]] = []
        self._size_bytes = 0

    async def add(self, path: str, size_bytes: int | None) -> None:
        """Read a file, and search it later together with others."""
        if size_bytes is not None and size_bytes > MAX_FILE_BYTES:
            self._builder.problem(path, too_large(size_bytes))
            return
        try:
            data = await self._backend.read_bytes(path)
        except OSError as error:
            self._builder.problem(path, error_reason(error))
            return
        self._files.append((path, data))
        self._size_bytes += len(data)
        if self._size_bytes >= _BATCH_BYTES or len(self._files) >= _BATCH_FILES:
            await self.search()

    async def search(self) -> None:
        """Search the files that were read since the last call."""
        files, self._files, self._size_bytes = self._files, [], 0
        await run_to_completion(partial(self._search_all, files))

    def _search_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        for path, data in files:
            check_cancelled()
            self._builder.add(path, data)
