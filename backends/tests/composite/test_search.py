"""Search over mounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pydantic_deep_backends import (
    CompositeBackend,
    FileEntry,
    GlobResult,
    GrepResult,
    InvalidPatternError,
    LocalBackend,
    SearchProblem,
    StateBackend,
)

from .conftest import Plain

pytestmark = pytest.mark.anyio


class CountingState(StateBackend):
    """Counts its own searches. Reports a problem with each glob."""

    searches = 0

    async def glob(self, pattern: str, path: str = '/') -> GlobResult:
        self.searches += 1
        found = await super().glob(pattern, path)
        return GlobResult(paths=found.paths, problems=(SearchProblem(path='/broken', reason='why not'),))

    async def grep(self, pattern: str, path: str = '/', *, glob: str | None = None, limit: int = 1000) -> GrepResult:
        self.searches += 1
        return await super().grep(pattern, path, glob=glob, limit=limit)


FILES = {
    '/a.py': 'x\n',
    '/src/b.py': 'x\nx\n',
    '/src/pkg/c.py': 'x\n',
    '/src/pkg/.hidden/d.py': 'x\n',
    '/src/pkg/deep/e.txt': 'x\n',
    '/tail/f.py': 'x\n',
    '/.env': 'x\n',
}


PATTERNS = (
    '**',
    '**/*.py',
    'src/**',
    'src/pkg/*',
    '*',
    '.env',
    'src/pkg/.hidden/*',
    'none/**',
    '{a.py,src/pkg/deep/*}',
)


LAYOUTS: tuple[tuple[str, ...], ...] = (
    (),
    ('/src',),
    ('/src/pkg',),
    ('/src', '/src/pkg/deep'),
    ('/src/pkg', '/tail'),
    ('/new/empty',),
)


def spread(default: type[StateBackend | Plain], mounts: Sequence[str], hidden: Mapping[str, str]) -> CompositeBackend:
    """Return a composite of `FILES` with these mounts, plus default files that the mounts hide."""

    def owner_of(path: str) -> str:
        return max((mount for mount in mounts if path.startswith(f'{mount}/')), key=len, default='')

    parts = {
        mount: {path[len(mount) :]: data for path, data in FILES.items() if owner_of(path) == mount}
        for mount in ('', *mounts)
    }
    return CompositeBackend(default({**parts.pop(''), **hidden}), {m: StateBackend(f) for m, f in parts.items()})


@pytest.mark.parametrize('default', [StateBackend, Plain])
@pytest.mark.parametrize('mounts', LAYOUTS, ids=str)
@pytest.mark.parametrize('is_hiding', [False, True])
async def test_search_results_do_not_depend_on_mounts(
    default: type[StateBackend | Plain], mounts: tuple[str, ...], is_hiding: bool
) -> None:
    hidden = {f'{mount}/hidden.py': 'x\n' for mount in mounts} if is_hiding else {}
    backend, whole = spread(default, mounts, hidden), StateBackend(FILES)
    for path in ('/', '/src', '/src/pkg', '/tail'):
        for pattern in PATTERNS:
            assert await backend.glob(pattern, path) == await whole.glob(pattern, path)
            for limit in (1000, 3, 0):
                found = await backend.grep('x', path, glob=pattern, limit=limit)
                assert found == await whole.grep('x', path, glob=pattern, limit=limit)
    assert await backend.grep('x', '/src/b.py') == await whole.grep('x', '/src/b.py')


async def test_file_above_a_mount_is_hidden_from_search() -> None:
    default = StateBackend({'/m': 'x', '/a': 'x'})
    backend = CompositeBackend(default, {'/m/n': StateBackend({'/b': 'x'})})
    assert (await backend.glob('**')).paths == ('/a', '/m/n/b')


async def test_outside_link_at_a_mount_point_is_hidden_from_search(tmp_path: Path) -> None:
    (tmp_path / 'm').symlink_to('/')
    (tmp_path / 'a').write_text('x')
    backend = CompositeBackend(LocalBackend(tmp_path), {'/m': StateBackend({'/b': 'x'})})
    assert (await backend.glob('**')).paths == ('/a', '/m/b')
    assert (await backend.grep('x')).counts == {'/a': 1, '/m/b': 1}


async def test_search_below_a_virtual_directory_searches_only_mounts() -> None:
    default = CountingState({'/a': 'x'})
    backend = CompositeBackend(default, {'/up/m': StateBackend({'/b': 'x'})})
    assert (await backend.glob('**', '/up')).paths == ('/up/m/b',)
    assert (await backend.grep('x', '/up')).counts == {'/up/m/b': 1}
    assert default.searches == 0


async def test_files_below_another_spelling_of_a_mount_are_hidden_from_search() -> None:
    default = StateBackend({'/me\u0301m/old': 'x', '/a': 'x'})
    backend = CompositeBackend(default, {'/m\u00e9m': StateBackend({'/new': 'x'})})
    assert (await backend.glob('**')).paths == ('/a', '/m\u00e9m/new')
    assert (await backend.grep('x')).counts == {'/a': 1, '/m\u00e9m/new': 1}
    assert [match.path for match in (await backend.grep('x')).matches] == ['/a', '/m\u00e9m/new']


async def test_parts_use_their_own_search() -> None:
    default, mem = CountingState({'/a': 'x', '/d/b': 'x'}), CountingState({'/c': 'x'})
    backend = CompositeBackend(default, {'/m': mem})
    problem = SearchProblem(path='/broken', reason='why not')
    assert await backend.glob('**', '/d') == GlobResult(paths=('/d/b',), problems=(problem,))
    assert (default.searches, mem.searches) == (1, 0)
    in_mount = await backend.glob('**', '/m')
    assert in_mount == GlobResult(paths=('/m/c',), problems=(SearchProblem(path='/m/broken', reason='why not'),))
    assert (default.searches, mem.searches) == (1, 1)
    in_all = await backend.glob('**')
    assert in_all == GlobResult(paths=('/a', '/d/b', '/m/c'), problems=(problem, *in_mount.problems))
    assert (default.searches, mem.searches) == (2, 2)
    assert (await backend.grep('x', glob='m/*')).counts == {'/m/c': 1}
    assert (default.searches, mem.searches) == (3, 3)
    assert (await backend.glob('d/*')).paths == ('/d/b',)
    assert (default.searches, mem.searches) == (4, 3)


@pytest.mark.parametrize(('pattern', 'limit'), [('(', 10), ('x', -1)])
async def test_search_validates_arguments_without_searching_any_part(pattern: str, limit: int) -> None:
    backend = CompositeBackend(StateBackend(), {'/up/m': StateBackend({'/b': 'x'})})
    with pytest.raises(ValueError, match=r'not a valid pattern|limit'):
        await backend.grep(pattern, '/up', glob='a', limit=limit)
    with pytest.raises(InvalidPatternError):
        await backend.grep('x', '/up', glob='[')
    with pytest.raises(InvalidPatternError):
        await backend.glob('[', '/up')


@pytest.mark.parametrize(
    'pattern',
    [
        '{m/,}*.py',
        '{m/**,a}/*.py',
        '{m,d}{/,/n/}*.py',
        'm{/n,}/**/*.py',
        '{**,x}/{[b-d].py,o/**}',
        '{{m/n,d}/,}{o/d,[ae]}.py',
        '{d/,m/}**',
    ],
)
async def test_alternatives_across_mounts_find_the_same_as_without_mounts(pattern: str) -> None:
    """Each mount receives its share of the glob. Nothing is listed from outside."""
    files = {'/a.py': 'x', '/m/b.py': 'x', '/m/n/c.py': 'x', '/m/n/o/d.py': 'x', '/d/e.py': 'x'}
    mem, n = Unlisted({'/b.py': 'x'}), Unlisted({'/c.py': 'x', '/o/d.py': 'x'})
    backend = CompositeBackend(Unlisted({'/a.py': 'x', '/d/e.py': 'x'}), {'/m': mem, '/m/n': n})
    whole = StateBackend(files)
    assert (await backend.glob(pattern)).paths
    assert await backend.glob(pattern) == await whole.glob(pattern)
    assert await backend.grep('x', glob=pattern) == await whole.grep('x', glob=pattern)


class Unlisted(StateBackend):
    """Supports only its own search, not listing."""

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        raise AssertionError(path)


@pytest.mark.parametrize('pattern', ['{m/,}' * 8 + '*.py'])
async def test_glob_that_expands_too_far_is_answered_by_a_walk(pattern: str) -> None:
    """The pattern expands to 256 globs, more than the limit."""
    files = {'/a.py': 'x', '/m/b.py': 'x', '/m/n/c.py': 'x', '/m/n/o/d.py': 'x', '/d/e.py': 'x'}
    mem = CountingState({'/b.py': 'x'})
    mounts = {'/m': mem, '/m/n': StateBackend({'/c.py': 'x', '/o/d.py': 'x'})}
    backend = CompositeBackend(StateBackend({'/a.py': 'x', '/d/e.py': 'x'}), mounts)
    whole = StateBackend(files)
    assert await backend.glob(pattern) == await whole.glob(pattern)
    assert await backend.grep('x', glob=pattern) == await whole.grep('x', glob=pattern)
    assert mem.searches == 0


async def test_files_hidden_by_a_nested_mount_are_not_found() -> None:
    mem = CountingState({'/b': 'x', '/n/hidden': 'x'})
    backend = CompositeBackend(StateBackend({'/a': 'x'}), {'/m': mem, '/m/n': StateBackend({'/c': 'x'})})
    assert await backend.glob('**') == GlobResult(paths=('/a', '/m/b', '/m/n/c'))
    assert (await backend.grep('x')).counts == {'/a': 1, '/m/b': 1, '/m/n/c': 1}
    assert mem.searches == 0


class Broken(StateBackend):
    """Raises an error on every glob."""

    async def glob(self, pattern: str, path: str = '/') -> GlobResult:
        raise PermissionError(13, 'Permission denied', path)


async def test_unsearchable_mount_does_not_end_a_search() -> None:
    backend = CompositeBackend(StateBackend({'/a': 'x'}), {'/m': Broken()})
    problem = SearchProblem(path='/m', reason='Permission denied')
    assert await backend.glob('**') == GlobResult(paths=('/a',), problems=(problem,))
    with pytest.raises(PermissionError, match="'/m'"):
        await backend.glob('**', '/m')


async def test_overlong_mounted_path_is_reported_as_a_problem() -> None:
    long = '/' + 'd/' * 2045 + 'f'
    backend = CompositeBackend(StateBackend({'/a': 'x'}), {'/mounted/here': StateBackend({long: 'x', '/b': 'x'})})
    reason = 'not a valid path: it is 4,105 bytes long. At most 4,096 are allowed.'
    globbed, grepped = await backend.glob('**'), await backend.grep('x')
    assert globbed.paths == tuple(grepped.counts) == ('/a', '/mounted/here/b')
    assert [match.path for match in grepped.matches] == ['/a', '/mounted/here/b']
    assert grepped.problems == globbed.problems == (SearchProblem(path=f'/mounted/here{long}', reason=reason),)


async def test_invalid_name_in_a_mount_does_not_end_a_search(tmp_path: Path) -> None:
    (tmp_path / '~a').write_text('x')
    (tmp_path / '~d').mkdir()
    (tmp_path / 'b').write_text('x')
    backend = CompositeBackend(Plain({'/c': 'x'}), {'/m': LocalBackend(tmp_path)})
    many = '{**,m/' + '{~d/,b/}' * 8 + 'x}'
    for glob in (None, many):  # the mount searches by itself, or is walked
        result = await backend.grep('x', glob=glob)
        assert result.counts == {'/c': 1, '/m/b': 1}
        assert [problem.path for problem in result.problems] == ['/m/~a', '/m/~d']
        assert all('not a valid path where it is mounted' in problem.reason for problem in result.problems)
