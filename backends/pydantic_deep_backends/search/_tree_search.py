"""Search through a `FileTree`, and through the contents of one file. Synchronous."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pydantic_deep_backends._search_results import MAX_ENTRIES, GlobResult, GrepResult

from ._glob import compile_glob
from ._grep import GrepBuilder, compile_grep
from ._walk import Walk, error_reason


class FileTree(Protocol):
    """Synchronous access of a search to one directory and everything below it.

    A search lists a directory, reads files of that directory only, and continues with the next, so an implementation
    needs only one open descriptor.
    """

    def scan(self, directory: str) -> Iterable[tuple[str, bool]]:
        """Return the name of each entry, and whether it is a directory. Links to files count as files.

        Args:
            directory: A path relative to the searched directory; `''` is that directory itself.

        Raises:
            OSError: The directory cannot be listed, or its path contains a link.
        """
        ...

    def read(self, name: str) -> bytes:
        """Return the contents of a file in the last scanned directory.

        Raises:
            OSError: The file cannot be read, or has more than `MAX_FILE_BYTES`.
        """
        ...


def glob_tree(tree: FileTree, pattern: str, path: str = '/', *, max_entries: int = MAX_ENTRIES) -> GlobResult:
    """Return the files of a tree that match a glob.

    Args:
        tree: The directory `path`. The caller checks that it exists.
        pattern: A glob, relative to `path`.
        path: The canonical absolute path that prefixes all results.
        max_entries: Number of files and directories after which the search stops and reports that.

    Raises:
        InvalidPatternError: The pattern cannot be used.
    """
    walk = Walk(compile_glob(pattern), path, max_entries=max_entries)
    paths: list[str] = []
    while (directory := walk.next_directory()) is not None:
        try:
            names = walk.take(tree.scan(directory))
        except OSError as error:
            walk.skip(error)
            continue
        paths += walk.paths_of(names)
    return walk.result(paths)


def grep_tree(
    tree: FileTree,
    pattern: str,
    path: str = '/',
    *,
    glob: str | None = None,
    limit: int = 1000,
    max_entries: int = MAX_ENTRIES,
) -> GrepResult:
    """Return the lines of the files of a tree that match a regular expression.

    Args:
        tree: The directory `path`. The caller checks that it exists. For one file, use `grep_file`.
        pattern: An RE2 regular expression.
        path: The canonical absolute path that prefixes all results.
        glob: Search only files that match, relative to `path`; `None` for all files that are not hidden.
        limit: Maximum number of lines to return; the counts per file are always complete.
        max_entries: Number of files and directories after which the search stops and reports that.

    Raises:
        InvalidPatternError: A pattern cannot be used.
    """
    builder = GrepBuilder(compile_grep(pattern), limit)
    walk = Walk(compile_glob('**' if glob is None else glob), path, max_entries=max_entries)
    while (directory := walk.next_directory()) is not None:
        try:
            names = walk.take(tree.scan(directory))
        except OSError as error:
            walk.skip(error)
            continue
        for name, file_path in zip(names, walk.paths_of(names), strict=True):
            if walk.is_late():
                break
            try:
                data = tree.read(name)
            except OSError as error:
                builder.problem(file_path, error_reason(error))
                continue
            builder.add(file_path, data)
    return builder.result(walk.problems)


def grep_file(path: str, data: bytes, pattern: str, *, limit: int = 1000) -> GrepResult:
    """Return the lines of one file that match a regular expression.

    Args:
        path: The canonical absolute path of the file.
        data: The contents of the file.
        pattern: An RE2 regular expression.
        limit: Maximum number of lines to return; the count is always complete.

    Raises:
        InvalidPatternError: The pattern cannot be used.
    """
    builder = GrepBuilder(compile_grep(pattern), limit)
    builder.add(path, data)
    return builder.result()
