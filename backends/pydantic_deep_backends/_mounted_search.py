"""Search over a composite: by the own search of the part where that sees the same, else by a walk.

The part that `path` is in searches by itself, which is fast; what is mounted below it is walked. Where the part has
files under a mount point, hidden files, its own search would see them and everything is walked.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ._mounts import MountTable, Part
from .errors import InvalidPathError
from .paths import path_parts
from .protocol import BackendProtocol, FileEntry, FileEntryLike, SupportsSearch
from .search import GlobResult, GrepResult, SearchProblem, glob_backend, grep_backend


async def glob_mounts(composite: BackendProtocol, table: MountTable, pattern: str, path: str) -> GlobResult:
    """Return what `SupportsSearch.glob` returns."""
    part, inner = table.locate(path)
    below = table.below(path)
    if not isinstance(part.backend, SupportsSearch) or await _hides_files(part, below):
        return await glob_backend(_Walked(composite), pattern, path)
    results: list[GlobResult] = []
    if below:
        results.append(await glob_backend(_MountsOnly(composite, table, part), pattern, path))
    if not below or await part.backend.exists(inner):
        with part.errors(inner):
            found = await part.backend.glob(pattern, inner)
        results.append(_outer_glob(table, part, found))
    paths = sorted(path for result in results for path in result.paths)
    return GlobResult(paths=tuple(paths), problems=_joined_problems(results))


async def grep_mounts(
    composite: BackendProtocol, table: MountTable, pattern: str, path: str, *, glob: str | None, limit: int
) -> GrepResult:
    """Return what `SupportsSearch.grep` returns."""
    part, inner = table.locate(path)
    below = table.below(path)
    if not isinstance(part.backend, SupportsSearch) or await _hides_files(part, below):
        return await grep_backend(_Walked(composite), pattern, path, glob=glob, limit=limit)
    results: list[GrepResult] = []
    if below:
        view = _MountsOnly(composite, table, part)
        results.append(await grep_backend(view, pattern, path, glob=glob, limit=limit))
    if not below or await part.backend.exists(inner):
        with part.errors(inner):
            found = await part.backend.grep(pattern, inner, glob=glob, limit=limit)
        results.append(_outer_grep(table, part, found))
    return _sum(results, limit)


class _Walked:
    """The composite as a walk sees it: a name that its part refuses is unreadable, and does not end the search.

    A file `/~a` at the root of a part is `/mount/~a` here, which looks like a path and cannot be read.
    """

    def __init__(self, composite: BackendProtocol) -> None:
        self._composite = composite
        self.stat = composite.stat

    async def read_bytes(self, path: str) -> bytes:
        with _refused_as_unreadable(path):
            return await self._composite.read_bytes(path)

    async def list_dir(self, path: str) -> Sequence[FileEntryLike]:
        with _refused_as_unreadable(path):
            return await self._composite.list_dir(path)

    async def realpath(self, path: str) -> str:
        with _refused_as_unreadable(path):
            return await self._composite.realpath(path)


class _MountsOnly(_Walked):
    """The composite without the files of one part: directories that lead to mounts, and what is mounted."""

    def __init__(self, composite: BackendProtocol, table: MountTable, hidden: Part) -> None:
        super().__init__(composite)
        self._table = table
        self._hidden = hidden

    async def list_dir(self, path: str) -> Sequence[FileEntryLike]:
        if self._table.locate(path)[0] is not self._hidden:
            return await super().list_dir(path)
        if not self._table.below(path):
            raise FileNotFoundError(f'Nothing is mounted below {path!r}. Search it in its own part.')
        names = self._table.child_names(path).values()
        return [FileEntry(name=name, path=f'{path}/{name}', is_dir=True, size=None) for name in names]


@contextmanager
def _refused_as_unreadable(path: str) -> Generator[None]:
    try:
        yield
    except InvalidPathError as error:
        raise OSError(errno.EINVAL, f'its name is not a valid path where it is mounted: {error.reason}', path) from None


async def _hides_files(part: Part, below: Iterable[Part]) -> bool:
    """Return whether the part has something at a mount point, or a file on the way to one."""
    for mount in below:
        if await _is_occupied(part, path_parts(mount.prefix)[len(part.key) :]):
            return True
    return False


async def _is_occupied(part: Part, names: Sequence[str]) -> bool:
    try:
        for depth in range(1, len(names)):
            if not (await part.backend.stat('/' + '/'.join(names[:depth]))).is_dir:
                return True
        return await part.backend.exists('/' + '/'.join(names))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # a link that leads outside, say: something is there
        return True


def _outer_glob(table: MountTable, part: Part, found: GlobResult) -> GlobResult:
    paths = (part.outer(path) for path in found.paths)
    return GlobResult(paths=tuple(p for p in paths if _is_own(table, part, p)), problems=_outer_problems(part, found))


def _outer_grep(table: MountTable, part: Part, found: GrepResult) -> GrepResult:
    matches = (replace(match, path=part.outer(match.path)) for match in found.matches)
    counts = {part.outer(path): count for path, count in found.counts.items()}
    return replace(
        found,
        matches=tuple(match for match in matches if _is_own(table, part, match.path)),
        counts={path: count for path, count in counts.items() if _is_own(table, part, path)},
        problems=_outer_problems(part, found),
    )


def _is_own(table: MountTable, part: Part, path: str) -> bool:
    """Return whether a file that a part found is not hidden by a mount whose name it spells in another way."""
    return table.locate(path)[0] is part


def _outer_problems(part: Part, found: GlobResult | GrepResult) -> tuple[SearchProblem, ...]:
    return tuple(replace(problem, path=part.outer(problem.path)) for problem in found.problems)


def _joined_problems(results: Iterable[GlobResult | GrepResult]) -> tuple[SearchProblem, ...]:
    problems = (problem for result in results for problem in result.problems)
    return tuple(sorted(problems, key=lambda problem: (problem.path, problem.reason)))


def _sum(results: Sequence[GrepResult], limit: int) -> GrepResult:
    """Return one result as if the files of all had been searched together."""
    lines = (match for result in results for match in result.matches)
    matches = tuple(sorted(lines, key=lambda match: (match.path, match.line_number))[:limit])
    counts = {path: result.counts[path] for result in results for path in result.counts}
    return GrepResult(
        matches=matches,
        counts={path: counts[path] for path in sorted(counts)},
        problems=_joined_problems(results),
        truncated=sum(counts.values()) > len(matches),
        files_searched=sum(result.files_searched for result in results),
    )
