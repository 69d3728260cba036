"""The walk of every search: the directories to list, the files to search, the problems to report.

The walk decides and does no I/O. A backend asks it for the next directory, lists that in any way (with descriptors in a
thread, over the network), and returns the names. So every backend prunes, reports and stops in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from pydantic_deep_backends._search_results import MAX_ENTRIES, MAX_SECONDS, GlobResult, SearchProblem, sorted_problems
from pydantic_deep_backends.paths import MAX_PATH_BYTES, display_path, path_problem

from ._glob import Glob

_UNUSUAL = re.compile(r'[^\x20-\x7d]|\\')
"""Characters that make a path invalid. Paths of names without them are valid, except at the root."""

_LONG_CHARS = 800
"""A path with fewer characters has fewer than 4,096 bytes; names from a file system are never too long."""


class SearchBudget:
    """The remaining entries and time of one search, which may consist of several walks."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self.max_entries = self.entries_left = max_entries
        """Number of files and directories that may still be visited."""
        self.until = monotonic() + MAX_SECONDS
        """When the search stops, on the monotonic clock."""


_SHARED: ContextVar[SearchBudget | None] = ContextVar('search_budget', default=None)
"""The budget of the current search. A composite calls its parts through methods that have no parameter for it."""


@contextmanager
def shared_search_budget() -> Generator[None]:
    """Make all walks in this context share one budget."""
    token = _SHARED.set(_SHARED.get() or SearchBudget())
    try:
        yield
    finally:
        _SHARED.reset(token)


class Walk:
    """A walk over the files of one directory. It is finished when `next_directory` returns `None`.

    ```text
    walk = Walk(compile_glob('**/*.py'), '/src')
    while (directory := walk.next_directory()) is not None:
        try:
            names = walk.take(list_names_and_kinds(directory))
        except OSError as error:
            walk.skip(error)
    ```

    Args:
        glob: The files to search, relative to `root`.
        root: The absolute virtual path of the directory.
        max_entries: Number of files and directories after which the search stops and reports that.
    """

    def __init__(self, glob: Glob, root: str, *, max_entries: int = MAX_ENTRIES) -> None:
        self._glob = glob
        self._base = '' if root == '/' else root
        self._budget = _SHARED.get() or SearchBudget(max_entries)
        self._entries_left = self._max_entries = max_entries
        self._todo = [glob.literal_prefix]
        self._current = ''
        self._is_over = False
        self.problems: list[SearchProblem] = []
        """Problems so far, in the order of the walk."""

    def next_directory(self) -> str | None:
        """Return the next directory to list, relative to the root (`''` is the root itself); `None` at the end."""
        if self._is_over or not self._todo or self.is_late():
            return None
        self._current = self._todo.pop()
        return self._current

    def is_late(self) -> bool:
        """Return whether the time is up, and report that. No further file may be read then."""
        if monotonic() <= self._budget.until:
            return False
        self._is_over = True
        self.problem('', f'stopped after {MAX_SECONDS} seconds. Search in a smaller directory.')
        return True

    def take(self, entries: Iterable[tuple[str, bool]]) -> list[str]:
        """Return the names of files to search in the current directory, sorted; queue its matching subdirectories.

        Args:
            entries: The name of each file and directory, and whether it is a directory. Omit other objects and links to
                directories: a walk follows no directory link.
        """
        glob, prefix = self._glob, f'{self._current}/' if self._current else ''
        names: list[str] = []
        directories: list[str] = []
        for name, is_dir in self._within_budget(sorted(entries)):
            relative = prefix + name
            wanted = glob.may_contain if is_dir else glob.matches
            if self._is_doubtful(relative, name) and not self._is_usable(relative, wanted(_UNUSUAL.sub('_', relative))):
                continue
            if wanted(relative):
                (directories if is_dir else names).append(relative if is_dir else name)
        self._todo += reversed(directories)
        return names

    def path_of(self, relative: str) -> str:
        """Return the absolute virtual path for `relative`."""
        return f'{self._base}/{relative}' if relative else self._base or '/'

    def paths_of(self, names: Iterable[str]) -> list[str]:
        """Return the absolute virtual paths of files in the current directory."""
        prefix = self.path_of(self._current).rstrip('/') + '/'
        return [prefix + name for name in names]

    def result(self, paths: Iterable[str]) -> GlobResult:
        """Return the result of a glob with these absolute paths."""
        return GlobResult(paths=tuple(sorted(paths)), problems=sorted_problems(self.problems))

    def skip(self, error: OSError) -> None:
        """Report that the current directory could not be listed.

        If the glob names a directory that does not exist, nothing matches, and nothing is reported.
        """
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        if not (missing and self._current and self._current == self._glob.literal_prefix):
            self.problem(self._current, error_reason(error))

    def problem(self, relative: str, reason: str) -> None:
        """Report a file or directory that could not be read."""
        self.problems.append(SearchProblem(path=self.path_of(relative), reason=reason))

    def _within_budget(self, entries: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
        """Return the entries within the budget; if some exceed it, the walk ends with them."""
        most = min(self._entries_left, self._budget.entries_left)
        if len(entries) > most:
            entries = entries[:most]
            self._is_over = True
            number = min(self._max_entries, self._budget.max_entries)
            self.problem('', f'stopped after {number:,} entries. Search in a smaller directory.')
        self._entries_left -= len(entries)
        self._budget.entries_left -= len(entries)
        return entries

    def _is_doubtful(self, relative: str, name: str) -> bool:
        """Return whether the path may be invalid. This check is cheap and has no false negatives."""
        at_root = not self._base and relative is name
        return at_root or _UNUSUAL.search(name) is not None or self._may_be_long(relative)

    def _may_be_long(self, relative: str) -> bool:
        length = len(self._base) + len(relative)
        return length > _LONG_CHARS and (
            length > MAX_PATH_BYTES or len(self.path_of(relative).encode()) > MAX_PATH_BYTES
        )

    def _is_usable(self, relative: str, is_wanted: bool) -> bool:
        """Return whether the path is valid; report an invalid one if it would be searched."""
        path = self.path_of(relative)
        reason = path_problem(path)
        if reason is not None and is_wanted:
            self.problems.append(SearchProblem(path=display_path(path), reason=f'not a valid path: {reason}'))
        return reason is None


def error_reason(error: OSError) -> str:
    """Return the message of an operating system error, without the path."""
    return error.strerror or str(error) or type(error).__name__
