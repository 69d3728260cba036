"""What a search returns: the values, and the limits that they report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MAX_ENTRIES = 1_000_000
"""The most files and directories that one search looks at. Beyond it, the result says that it is partial."""

MAX_SECONDS = 60
"""The longest that one search goes on to the next file. Beyond it, the result says that it is partial."""

MAX_FILE_BYTES = 64 * 1024 * 1024
"""The largest file that grep reads. A larger one is reported as a problem."""

MAX_LINE_CHARS = 2_000
"""The longest line that a `GrepMatch` shows; a longer one is cut around its first match."""


@dataclass(frozen=True, kw_only=True)
class SearchProblem:
    """What a search could not look at. It hides nothing else: the rest of the result is complete."""

    path: str
    """The directory or file, absolute; as `display_path` shows it where it is not a valid path at all."""
    reason: str
    """Why, in a few words."""


@dataclass(frozen=True, kw_only=True)
class GlobResult:
    """The files that a glob found."""

    paths: tuple[str, ...]
    """Absolute paths of files, never of directories, sorted."""
    problems: tuple[SearchProblem, ...] = ()
    """What could not be looked at, sorted by path."""


@dataclass(frozen=True, kw_only=True)
class GrepMatch:
    """A line that matched."""

    path: str
    """The absolute path of the file."""
    line_number: int
    """The number of the line; the first is 1. Only `\\n` ends a line."""
    line: str
    """The line without its end; at most `MAX_LINE_CHARS`, with `…` where it was cut."""


@dataclass(frozen=True, kw_only=True)
class GrepResult:
    """The lines that a regular expression found."""

    matches: tuple[GrepMatch, ...]
    """The first lines by path and number, at most as many as the limit."""
    counts: Mapping[str, int]
    """How many lines match in each file that has any, by sorted path: complete, whatever the limit."""
    problems: tuple[SearchProblem, ...] = ()
    """What could not be looked at, sorted by path."""
    truncated: bool = False
    """Whether lines were left out of `matches`."""
    files_searched: int = 0
    """How many text files were searched; binary files are not."""


def sorted_problems(problems: Iterable[SearchProblem]) -> tuple[SearchProblem, ...]:
    """Return the problems in the order of results."""
    return tuple(sorted(problems, key=lambda problem: (problem.path, problem.reason)))
