"""Search through a `FileTree`, and through one file whose contents are in memory. Synchronous."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pydantic_deep_backends._search_results import MAX_ENTRIES, GlobResult, GrepResult

from ._glob import compile_glob
from ._grep import GrepBuilder, compile_grep
from ._walk import Walk, error_reason


class FileTree(Protocol):
    """How a backend lets a search look at one directory and all below it, without awaiting anything.

    A search lists a directory, reads files of that directory only, and goes on to the next: whoever implements
    this may keep just one descriptor open.
    """

    def scan(self, directory: str) -> Iterable[tuple[str, bool]]:
        """Return the name and whether it is a directory, of each file and directory; links to files are files.

        Args:
            directory: Relative to the directory that is searched; `''` is that directory itself.

        Raises:
            OSError: It cannot be listed, or the way to it leads through a link.
        """
        ...

    def read(self, name: str) -> bytes:
        """Return the contents of a file of the directory that was scanned last.

        Raises:
            OSError: It cannot be read, or has more than `MAX_FILE_BYTES`.
        """
        ...


def glob_tree(tree: FileTree, pattern: str, path: str = '/', *, max_entries: int = MAX_ENTRIES) -> GlobResult:
    """Return the files of a tree that match a glob.

    Args:
        tree: The directory `path`; that it exists is for the caller to check.
        pattern: A glob, relative to `path`.
        path: The canonical absolute path that results begin with.
        max_entries: After how many files and directories to stop and say so.

    Raises:
        InvalidPatternError: The pattern cannot be used.
    """
    walk = Walk(compile_glob(pattern), path, max_entries=max_entries)
    found: list[str] = []
    while (directory := walk.next_directory()) is not None:
        try:
            names = walk.take(tree.scan(directory))
        except OSError as error:
            walk.skip(error)
            continue
        found += walk.paths_of(names)
    return walk.result(found)


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
        tree: The directory `path`; that it exists is for the caller to check. For one file, use `grep_file`.
        pattern: An RE2 regular expression.
        path: The canonical absolute path that results begin with.
        glob: Search only files that match, relative to `path`; all that are not hidden if `None`.
        limit: How many lines to keep; the counts per file stay complete.
        max_entries: After how many files and directories to stop and say so.

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
        data: All of its bytes.
        pattern: An RE2 regular expression.
        limit: How many lines to keep; the count stays complete.

    Raises:
        InvalidPatternError: The pattern cannot be used.
    """
    builder = GrepBuilder(compile_grep(pattern), limit)
    builder.add(path, data)
    return builder.result()
