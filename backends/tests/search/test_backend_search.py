"""Search of any backend by listing and reading."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic_ai.workspaces import LocalWorkspaceBackend

import pydantic_deep_backends.search._grep as grep_module
from pydantic_deep_backends.protocol import BackendProtocol
from pydantic_deep_backends.search import (
    MAX_FILE_BYTES,
    GrepMatch,
    GrepResult,
    SearchableFiles,
    SearchProblem,
    glob_backend,
    grep_backend,
)
from pydantic_deep_backends.search._cases import GLOB_CASES, GREP_CASES, GlobCase, GrepCase
from pydantic_deep_backends.state import StateBackend

from .conftest import write_files

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Entry:
    name: str
    is_dir: bool = False
    size: int | None = None
    path: str = ''


@dataclass
class FakeFiles:
    """A backend without `realpath`, with simulated failures."""

    directories: dict[str, list[Entry] | OSError]
    contents: dict[str, bytes | OSError] = field(default_factory=dict[str, bytes | OSError])

    async def read_bytes(self, path: str) -> bytes:
        data = self.contents[path]
        if isinstance(data, OSError):
            raise data
        return data

    async def stat(self, path: str) -> Entry:
        return Entry(path, is_dir=path in self.directories)

    async def list_dir(self, path: str) -> Sequence[Entry]:
        entries = self.directories[path]
        if isinstance(entries, OSError):
            raise entries
        return entries


@pytest.mark.anyio
@pytest.mark.parametrize('case', GLOB_CASES, ids=lambda case: f'{case.path}-{case.pattern}')
async def test_glob_backend_matches_the_table_of_globs(case: GlobCase, glob_root: Path) -> None:
    backend = LocalWorkspaceBackend(glob_root)
    result = await glob_backend(backend, case.pattern, str(glob_root / case.path))
    assert tuple(path.removeprefix(f'{glob_root}/') for path in result.paths) == case.expected
    assert result.problems == ()


@pytest.mark.anyio
@pytest.mark.parametrize('case', GREP_CASES, ids=lambda case: f'{case.path}-{case.glob}-{case.pattern}')
async def test_grep_backend_matches_the_table_of_regexes(case: GrepCase, grep_root: Path) -> None:
    backend = LocalWorkspaceBackend(grep_root)
    result = await grep_backend(backend, case.pattern, str(grep_root / case.path), glob=case.glob)
    found = ((match.path.removeprefix(f'{grep_root}/'), match.line_number, match.line) for match in result.matches)
    assert tuple(found) == case.expected


@pytest.mark.parametrize('search', [StateBackend.grep, grep_backend])
@pytest.mark.parametrize('path', ['/', '/f'])
async def test_files_are_not_searched_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, search: Callable[[StateBackend, str, str], Awaitable[GrepResult]], path: str
) -> None:
    """A regex may take seconds for a megabyte."""
    threads: list[threading.Thread] = []
    search_text = grep_module.LinePattern.search

    def watched(pattern: grep_module.LinePattern, text: bytes) -> Iterator[grep_module.FoundLine]:
        threads.append(threading.current_thread())
        return search_text(pattern, text)

    monkeypatch.setattr(grep_module.LinePattern, 'search', watched)
    assert (await search(StateBackend({'/f': 'x', '/g': 'y'}), 'x', path)).counts == {'/f': 1}
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize(('limit', 'value'), [('_BATCH_BYTES', 2), ('_BATCH_FILES', 2)])
async def test_files_are_searched_in_batches(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    backend = StateBackend({f'/{number}': 'x' for number in range(5)})
    whole = await grep_backend(backend, 'x')
    monkeypatch.setattr(f'pydantic_deep_backends.search._backend_search.{limit}', value)
    assert await grep_backend(backend, 'x') == whole
    assert len(whole.counts) == 5


async def test_glob_in_a_file_raises(grep_root: Path) -> None:
    with pytest.raises(NotADirectoryError, match='is a file'):
        await glob_backend(LocalWorkspaceBackend(grep_root), '*', str(grep_root / 'bom.txt'))


async def test_search_in_a_missing_directory_raises(grep_root: Path) -> None:
    backend = LocalWorkspaceBackend(grep_root)
    with pytest.raises(FileNotFoundError):
        await glob_backend(backend, '*', str(grep_root / 'missing'))
    with pytest.raises(FileNotFoundError):
        await grep_backend(backend, 'x', str(grep_root / 'missing'))


async def test_cycle_of_links_is_not_followed(tmp_path: Path) -> None:
    write_files(tmp_path, {'real/a.py': b'alpha\n'})
    (tmp_path / 'real' / 'loop').symlink_to('..')
    (tmp_path / 'link').symlink_to('real')
    (tmp_path / 'file.py').symlink_to('real/a.py')
    backend = LocalWorkspaceBackend(tmp_path)
    result = await glob_backend(backend, '**/*.py', str(tmp_path))
    assert result.paths == (str(tmp_path / 'file.py'), str(tmp_path / 'real/a.py'))
    assert (await glob_backend(backend, 'link/*.py', str(tmp_path))).paths == ()
    assert (await glob_backend(backend, '*.py', str(tmp_path / 'link'))).paths == (str(tmp_path / 'link/a.py'),)
    assert (await grep_backend(backend, 'alpha', str(tmp_path / 'link'))).counts == {str(tmp_path / 'link/a.py'): 1}


async def test_failing_parts_of_a_backend_are_reported() -> None:
    backend = FakeFiles(
        {
            '/': [Entry('bad', is_dir=True), Entry('a', size=6), Entry('b'), Entry('huge', size=MAX_FILE_BYTES + 1)],
            '/bad': PermissionError(13, 'Permission denied'),
        },
        {'/a': b'alpha\n', '/b': OSError(5, 'Input/output error')},
    )
    problem = SearchProblem(path='/bad', reason='Permission denied')
    result = await glob_backend(backend, '**')
    assert (result.paths, result.problems) == (('/a', '/b', '/huge'), (problem,))
    found = await grep_backend(backend, 'alpha')
    assert found.matches == (GrepMatch(path='/a', line_number=1, line='alpha'),)
    assert [reported.path for reported in found.problems] == ['/b', '/bad', '/huge']
    assert 'files over 67,108,864 are not searched' in found.problems[2].reason


async def test_backend_search_stops_at_its_budget() -> None:
    backend = FakeFiles({'/': [Entry('a'), Entry('b')]}, {'/a': b'x', '/b': b'x'})
    assert (await glob_backend(backend, '**', max_entries=1)).paths == ('/a',)
    assert len((await grep_backend(backend, 'x', max_entries=1)).problems) == 1


def test_every_backend_is_a_searchable_files() -> None:
    def accepts(backend: BackendProtocol) -> SearchableFiles:
        return backend

    assert callable(accepts)
