"""Search over a composite: parts with an exact search of their own search themselves, the rest is walked.

The pattern is translated for the part that contains `path` and for each mount below it, so that the cost of a directory
depends only on its part. Three kinds of parts are walked: those without a search, those with files that a mount hides
(their own search would find these), and those for which no glob expresses the pattern.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pydantic_deep_backends._search_results import sorted_problems
from pydantic_deep_backends.errors import InvalidPathError
from pydantic_deep_backends.paths import display_path, path_parts, path_problem
from pydantic_deep_backends.protocol import BackendProtocol, FileEntry, FileEntryLike, SupportsSearch
from pydantic_deep_backends.search import GlobResult, GrepResult, SearchProblem, glob_backend, grep_backend
from pydantic_deep_backends.search._glob import compile_glob
from pydantic_deep_backends.search._grep import GrepBuilder, compile_grep
from pydantic_deep_backends.search._subtree_glob import subtree_glob
from pydantic_deep_backends.search._walk import error_reason, shared_search_budget

from ._mounts import Mount, MountTable


async def glob_mounts(composite: BackendProtocol, table: MountTable, pattern: str, path: str) -> GlobResult:
    """Return the result of `SupportsSearch.glob`."""
    compile_glob(pattern)  # raises for an invalid pattern, even if no part searches
    with shared_search_budget():
        return await _glob(composite, table, pattern, path)


async def _glob(composite: BackendProtocol, table: MountTable, pattern: str, path: str) -> GlobResult:
    shares, is_walked = await _shares(table, pattern, path)
    results: list[GlobResult] = []
    problems: list[SearchProblem] = []
    if is_walked:
        results.append(await glob_backend(_CompositeFiles(composite, table, shares), pattern, path))
    for share in shares:
        if share.glob:
            with _part_errors(share, problems):
                results.append(_outer_glob(table, share.part, await share.backend.glob(share.glob, share.path)))
    paths = sorted(path for result in results for path in result.paths)
    return GlobResult(paths=tuple(paths), problems=_joined_problems(results, problems))


async def grep_mounts(
    composite: BackendProtocol, table: MountTable, pattern: str, path: str, *, glob: str | None, limit: int
) -> GrepResult:
    """Return the result of `SupportsSearch.grep`."""
    GrepBuilder(compile_grep(pattern), limit)  # raises for an invalid pattern, even if no part searches
    compile_glob('**' if glob is None else glob)
    with shared_search_budget():
        return await _grep(composite, table, pattern, path, glob, limit)


async def _grep(
    composite: BackendProtocol, table: MountTable, pattern: str, path: str, glob: str | None, limit: int
) -> GrepResult:
    shares, is_walked = await _shares(table, '**' if glob is None else glob, path)
    results: list[GrepResult] = []
    problems: list[SearchProblem] = []
    if is_walked:
        view = _CompositeFiles(composite, table, shares)
        results.append(await grep_backend(view, pattern, path, glob=glob, limit=limit))
    for share in shares:
        if share.glob:
            with _part_errors(share, problems):
                result = await share.backend.grep(
                    pattern, share.path, glob=None if glob is None else share.glob, limit=limit
                )
                results.append(_outer_grep(table, share.part, result))
    return _sum(results, problems, limit)


@dataclass(frozen=True, kw_only=True)
class _MountQuery:
    """A search that a part runs itself."""

    part: Mount
    backend: SupportsSearch
    path: str
    """The start of the search, as a path of the part."""
    glob: str
    """The translated pattern; `''` if no file of the part can match."""
    is_below: bool
    """Whether the part is mounted below the start of the search, so that a failure does not fail the search."""


async def _shares(table: MountTable, pattern: str, path: str) -> tuple[list[_MountQuery], bool]:
    """Return the queries of parts that search themselves, and whether other parts must be walked."""
    part, inner = table.locate(path)
    below = table.below(path)
    shares: list[_MountQuery] = []
    if isinstance(part.backend, SupportsSearch) and not await _hides_files(part, below):
        is_there = not below or await part.backend.exists(inner)
        glob = pattern if is_there else ''
        shares.append(_MountQuery(part=part, backend=part.backend, path=inner, glob=glob, is_below=False))
    depth = len(path_parts(path))
    for mount in below:
        glob = subtree_glob(pattern, path_parts(mount.prefix)[depth:])
        if glob is None or not isinstance(mount.backend, SupportsSearch):
            continue
        if not await _hides_files(mount, table.below(mount.prefix)):
            shares.append(_MountQuery(part=mount, backend=mount.backend, path='/', glob=glob, is_below=True))
    return shares, len(shares) <= len(below)


@contextmanager
def _part_errors(share: _MountQuery, problems: list[SearchProblem]) -> Generator[None]:
    """Replace paths in the errors of a part; the failure of a part that is mounted below is reported as a problem."""
    try:
        with share.part.errors(share.path):
            yield
    except OSError as error:
        if not share.is_below:
            raise
        problems.append(SearchProblem(path=share.part.prefix, reason=error_reason(error)))


class _CompositeFiles:
    """The composite as seen by a walk. Of parts that search themselves, it shows only the mounts below, and no files.

    A name that its part refuses is unreadable, and does not end the search: a file `/~a` at the root of a part has the
    virtual path `/mount/~a`, which is valid but cannot be read.
    """

    def __init__(self, composite: BackendProtocol, table: MountTable, shares: Collection[_MountQuery]) -> None:
        self._composite = composite
        self._table = table
        self._searched = {share.part for share in shares}
        self.stat = composite.stat

    async def read_bytes(self, path: str) -> bytes:
        with _refused_as_unreadable(path):
            return await self._composite.read_bytes(path)

    async def list_dir(self, path: str) -> Sequence[FileEntryLike]:
        if self._is_searched(path):
            names = self._table.child_names(path).values()
            return [FileEntry(name=name, path=f'{path}/{name}', is_dir=True, size=None) for name in names]
        with _refused_as_unreadable(path):
            return await self._composite.list_dir(path)

    async def realpath(self, path: str) -> str:
        if self._is_searched(path):
            return path
        with _refused_as_unreadable(path):
            return await self._composite.realpath(path)

    def _is_searched(self, path: str) -> bool:
        return self._table.locate(path)[0] in self._searched


@contextmanager
def _refused_as_unreadable(path: str) -> Generator[None]:
    try:
        yield
    except InvalidPathError as error:
        raise OSError(errno.EINVAL, f'its name is not a valid path where it is mounted: {error.reason}', path) from None


async def _hides_files(part: Mount, below: Iterable[Mount]) -> bool:
    """Return whether the part has anything at a mount point, or a file at a parent of one."""
    for mount in below:
        if await _is_occupied(part, path_parts(mount.prefix)[len(part.key) :]):
            return True
    return False


async def _is_occupied(part: Mount, names: Sequence[str]) -> bool:
    try:
        for depth in range(1, len(names)):
            if not (await part.backend.stat('/' + '/'.join(names[:depth]))).is_dir:
                return True
        return await part.backend.exists('/' + '/'.join(names))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # for example a link that leads outside: the path is occupied
        return True


def _outer_glob(table: MountTable, part: Mount, result: GlobResult) -> GlobResult:
    paths = [part.outer(path) for path in result.paths]
    return GlobResult(
        paths=tuple(path for path in paths if _is_own(table, part, path)),
        problems=(*_outer_problems(part, result), *_too_long(paths)),
    )


def _outer_grep(table: MountTable, part: Mount, result: GrepResult) -> GrepResult:
    matches = (replace(match, path=part.outer(match.path)) for match in result.matches)
    counts = {part.outer(path): count for path, count in result.counts.items()}
    return replace(
        result,
        matches=tuple(match for match in matches if _is_own(table, part, match.path)),
        counts={path: count for path, count in counts.items() if _is_own(table, part, path)},
        problems=(*_outer_problems(part, result), *_too_long(counts)),
    )


def _is_own(table: MountTable, part: Mount, path: str) -> bool:
    """Return whether a file that a part found is visible, at a valid virtual path.

    It is hidden if a mount spells the same name in another way, and invalid if the mount point makes the path too long.
    """
    return table.locate(path)[0] is part and path_problem(path) is None


def _too_long(paths: Iterable[str]) -> list[SearchProblem]:
    return [
        SearchProblem(path=display_path(path), reason=f'not a valid path: {reason}')
        for path in paths
        if (reason := path_problem(path)) is not None
    ]


def _outer_problems(part: Mount, result: GlobResult | GrepResult) -> tuple[SearchProblem, ...]:
    return tuple(_outer_problem(part, problem) for problem in result.problems)


def _outer_problem(part: Mount, problem: SearchProblem) -> SearchProblem:
    path, refused = part.outer(problem.path), path_problem(problem.path)
    reason = problem.reason
    if refused is not None and path_problem(path) is None:
        reason = f'its name is not a valid path where it is mounted: {refused}'
    return SearchProblem(path=path, reason=reason)


def _joined_problems(
    results: Iterable[GlobResult | GrepResult], problems: Iterable[SearchProblem]
) -> tuple[SearchProblem, ...]:
    return sorted_problems([*problems, *(problem for result in results for problem in result.problems)])


def _sum(results: Sequence[GrepResult], problems: Iterable[SearchProblem], limit: int) -> GrepResult:
    """Return one combined result, as of one search over all files."""
    lines = (match for result in results for match in result.matches)
    matches = tuple(sorted(lines, key=lambda match: (match.path, match.line_number))[:limit])
    counts = {path: result.counts[path] for result in results for path in result.counts}
    return GrepResult(
        matches=matches,
        counts={path: counts[path] for path in sorted(counts)},
        problems=_joined_problems(results, problems),
        truncated=sum(counts.values()) > len(matches),
        files_searched=sum(result.files_searched for result in results),
    )
