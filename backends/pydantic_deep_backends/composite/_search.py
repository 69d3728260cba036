"""Search over a composite. A part is a backend and its mount point.

A part with a search of its own runs it, with the pattern translated for the part. The composite walks the files of the
other parts: those without a search, those for which no glob expresses the pattern, and those with files that another
mount hides, because their own search would find these. Only the part that contains `path` and the mounts below `path`
are searched.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pydantic_deep_backends._search_results import joined_glob, joined_grep
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
    queries, is_walked = await _own_queries(table, pattern, path)
    results: list[GlobResult] = []
    problems: list[SearchProblem] = []
    if is_walked:
        results.append(await glob_backend(_CompositeFiles(composite, table, queries), pattern, path))
    for query in queries:
        if query.glob:
            with _part_errors(query, problems):
                results.append(_outer_glob(table, query.part, await query.backend.glob(query.glob, query.path)))
    return joined_glob(results, problems)


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
    queries, is_walked = await _own_queries(table, '**' if glob is None else glob, path)
    results: list[GrepResult] = []
    problems: list[SearchProblem] = []
    if is_walked:
        view = _CompositeFiles(composite, table, queries)
        results.append(await grep_backend(view, pattern, path, glob=glob, limit=limit))
    for query in queries:
        if query.glob:
            with _part_errors(query, problems):
                result = await query.backend.grep(
                    pattern, query.path, glob=None if glob is None else query.glob, limit=limit
                )
                results.append(_outer_grep(table, query.part, result))
    return joined_grep(results, problems, limit=limit)


@dataclass(frozen=True, kw_only=True)
class _PartQuery:
    """A search for a part to run itself."""

    part: Mount
    backend: SupportsSearch
    path: str
    """The start of the search, as a path of the part."""
    glob: str
    """The translated pattern; `''` if no file of the part can match."""
    is_below: bool
    """Whether the part is mounted below the start of the search. Then its failure does not end the search."""


async def _own_queries(table: MountTable, pattern: str, path: str) -> tuple[list[_PartQuery], bool]:
    """Return the queries for parts that search themselves, and whether other parts must be walked."""
    part, inner = table.locate(path)
    below = table.below(path)
    queries: list[_PartQuery] = []
    if isinstance(part.backend, SupportsSearch) and not await _hides_files(part, below):
        is_there = not below or await part.backend.exists(inner)
        glob = pattern if is_there else ''
        queries.append(_PartQuery(part=part, backend=part.backend, path=inner, glob=glob, is_below=False))
    depth = len(path_parts(path))
    for mount in below:
        glob = subtree_glob(pattern, path_parts(mount.prefix)[depth:])
        if glob is None or not isinstance(mount.backend, SupportsSearch):
            continue
        if not await _hides_files(mount, table.below(mount.prefix)):
            queries.append(_PartQuery(part=mount, backend=mount.backend, path='/', glob=glob, is_below=True))
    part_count = 1 + len(below)
    return queries, len(queries) < part_count


@contextmanager
def _part_errors(query: _PartQuery, problems: list[SearchProblem]) -> Generator[None]:
    """Replace paths in the errors of a part; the failure of a part that is mounted below is reported as a problem."""
    try:
        with query.part.errors(query.path):
            yield
    except OSError as error:
        if not query.is_below:
            raise
        problems.append(SearchProblem(path=query.part.prefix, reason=error_reason(error)))


class _CompositeFiles:
    """The composite as a walk sees it. It shows no files of parts that search themselves, only the mounts below them.

    A file whose part refuses its name counts as unreadable and does not end the search. For example, a file `~a` at the
    root of a part has the valid virtual path `/mount/~a`, but the part refuses `/~a`.
    """

    def __init__(self, composite: BackendProtocol, table: MountTable, queries: Collection[_PartQuery]) -> None:
        self._composite = composite
        self._table = table
        self._searched = {query.part for query in queries}
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
