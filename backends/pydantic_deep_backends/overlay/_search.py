"""Search over an overlay: the base's own search without the touched paths, plus the files of the overlay.

If the base has no search of its own, or `path` contains a link, the visible files are walked instead. `files_searched`
assumes that the base still has the touched files; everything else is exact.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from pydantic_deep_backends._search_results import GlobResult, GrepResult, SearchProblem, joined_glob, joined_grep
from pydantic_deep_backends.paths import relative_to
from pydantic_deep_backends.protocol import BackendProtocol, SupportsSearch
from pydantic_deep_backends.search import glob_backend, grep_backend
from pydantic_deep_backends.search._glob import compile_glob
from pydantic_deep_backends.state import StateBackend

from ._layer import Content, Layer

ResultT = TypeVar('ResultT', GlobResult, GrepResult)


async def glob_overlay(
    overlay: BackendProtocol, base: BackendProtocol, layer: Layer, pattern: str, path: str
) -> GlobResult:
    """Return the result of `SupportsSearch.glob`."""
    if not isinstance(base, SupportsSearch) or await overlay.realpath(path) != path:
        return await glob_backend(overlay, pattern, path)

    async def search_base() -> GlobResult:
        base_result = await base.glob(pattern, path)
        return GlobResult(
            paths=tuple(file for file in base_result.paths if layer.shows_base(file)),
            problems=_visible_problems(layer, path, base_result),
        )

    results = await _search_parts(overlay, layer, path, lambda own: own.glob(pattern, path), search_base)
    return joined_glob(results)


async def grep_overlay(
    overlay: BackendProtocol,
    base: BackendProtocol,
    layer: Layer,
    pattern: str,
    path: str,
    *,
    glob: str | None,
    limit: int,
) -> GrepResult:
    """Return the result of `SupportsSearch.grep`."""
    if not isinstance(base, SupportsSearch) or await overlay.realpath(path) != path:
        return await grep_backend(overlay, pattern, path, glob=glob, limit=limit)

    async def search_base() -> GrepResult:
        base_result = await base.grep(pattern, path, glob=glob, limit=limit)
        hidden = sum(count for file, count in base_result.counts.items() if not layer.shows_base(file))
        if hidden and base_result.truncated:  # hidden lines displaced visible ones
            base_result = await base.grep(pattern, path, glob=glob, limit=limit + hidden)
        return replace(
            base_result,
            matches=tuple(match for match in base_result.matches if layer.shows_base(match.path)),
            counts={file: count for file, count in base_result.counts.items() if layer.shows_base(file)},
            problems=_visible_problems(layer, path, base_result),
            files_searched=max(0, base_result.files_searched - _count_hidden(layer, path, glob)),
        )

    results = await _search_parts(
        overlay, layer, path, lambda own: own.grep(pattern, path, glob=glob, limit=limit), search_base
    )
    return joined_grep(results, limit=limit)


async def _search_parts(
    overlay: BackendProtocol,
    layer: Layer,
    path: str,
    search_own: Callable[[StateBackend], Awaitable[ResultT]],
    search_base: Callable[[], Awaitable[ResultT]],
) -> list[ResultT]:
    is_live = layer.is_live(path)
    results: list[ResultT] = []
    if is_live:
        results.append(await search_own(await _own_files(layer, path)))
    if layer.may_show_base_below(path):
        try:
            results.append(await search_base())
        except (FileNotFoundError, NotADirectoryError):
            if not is_live:
                raise
    if not results:
        await overlay.stat(path)  # raises, as nothing exists there
    return results


async def _own_files(layer: Layer, path: str) -> StateBackend:
    """Return the files of the overlay below a directory, or the file `path`."""
    files = StateBackend()
    for file, entry in layer.entries(path):
        if isinstance(entry.now, Content):
            await files.write_bytes(file, entry.now.whole)
    if not await files.exists(path):
        await files.make_dir(path)
    return files


def _visible_problems(layer: Layer, path: str, result: GlobResult | GrepResult) -> tuple[SearchProblem, ...]:
    return tuple(problem for problem in result.problems if problem.path == path or layer.shows_base(problem.path))


def _count_hidden(layer: Layer, path: str, glob: str | None) -> int:
    """Return how many hidden files the base has searched."""
    wanted = compile_glob('**' if glob is None else glob)
    return sum(
        isinstance(entry.was, Content) and entry.was.is_searched and wanted.matches(relative_to(file, path))
        for file, entry in layer.entries(path)
        if file != path
    )
