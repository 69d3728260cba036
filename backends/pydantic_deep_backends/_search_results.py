"""Search results, and the limits that they report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MAX_ENTRIES = 1_000_000
"""Maximum number of files and directories that one search visits. Beyond it, the result is marked as partial."""

MAX_SECONDS = 60
"""Time in seconds after which a search starts no further file. Beyond it, the result is marked as partial."""

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Maximum size of a file that grep reads. A larger file is reported as a problem."""

MAX_LINE_CHARS = 2_000
"""Maximum length of a line in a `GrepMatch`; a longer line is cut around its first match."""


@dataclass(frozen=True, kw_only=True)
class SearchProblem:
    """A file or directory that a search could not read. The rest of the result is complete."""

    path: str
    """The absolute path of the file or directory; escaped by `display_path` if it is not a valid path."""
    reason: str
    """The cause, in a few words."""


@dataclass(frozen=True, kw_only=True)
class GlobResult:
    """The files that a glob found."""

    paths: tuple[str, ...]
    """Absolute paths of files, never of directories, sorted."""
    problems: tuple[SearchProblem, ...] = ()
    """Files and directories that could not be read, sorted by path."""


@dataclass(frozen=True, kw_only=True)
class GrepMatch:
    """A line that matched."""

    path: str
    """The absolute path of the file."""
    line_number: int
    """The number of the line; the first is 1. Only `\\n` ends a line."""
    line: str
    """The line without its line end; at most `MAX_LINE_CHARS` characters, with `…` where it was cut."""


@dataclass(frozen=True, kw_only=True)
class GrepResult:
    """The lines that a regular expression found."""

    matches: tuple[GrepMatch, ...]
    """The first matching lines by path and line number, at most `limit` of them."""
    counts: Mapping[str, int]
    """Number of matching lines per file with matches, sorted by path. Complete, regardless of the limit."""
    problems: tuple[SearchProblem, ...] = ()
    """Files and directories that could not be read, sorted by path."""
    truncated: bool = False
    """Whether `matches` lacks lines because of the limit."""
    files_searched: int = 0
    """Number of text files that were searched; binary files are skipped."""


def joined_glob(results: Sequence[GlobResult], problems: Iterable[SearchProblem] = ()) -> GlobResult:
    """Return one result for several searches of different files, with further problems."""
    paths = sorted(path for result in results for path in result.paths)
    return GlobResult(paths=tuple(paths), problems=_joined_problems(results, problems))


def joined_grep(results: Sequence[GrepResult], problems: Iterable[SearchProblem] = (), *, limit: int) -> GrepResult:
    """Return one result for several searches of different files, with further problems and at most `limit` lines."""
    lines = (match for result in results for match in result.matches)
    matches = tuple(sorted(lines, key=lambda match: (match.path, match.line_number))[:limit])
    counts = {path: count for result in results for path, count in result.counts.items()}
    return GrepResult(
        matches=matches,
        counts={path: counts[path] for path in sorted(counts)},
        problems=_joined_problems(results, problems),
        truncated=sum(counts.values()) > len(matches),
        files_searched=sum(result.files_searched for result in results),
    )


def _joined_problems(
    results: Iterable[GlobResult | GrepResult], problems: Iterable[SearchProblem]
) -> tuple[SearchProblem, ...]:
    return sorted_problems([*problems, *(problem for result in results for problem in result.problems)])


def sorted_problems(problems: Iterable[SearchProblem]) -> tuple[SearchProblem, ...]:
    """Return the problems in the order that results use."""
    return tuple(sorted(problems, key=lambda problem: (problem.path, problem.reason)))
