"""Mounts: which backend a path belongs to, what is hidden, and that search and snapshots cross them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from pydantic_deep_backends import (
    BackendProtocol,
    BackendRef,
    Command,
    CommandResult,
    CompositeBackend,
    FileChangedError,
    FileEntry,
    FileEntryLike,
    FileVersion,
    GlobResult,
    GrepResult,
    InvalidPathError,
    InvalidPatternError,
    LocalBackend,
    MissingBlobError,
    OutsideRootError,
    SearchProblem,
    StateBackend,
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsSearch,
    SupportsSnapshots,
    Tree,
    TreeDiff,
    WrapperBackend,
    digest_of,
)

pytestmark = pytest.mark.anyio


class Plain(WrapperBackend):
    """The members of `BackendProtocol` and nothing else, with a ref and a working directory to choose."""

    capabilities = ()

    def __init__(self, files: Mapping[str, bytes | str] | None = None, *, ref: object = None) -> None:
        super().__init__(StateBackend(files))
        self._ref = ref
        self.lists = 0

    @property
    def ref(self) -> object:
        return self._ref

    async def working_dir(self) -> str:
        return '/'

    async def list_dir(self, path: str) -> Sequence[FileEntryLike]:
        self.lists += 1
        return await super().list_dir(path)


class WithCommands(Plain):
    """Runs commands, or says so."""

    async def run(
        self,
        command: Command,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        return CommandResult(exit_code=0, stdout=str(command), stderr='')


class CountingState(StateBackend):
    """Counts the searches of its own, and can report a problem."""

    searches = 0

    async def glob(self, pattern: str, path: str = '/') -> GlobResult:
        self.searches += 1
        found = await super().glob(pattern, path)
        return GlobResult(paths=found.paths, problems=(SearchProblem(path='/broken', reason='why not'),))

    async def grep(self, pattern: str, path: str = '/', *, glob: str | None = None, limit: int = 1000) -> GrepResult:
        self.searches += 1
        return await super().grep(pattern, path, glob=glob, limit=limit)


def capabilities_of(backend: BackendProtocol) -> list[str]:
    known = (SupportsCommands, SupportsSearch, SupportsCompareAndSwap, SupportsSnapshots)
    return [protocol.__name__ for protocol in known if isinstance(backend, protocol)]


def capturing(backend: CompositeBackend) -> SupportsSnapshots:
    assert isinstance(backend, SupportsSnapshots)
    return cast('SupportsSnapshots', backend)


async def names_in(backend: BackendProtocol, path: str) -> list[str]:
    return [entry.name for entry in await backend.list_dir(path)]


# Mount points


@pytest.mark.parametrize('path', ['', 'mem', '../mem', '/mem/../x', '//mem', '/~'])
def test_a_malformed_mount_point_is_refused(path: str) -> None:
    with pytest.raises(InvalidPathError):
        CompositeBackend(StateBackend(), {path: StateBackend()})


def test_the_root_is_no_mount_point() -> None:
    with pytest.raises(ValueError, match='Pass that backend as `default`'):
        CompositeBackend(StateBackend(), {'/': StateBackend()})


@pytest.mark.parametrize('other', ['/m\u00e9m/', '/me\u0301m', '/./m\u00e9m'])
def test_one_mount_point_cannot_be_mounted_twice(other: str) -> None:
    with pytest.raises(ValueError, match='mounted twice'):
        CompositeBackend(StateBackend(), {'/m\u00e9m': StateBackend(), other: StateBackend()})


async def test_the_longest_prefix_by_components_decides() -> None:
    default, mem, deep = StateBackend(), StateBackend(), StateBackend()
    backend = CompositeBackend(default, {'/mem': mem, '/mem/a/b': deep})
    for path in ('/x', '/memory', '/mem/x', '/mem/a/x', '/mem/a/b/x', '/mem/a/bc'):
        await backend.write_bytes(path, path.encode())
    assert list(await default.snapshot()) == ['/memory', '/x']
    assert list(await mem.snapshot()) == ['/a/bc', '/a/x', '/x']
    assert list(await deep.snapshot()) == ['/x']


async def test_a_mount_point_is_found_in_every_spelling_of_its_name() -> None:
    mem = StateBackend()
    backend = CompositeBackend(StateBackend(), {'/m\u00e9m': mem})
    await backend.write_bytes('/me\u0301m/e\u0301', b'x')
    assert list(await mem.snapshot()) == ['/e\u0301']
    assert await names_in(backend, '/') == ['m\u00e9m']
    assert (await backend.stat('/me\u0301m/e\u0301')).path == '/m\u00e9m/e\u0301'


async def test_a_mount_point_is_listed_in_its_parent() -> None:
    backend = CompositeBackend(StateBackend({'/a': '', '/z/y': ''}), {'/m': StateBackend(), '/z/b/c': StateBackend()})
    assert await backend.list_dir('/') == [
        FileEntry(name='a', path='/a', is_dir=False, size=0),
        FileEntry(name='m', path='/m', is_dir=True, size=None),
        FileEntry(name='z', path='/z', is_dir=True, size=None),
    ]
    assert await names_in(backend, '/z') == ['b', 'y']
    assert await names_in(backend, '/z/b') == ['c']
    assert await names_in(backend, '/z/b/c') == []


@pytest.mark.parametrize('path', ['/m', '/m/n', '/m/n/o'])
async def test_mount_points_and_directories_above_are_there_and_stay(path: str) -> None:
    backend = CompositeBackend(StateBackend(), {'/m/n/o': StateBackend({'/keep': ''})})
    assert await backend.exists(path)
    assert await backend.stat(path) == FileEntry(name=path[-1], path=path, is_dir=True, size=None)
    await backend.make_dir(path)
    with pytest.raises(ValueError, match='Remove what is in it'):
        await backend.remove(path)
    with pytest.raises(IsADirectoryError):
        await backend.write_bytes(path, b'')
    with pytest.raises(IsADirectoryError):
        await backend.read_bytes(path)
    assert await backend.exists('/m/n/o/keep')


async def test_what_a_mount_hides_is_left_alone() -> None:
    default = StateBackend({'/mem/secret': '1', '/up': 'a file', '/mem/deep/x': '2'})
    backend = CompositeBackend(default, {'/mem': StateBackend({'/seen': ''}), '/up/on': StateBackend()})
    assert await names_in(backend, '/mem') == ['seen']
    assert await names_in(backend, '/up') == ['on']
    assert not await backend.exists('/mem/secret')
    assert (await backend.stat('/up')).is_dir
    assert await default.read_bytes('/mem/secret') == b'1'


async def test_what_is_neither_mounted_nor_there_cannot_be_listed() -> None:
    backend = CompositeBackend(StateBackend({'/file': ''}), {'/m': StateBackend({'/file': ''})})
    for path in ('/none', '/m/none'):
        with pytest.raises(FileNotFoundError):
            await backend.list_dir(path)
    for path in ('/file', '/m/file'):
        with pytest.raises(NotADirectoryError):
            await backend.list_dir(path)


# Errors show virtual paths


async def test_an_error_of_the_system_shows_the_virtual_path() -> None:
    backend = CompositeBackend(StateBackend(), {'/m': StateBackend({'/d/file': ''})})
    with pytest.raises(FileNotFoundError, match="'/m/d/none'") as caught:
        await backend.read_bytes('/m/d/none')
    assert caught.value.filename == '/m/d/none'
    with pytest.raises(FileNotFoundError) as plain:
        await backend.read_bytes('/none')
    assert plain.value.filename == '/none'


async def test_an_error_of_ours_shows_the_virtual_path() -> None:
    backend = CompositeBackend(StateBackend(), {'/m': StateBackend({'/file': '1'})})
    assert isinstance(backend, SupportsCompareAndSwap)
    with pytest.raises(FileChangedError, match="'/m/file' changed") as caught:
        await backend.compare_and_swap('/m/file', b'2', expected=None)
    assert caught.value.path == '/m/file'


async def test_a_message_with_the_path_shows_the_virtual_one() -> None:
    backend = CompositeBackend(StateBackend(), {'/m': Plain({'/file': '1'})})
    with pytest.raises(NotADirectoryError, match="'/m/file' is a file"):
        await backend.glob('*', '/m/file')


async def test_a_name_that_the_mount_refuses_is_refused() -> None:
    backend = CompositeBackend(StateBackend(), {'/m': StateBackend()})
    with pytest.raises(InvalidPathError, match='/m/~a') as caught:
        await backend.write_bytes('/m/~a', b'')
    assert caught.value.path == '/m/~a'
    with pytest.raises(InvalidPathError, match='/m/~' + 'a' * 100):
        await backend.write_bytes('/m/~' + 'a' * 300, b'')


class Careless(Plain):
    """Raises errors that name another file."""

    async def read_bytes(self, path: str) -> bytes:
        raise PermissionError(13, 'Permission denied', '/srv/elsewhere')


async def test_a_path_that_is_not_the_one_asked_for_is_left_as_it_is() -> None:
    backend = CompositeBackend(StateBackend(), {'/m': Careless()})
    with pytest.raises(PermissionError) as caught:
        await backend.read_bytes('/m/file')
    assert caught.value.filename == '/srv/elsewhere'


# Capabilities


def test_capabilities_are_those_of_the_parts() -> None:
    assert capabilities_of(CompositeBackend(StateBackend(), {'/m': StateBackend()})) == [
        'SupportsSearch',
        'SupportsCompareAndSwap',
        'SupportsSnapshots',
    ]
    assert capabilities_of(CompositeBackend(StateBackend(), {'/m': Plain()})) == ['SupportsSearch']
    assert capabilities_of(CompositeBackend(Plain(), {'/m': StateBackend()})) == ['SupportsSearch']
    assert capabilities_of(CompositeBackend(WithCommands(), {'/m': Plain()})) == ['SupportsCommands', 'SupportsSearch']
    assert capabilities_of(CompositeBackend(Plain(), {'/m': WithCommands()})) == ['SupportsSearch']


async def test_commands_are_those_of_the_default() -> None:
    backend = CompositeBackend(WithCommands(), {})
    assert isinstance(backend, SupportsCommands)
    assert (await backend.run(['a'])).stdout == "['a']"


def test_the_identity_is_that_of_the_parts() -> None:
    default, mem = StateBackend(), StateBackend()
    ref = CompositeBackend(default, {'/m': mem}).ref
    assert ref == CompositeBackend(default, {'/m/': mem}).ref
    assert ref != CompositeBackend(default, {'/n': mem}).ref
    assert isinstance(ref, BackendRef)
    assert json.loads(ref.id) == {'/': ['state', default.ref.id], '/m': ['state', mem.ref.id]}


def test_an_identity_of_another_kind_is_kept_and_a_missing_one_too() -> None:
    ref = CompositeBackend(Plain(ref=('provider', 1)), {}).ref
    assert ref is not None
    assert json.loads(ref.id) == {'/': "('provider', 1)"}
    assert CompositeBackend(StateBackend(), {'/m': Plain()}).ref is None


def test_the_representation_shows_the_parts() -> None:
    backend = CompositeBackend(StateBackend(), {'/m': StateBackend()})
    empty = '<StateBackend of 0 files, 0 bytes>'
    assert repr(backend) == f"CompositeBackend({empty}, {{'/m': {empty}}})"


# Links


async def test_a_link_is_resolved_in_its_part(tmp_path: Path) -> None:
    (tmp_path / 'real').mkdir()
    (tmp_path / 'link').symlink_to('real')
    (tmp_path / 'other').symlink_to('hidden')
    backend = CompositeBackend(LocalBackend(tmp_path), {'/m': LocalBackend(tmp_path), '/hidden': StateBackend()})
    assert await backend.realpath('/link/x') == '/real/x'
    assert await backend.realpath('/m/link/x') == '/m/real/x'
    assert await backend.realpath('/m') == '/m'
    assert await backend.realpath('/other/x') == '/other/x'


# Search

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
    """Return `FILES` in a composite with these mounts, and files that these hide in the default."""

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
async def test_search_finds_the_same_however_files_are_mounted(
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


async def test_a_file_on_the_way_to_a_mount_is_hidden_from_search() -> None:
    default = StateBackend({'/m': 'x', '/a': 'x'})
    backend = CompositeBackend(default, {'/m/n': StateBackend({'/b': 'x'})})
    assert (await backend.glob('**')).paths == ('/a', '/m/n/b')


async def test_a_link_outside_at_a_mount_point_is_hidden_from_search(tmp_path: Path) -> None:
    (tmp_path / 'm').symlink_to('/')
    (tmp_path / 'a').write_text('x')
    backend = CompositeBackend(LocalBackend(tmp_path), {'/m': StateBackend({'/b': 'x'})})
    assert (await backend.glob('**')).paths == ('/a', '/m/b')
    assert (await backend.grep('x')).counts == {'/a': 1, '/m/b': 1}


async def test_a_search_below_a_directory_that_only_mounts_make() -> None:
    default = CountingState({'/a': 'x'})
    backend = CompositeBackend(default, {'/up/m': StateBackend({'/b': 'x'})})
    assert (await backend.glob('**', '/up')).paths == ('/up/m/b',)
    assert (await backend.grep('x', '/up')).counts == {'/up/m/b': 1}
    assert default.searches == 0


async def test_files_under_another_spelling_of_a_mount_point_are_hidden_from_search() -> None:
    default = StateBackend({'/me\u0301m/old': 'x', '/a': 'x'})
    backend = CompositeBackend(default, {'/m\u00e9m': StateBackend({'/new': 'x'})})
    assert (await backend.glob('**')).paths == ('/a', '/m\u00e9m/new')
    assert (await backend.grep('x')).counts == {'/a': 1, '/m\u00e9m/new': 1}
    assert [match.path for match in (await backend.grep('x')).matches] == ['/a', '/m\u00e9m/new']


async def test_a_part_searches_by_itself_where_it_can() -> None:
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
async def test_a_search_that_asks_no_part_refuses_what_every_search_refuses(pattern: str, limit: int) -> None:
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
async def test_alternatives_with_directories_find_in_mounts_what_they_find_without(pattern: str) -> None:
    """Each mount is asked for what the glob means there, and nothing is listed from outside."""
    files = {'/a.py': 'x', '/m/b.py': 'x', '/m/n/c.py': 'x', '/m/n/o/d.py': 'x', '/d/e.py': 'x'}
    mem, n = Unlisted({'/b.py': 'x'}), Unlisted({'/c.py': 'x', '/o/d.py': 'x'})
    backend = CompositeBackend(Unlisted({'/a.py': 'x', '/d/e.py': 'x'}), {'/m': mem, '/m/n': n})
    whole = StateBackend(files)
    assert (await backend.glob(pattern)).paths
    assert await backend.glob(pattern) == await whole.glob(pattern)
    assert await backend.grep('x', glob=pattern) == await whole.grep('x', glob=pattern)


class Unlisted(StateBackend):
    """Is searched by its own search, or not at all."""

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        raise AssertionError(path)


@pytest.mark.parametrize('pattern', ['{m/,}' * 8 + '*.py'])
async def test_a_glob_that_a_mount_cannot_be_asked_for_is_walked(pattern: str) -> None:
    """It stands for 256 globs, more than are worth asking for."""
    files = {'/a.py': 'x', '/m/b.py': 'x', '/m/n/c.py': 'x', '/m/n/o/d.py': 'x', '/d/e.py': 'x'}
    mem = CountingState({'/b.py': 'x'})
    mounts = {'/m': mem, '/m/n': StateBackend({'/c.py': 'x', '/o/d.py': 'x'})}
    backend = CompositeBackend(StateBackend({'/a.py': 'x', '/d/e.py': 'x'}), mounts)
    whole = StateBackend(files)
    assert await backend.glob(pattern) == await whole.glob(pattern)
    assert await backend.grep('x', glob=pattern) == await whole.grep('x', glob=pattern)
    assert mem.searches == 0


async def test_files_of_a_mount_that_a_mount_in_it_hides_are_not_found() -> None:
    mem = CountingState({'/b': 'x', '/n/hidden': 'x'})
    backend = CompositeBackend(StateBackend({'/a': 'x'}), {'/m': mem, '/m/n': StateBackend({'/c': 'x'})})
    assert await backend.glob('**') == GlobResult(paths=('/a', '/m/b', '/m/n/c'))
    assert (await backend.grep('x')).counts == {'/a': 1, '/m/b': 1, '/m/n/c': 1}
    assert mem.searches == 0


class Broken(StateBackend):
    """Cannot be searched."""

    async def glob(self, pattern: str, path: str = '/') -> GlobResult:
        raise PermissionError(13, 'Permission denied', path)


async def test_a_mount_that_cannot_be_searched_does_not_end_a_search() -> None:
    backend = CompositeBackend(StateBackend({'/a': 'x'}), {'/m': Broken()})
    problem = SearchProblem(path='/m', reason='Permission denied')
    assert await backend.glob('**') == GlobResult(paths=('/a',), problems=(problem,))
    with pytest.raises(PermissionError, match="'/m'"):
        await backend.glob('**', '/m')


async def test_a_file_whose_path_is_too_long_where_it_is_mounted_is_a_problem() -> None:
    long = '/' + 'd/' * 2045 + 'f'
    backend = CompositeBackend(StateBackend({'/a': 'x'}), {'/mounted/here': StateBackend({long: 'x', '/b': 'x'})})
    reason = 'not a valid path: it is 4,105 bytes long. At most 4,096 are allowed.'
    globbed, grepped = await backend.glob('**'), await backend.grep('x')
    assert globbed.paths == tuple(grepped.counts) == ('/a', '/mounted/here/b')
    assert [match.path for match in grepped.matches] == ['/a', '/mounted/here/b']
    assert grepped.problems == globbed.problems == (SearchProblem(path=f'/mounted/here{long}', reason=reason),)


async def test_a_name_that_a_mount_refuses_does_not_end_a_search(tmp_path: Path) -> None:
    (tmp_path / '~a').write_text('x')
    (tmp_path / '~d').mkdir()
    (tmp_path / 'b').write_text('x')
    backend = CompositeBackend(Plain({'/c': 'x'}), {'/m': LocalBackend(tmp_path)})
    many = '{**,m/' + '{~d/,b/}' * 8 + 'x}'
    for glob in (None, many):  # the mount searches by itself, and is walked
        result = await backend.grep('x', glob=glob)
        assert result.counts == {'/c': 1, '/m/b': 1}
        assert [problem.path for problem in result.problems] == ['/m/~a', '/m/~d']
        assert all('not a valid path where it is mounted' in problem.reason for problem in result.problems)


# Snapshots


def reader(*contents: bytes):
    async def read_blob(digest: str) -> bytes:
        return {digest_of(data): data for data in contents}[digest]

    return read_blob


def version_of(data: bytes) -> FileVersion:
    return FileVersion(digest=digest_of(data), size=len(data))


async def test_a_snapshot_has_every_part_under_its_prefix() -> None:
    default = StateBackend({'/a': '1', '/m/hidden': '2', '/up': 'hidden too'})
    backend = CompositeBackend(
        default, {'/m': StateBackend({'/b': '3'}), '/m/deep': StateBackend({'/c': '4'}), '/up/on': StateBackend()}
    )
    tree = await capturing(backend).snapshot()
    assert tree == Tree.of({'/a': version_of(b'1'), '/m/b': version_of(b'3'), '/m/deep/c': version_of(b'4')})


async def test_a_restore_gives_each_part_its_share_and_keeps_what_is_hidden() -> None:
    default = StateBackend({'/a': '1', '/m/hidden': '2', '/up': 'file', '/p/q': 'file'})
    mem, deep = StateBackend({'/b': '3', '/deep/hidden': '5'}), StateBackend({'/c': '4'})
    mounts = {'/m': mem, '/m/deep': deep, '/up/on/top': StateBackend({'/t': ''}), '/p/q': StateBackend()}
    backend = CompositeBackend(default, mounts)
    before = await capturing(backend).snapshot()
    for path in ('/a', '/m/b', '/m/deep/c', '/m/new', '/x/y'):
        await backend.write_bytes(path, b'changed')
    assert await capturing(backend).changes(before) == TreeDiff(
        added=('/m/new', '/x/y'), changed=('/a', '/m/b', '/m/deep/c')
    )
    await capturing(backend).restore(before)
    assert await capturing(backend).snapshot() == before
    assert list(await mem.snapshot()) == ['/b', '/deep/hidden']
    assert list(await default.snapshot()) == ['/a', '/m/hidden', '/p/q', '/up']


async def test_a_wanted_directory_wins_over_a_hidden_file() -> None:
    default = StateBackend({'/up': 'hidden'})
    backend = CompositeBackend(default, {'/up/on': StateBackend()})
    await capturing(backend).restore(Tree.of({'/up/x': version_of(b'1')}), reader(b'1'))
    assert list(await default.snapshot()) == ['/up/x']


async def test_contents_may_come_from_another_part(tmp_path: Path) -> None:
    backend = CompositeBackend(StateBackend({'/a': 'text'}), {'/m': LocalBackend(tmp_path)})
    await capturing(backend).restore(Tree.of({'/m/b': version_of(b'text')}))
    assert (tmp_path / 'b').read_bytes() == b'text'
    assert not await backend.exists('/a')


async def test_contents_of_a_tree_in_memory_reach_a_directory(tmp_path: Path) -> None:
    tree = await StateBackend({'/m/b': 'text'}).snapshot()
    backend = CompositeBackend(StateBackend(), {'/m': LocalBackend(tmp_path)})
    await capturing(backend).restore(tree)
    assert (tmp_path / 'b').read_bytes() == b'text'


class Vanishing(StateBackend):
    """Loses its files between the snapshot and the reading."""

    async def read_bytes(self, path: str) -> bytes:
        raise FileNotFoundError(2, 'No such file or directory', path)


async def test_contents_of_a_file_that_vanishes_come_from_elsewhere() -> None:
    backend = CompositeBackend(Vanishing({'/a': 'text'}), {'/m': StateBackend()})
    wanted = Tree.of({'/m/b': version_of(b'text')})
    with pytest.raises(MissingBlobError):
        await capturing(backend).restore(wanted)
    await capturing(backend).restore(wanted, reader(b'text'))
    assert await backend.read_bytes('/m/b') == b'text'


class Overwritten(StateBackend):
    """Has other contents by the time that they are read."""

    async def read_bytes(self, path: str) -> bytes:
        return b'somebody else wrote this'


async def test_contents_of_a_file_that_changes_come_from_elsewhere() -> None:
    backend = CompositeBackend(Overwritten({'/a': 'text'}), {'/m': StateBackend()})
    await capturing(backend).restore(Tree.of({'/m/b': version_of(b'text')}), reader(b'text'))
    assert await backend.read_bytes('/m/b') == b'text'


async def test_nothing_changes_in_any_part_where_contents_are_missing() -> None:
    backend = CompositeBackend(StateBackend({'/a': '1'}), {'/m': StateBackend({'/b': '2'})})
    before = await capturing(backend).snapshot()
    with pytest.raises(MissingBlobError) as caught:
        await capturing(backend).restore(
            Tree.of({'/new': version_of(b'have'), '/m/x': version_of(b'lack')}), reader(b'have')
        )
    assert caught.value.paths == ('/m/x',)
    assert await capturing(backend).snapshot() == before


@pytest.mark.parametrize('path', ['/m', '/m/n'])
async def test_a_tree_with_a_file_at_a_mount_point_is_refused(path: str) -> None:
    backend = CompositeBackend(StateBackend({'/a': '1'}), {'/m/n': StateBackend()})
    with pytest.raises(ValueError, match='where a backend is mounted'):
        await capturing(backend).restore(Tree.of({path: version_of(b'')}), reader(b''))
    assert await backend.exists('/a')


# Directories that do not appear at the root


def shown_elsewhere(root: Path) -> LocalBackend:
    """Stands for `SandboxBackend` too: a directory whose commands see it elsewhere than at the root."""
    return LocalBackend(root, allow_commands=True)


@pytest.mark.parametrize('mounts', [{}, {'/mnt': StateBackend({'/x': 'mounted'})}])
async def test_there_are_no_snapshots_of_what_appears_elsewhere(
    tmp_path: Path, mounts: dict[str, BackendProtocol]
) -> None:
    (tmp_path / 'mnt').mkdir()
    (tmp_path / 'mnt/x').write_text('own')
    default = shown_elsewhere(tmp_path)
    backend = CompositeBackend(default, mounts)
    assert not isinstance(backend, SupportsSnapshots)
    assert not isinstance(CompositeBackend(StateBackend(), {'/box': default}), SupportsSnapshots)
    assert isinstance(CompositeBackend(LocalBackend(tmp_path), mounts), SupportsSnapshots)
    assert isinstance(backend, SupportsCommands)
    assert await backend.read_bytes(f'{tmp_path}/mnt/x') == b'own'
    assert (await backend.run(['cat', 'mnt/x'])).stdout == 'own'
    if mounts:
        assert await backend.read_bytes('/mnt/x') == b'mounted'
    assert sorted(await default.snapshot()) == ['/mnt/x']


def test_a_mount_that_hides_where_commands_run_is_refused(tmp_path: Path) -> None:
    for place in (str(tmp_path), str(tmp_path.parent)):
        with pytest.raises(ValueError, match='would hide all of them from everything except commands'):
            CompositeBackend(shown_elsewhere(tmp_path), {place: StateBackend()})
    CompositeBackend(shown_elsewhere(tmp_path), {f'{tmp_path}/below': StateBackend()})


async def test_an_error_about_a_path_outside_keeps_where_the_root_is(tmp_path: Path) -> None:
    with pytest.raises(OutsideRootError) as caught:
        await CompositeBackend(shown_elsewhere(tmp_path), {}).write_bytes('/elsewhere', b'')
    assert (caught.value.path, caught.value.root) == ('/elsewhere', str(tmp_path))
    with pytest.raises(OutsideRootError) as caught:
        await CompositeBackend(StateBackend(), {'/box': shown_elsewhere(tmp_path)}).write_bytes('/box/x', b'')
    assert (caught.value.path, caught.value.root) == ('/box/x', f'/box{tmp_path}')
    assert 'is outside of' in str(caught.value)
    (tmp_path / 'link').symlink_to('/etc')
    with pytest.raises(OutsideRootError) as caught:
        await CompositeBackend(StateBackend(), {'/box': LocalBackend(tmp_path)}).read_bytes('/box/link/x')
    assert (caught.value.path, caught.value.root) == ('/box/link/x', None)
