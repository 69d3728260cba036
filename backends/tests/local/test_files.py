"""Reading, writing and searching the files of a `LocalBackend`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pydantic_deep_backends.errors import InvalidPatternError
from pydantic_deep_backends.local import LocalBackend

pytestmark = pytest.mark.anyio


async def test_written_data_of_any_size_can_be_read(backend: LocalBackend) -> None:
    for size in (0, 1, 65_535, 65_536, 65_537, 400_001):
        data = os.urandom(size)
        await backend.write_bytes('/a/b', data)
        assert await backend.read_bytes('/a/b') == data
        assert (await backend.stat('/a//./b')).size == size


async def test_exists_is_false_below_a_file(backend: LocalBackend) -> None:
    await backend.write_bytes('/f', b'')
    assert [await backend.exists(path) for path in ('/', '/f', '/f/x', '/x')] == [True, True, False, False]


async def test_remove_deletes_files_and_trees_but_never_the_root(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.write_bytes('/t/a/b/f', b'')
    await backend.write_bytes('/t/f', b'')
    await backend.make_dir('/t/empty')
    await backend.remove('/t/f')
    await backend.remove('/t')
    for path in ('/', '/.', '/./'):
        with pytest.raises(ValueError, match='root of the backend'):
            await backend.remove(path)
    with pytest.raises(FileNotFoundError):
        await backend.remove('/t')
    assert os.listdir(tmp_path) == []


async def test_search_starts_at_any_directory_or_link_to_one(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.write_bytes('/src/a.py', b'canary\n')
    await backend.write_bytes('/src/sub/b.py', b'a\ncanary\n')
    (tmp_path / 'link').symlink_to('src')
    assert (await backend.glob('**/*.py', '/link')).paths == ('/link/a.py', '/link/sub/b.py')
    found = await backend.grep('canary', '/link', glob='sub/*')
    assert [(match.path, match.line_number) for match in found.matches] == [('/link/sub/b.py', 2)]


async def test_links_to_files_are_searched_but_linked_directories_are_not_entered(
    backend: LocalBackend, tmp_path: Path
) -> None:
    await backend.write_bytes('/src/a.py', b'canary\n')
    (tmp_path / 'dir').symlink_to('src')
    (tmp_path / 'file.py').symlink_to('src/a.py')
    (tmp_path / 'dangling.py').symlink_to('src/b.py')
    assert (await backend.glob('**')).paths == ('/file.py', '/src/a.py')
    assert dict((await backend.grep('canary')).counts) == {'/file.py': 1, '/src/a.py': 1}


async def test_grep_can_search_a_single_file(backend: LocalBackend) -> None:
    await backend.write_bytes('/.hidden', b'x\ncanary\n')
    found = await backend.grep('canary', '/.hidden', limit=1)
    assert [(match.line_number, match.line) for match in found.matches] == [(2, 'canary')]


async def test_search_refuses_bad_patterns_and_paths(backend: LocalBackend) -> None:
    await backend.write_bytes('/f', b'')
    with pytest.raises(InvalidPatternError):
        await backend.glob('[')
    with pytest.raises(InvalidPatternError):
        await backend.grep('(')
    for search in (backend.glob, backend.grep):
        with pytest.raises(FileNotFoundError, match='/no'):
            await search('x', '/no')
    with pytest.raises(NotADirectoryError, match='/f'):
        await backend.glob('*', '/f')


async def test_link_to_a_file_too_large_to_search_is_reported(backend: LocalBackend, tmp_path: Path) -> None:
    with (tmp_path / 'big').open('wb') as file:
        file.truncate(70_000_000)
    (tmp_path / 'link').symlink_to('big')
    problems = (await backend.grep('x')).problems
    assert [problem.path for problem in problems] == ['/big', '/link']
    assert all('70,000,000 bytes' in problem.reason for problem in problems)


async def test_unreadable_directory_or_file_does_not_hide_others(unprivileged: Path) -> None:
    for name in ('a', 'closed', 'z'):
        (unprivileged / name).mkdir()
        (unprivileged / name / 'f').write_text('canary')
    (unprivileged / 'closed').chmod(0)
    (unprivileged / 'z' / 'closed').write_text('canary')
    (unprivileged / 'z' / 'closed').chmod(0)
    backend = LocalBackend(unprivileged)
    found = await backend.grep('canary')
    listed = await backend.glob('**/f')
    assert (tuple(found.counts), listed.paths) == (('/a/f', '/z/f'), ('/a/f', '/z/f'))
    assert [problem.path for problem in found.problems] == ['/closed', '/z/closed']
    assert [problem.path for problem in listed.problems] == ['/closed']
