"""`LocalBackend` stays within its directory and never blocks on special files."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pydantic_deep_backends.errors import BackendUnavailableError, FileChangedError, InvalidPathError, OutsideRootError
from pydantic_deep_backends.files._confined_root import ConfinedRoot, Location, link_found
from pydantic_deep_backends.files._directories import stat_location
from pydantic_deep_backends.local import LocalBackend
from pydantic_deep_backends.snapshots import digest_of

pytestmark = pytest.mark.anyio

SECRET = b'canary outside of the root\n'

Operation = Callable[[LocalBackend, str], Awaitable[object]]


async def _swap(backend: LocalBackend, path: str) -> None:
    await backend.compare_and_swap(path, b'x', expected=digest_of(SECRET))


OPERATIONS: dict[str, Operation] = {
    'read_bytes': lambda backend, path: backend.read_bytes(path),
    'write_bytes': lambda backend, path: backend.write_bytes(path, b'x'),
    'compare_and_swap': _swap,
    'stat': lambda backend, path: backend.stat(path),
    'exists': lambda backend, path: backend.exists(path),
    'list_dir': lambda backend, path: backend.list_dir(path),
    'make_dir': lambda backend, path: backend.make_dir(path),
    'realpath': lambda backend, path: backend.realpath(path),
    'glob': lambda backend, path: backend.glob('**', path),
    'grep': lambda backend, path: backend.grep('canary', path),
}
"""Every operation that follows a link in the last component of its path."""

EVERY_OPERATION: dict[str, Operation] = {**OPERATIONS, 'remove': lambda backend, path: backend.remove(path)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / 'root'
    root.mkdir()
    return root


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    outside = tmp_path / 'outside'
    outside.mkdir()
    (outside / 'secret').write_bytes(SECRET)
    return outside


@pytest.fixture
def backend(root: Path) -> LocalBackend:
    return LocalBackend(root)


@pytest.mark.parametrize('operation', EVERY_OPERATION.values(), ids=EVERY_OPERATION)
@pytest.mark.parametrize(
    'path', ['a', '../a', '/../a', '/d/../../a', '~/a', '/~root/a', '/a\0b', '/a\nb', '/a\\b', '/C:/a', '//host/a', '']
)
async def test_a_malformed_path_is_refused_by_every_operation(
    backend: LocalBackend, root: Path, operation: Operation, path: str
) -> None:
    with pytest.raises(InvalidPathError):
        await operation(backend, path)
    assert os.listdir(root) == []


@pytest.mark.parametrize('operation', OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize('target', ['{outside}/secret', '../outside/secret', '/etc/passwd', '/proc/self/root/etc', '/'])
async def test_every_operation_refuses_a_link_outside(
    backend: LocalBackend, root: Path, outside: Path, operation: Operation, target: str
) -> None:
    (root / 'link').symlink_to(target.format(outside=outside))
    with pytest.raises(OutsideRootError, match="'/link' leads outside"):
        await operation(backend, '/link')
    assert (outside / 'secret').read_bytes() == SECRET


@pytest.mark.parametrize('operation', EVERY_OPERATION.values(), ids=EVERY_OPERATION)
@pytest.mark.parametrize('target', ['{outside}', '../outside', '.././/outside/.', 'd/../../outside'])
async def test_every_operation_refuses_a_path_through_a_link_outside(
    backend: LocalBackend, root: Path, outside: Path, operation: Operation, target: str
) -> None:
    (root / 'd').mkdir()
    (root / 'link').symlink_to(target.format(outside=outside))
    with pytest.raises(OutsideRootError, match="'/link/secret' leads outside"):
        await operation(backend, '/link/secret')
    assert (os.listdir(outside), (outside / 'secret').read_bytes()) == (['secret'], SECRET)


async def test_directory_with_the_root_as_name_prefix_is_outside(backend: LocalBackend, root: Path) -> None:
    sibling = root.with_name('root-of-somebody-else')
    sibling.mkdir()
    (root / 'link').symlink_to(sibling)
    with pytest.raises(OutsideRootError):
        await backend.list_dir('/link')


async def test_missing_path_behind_a_climbing_link_is_outside(backend: LocalBackend, root: Path) -> None:
    (root / 'link').symlink_to('missing/../../x')
    with pytest.raises(OutsideRootError):
        await backend.realpath('/link')
    with pytest.raises(FileNotFoundError):
        await backend.read_bytes('/link')


@pytest.mark.parametrize('target', ['../a/./f', '{root}/a/f', '{root}/d/../a//f', '../hop', '../d/../a/f'])
async def test_links_are_followed_inside_the_root(backend: LocalBackend, root: Path, target: str) -> None:
    (root / 'a').mkdir()
    (root / 'd').mkdir()
    (root / 'a' / 'f').write_bytes(b'here')
    (root / 'hop').symlink_to('a/../a/f')
    (root / 'd' / 'link').symlink_to(target.format(root=root))
    assert await backend.read_bytes('/d/link') == b'here'
    assert await backend.realpath('/d/link') == '/a/f'


@pytest.mark.parametrize('target', ['.', '..', '{root}', '{root}/', './/d/..'])
async def test_link_to_the_root_resolves_to_the_root(backend: LocalBackend, root: Path, target: str) -> None:
    (root / 'd').mkdir()
    link = root / 'link' if not target.startswith('..') else root / 'd' / 'link'
    link.symlink_to(target.format(root=root))
    path = '/' + str(link.relative_to(root))
    assert await backend.realpath(path) == '/'
    assert (await backend.stat(path)).is_dir
    assert 'd' in [entry.name for entry in await backend.list_dir(path)]
    with pytest.raises(IsADirectoryError):
        await backend.write_bytes(path, b'')


async def test_absolute_links_work_for_every_alias_of_the_root(root: Path) -> None:
    (root / 'f').write_bytes(b'here')
    alias = root.with_name('alias')
    alias.symlink_to(root)
    (root / 'by-alias').symlink_to(alias / 'f')
    (root / 'by-root').symlink_to(root / 'f')
    backend = LocalBackend(alias)
    assert await backend.read_bytes('/by-alias') == await backend.read_bytes('/by-root') == b'here'


async def test_realpath_keeps_missing_components_as_written(backend: LocalBackend, root: Path) -> None:
    (root / 'd').mkdir()
    (root / 'f').write_bytes(b'')
    (root / 'd' / 'up').symlink_to('../gone/x/../y')
    assert await backend.realpath('/d/up/more/z') == '/gone/y/more/z'
    assert await backend.realpath('/f/x') == '/f/x'
    assert await backend.realpath('/no/such') == '/no/such'


async def test_at_most_forty_links_are_followed(backend: LocalBackend, root: Path) -> None:
    (root / 'link0').write_bytes(b'end')
    for number in range(1, 42):
        (root / f'link{number}').symlink_to(f'link{number - 1}')
    assert await backend.read_bytes('/link40') == b'end'
    with pytest.raises(OSError, match='Too many') as caught:
        await backend.read_bytes('/link41')
    assert (caught.value.errno, caught.value.filename) == (errno.ELOOP, '/link41')


@pytest.mark.parametrize('operation', OPERATIONS.values(), ids=OPERATIONS)
async def test_cycle_of_links_raises_eloop_or_does_not_exist(
    backend: LocalBackend, root: Path, operation: Operation
) -> None:
    (root / 'one').symlink_to('two')
    (root / 'two').symlink_to('one')
    if operation is OPERATIONS['exists']:
        assert await operation(backend, '/one') is False
        return
    with pytest.raises(OSError, match='Too many') as caught:
        await operation(backend, '/one')
    assert caught.value.errno == errno.ELOOP


async def test_long_climbing_links_are_refused(backend: LocalBackend, root: Path) -> None:
    (root / 'd').mkdir()
    (root / 'climbs').symlink_to('d/../' * 500)
    with pytest.raises(OSError, match='Too many'):
        await backend.stat('/climbs')


async def test_link_with_an_overlong_name_raises_enametoolong(backend: LocalBackend, root: Path) -> None:
    (root / 'link').symlink_to('x' * 300 + '/y')
    with pytest.raises(OSError, match='too long') as caught:
        await backend.read_bytes('/link')
    assert caught.value.errno == errno.ENAMETOOLONG


async def test_write_through_a_dangling_link_creates_its_target(backend: LocalBackend, root: Path) -> None:
    (root / 'link').symlink_to('new/file')
    assert await backend.exists('/link') is False
    await backend.write_bytes('/link', b'made')
    assert (root / 'link').is_symlink()
    assert (root / 'new' / 'file').read_bytes() == b'made'


async def test_make_dir_through_a_dangling_link_creates_its_target(backend: LocalBackend, root: Path) -> None:
    (root / 'link').symlink_to('new')
    await backend.make_dir('/link/below')
    assert (root / 'new' / 'below').is_dir()


async def test_remove_deletes_the_link_and_not_its_target(backend: LocalBackend, root: Path, outside: Path) -> None:
    (root / 'to-dir').symlink_to(outside)
    (root / 'to-file').symlink_to(outside / 'secret')
    (root / 'dangling').symlink_to('nowhere')
    for name in ('to-dir', 'to-file', 'dangling'):
        await backend.remove(f'/{name}')
    assert os.listdir(root) == []
    assert (outside / 'secret').read_bytes() == SECRET


async def test_remove_follows_links_in_parent_components(backend: LocalBackend, root: Path) -> None:
    (root / 'd').mkdir()
    (root / 'd' / 'f').write_bytes(b'')
    (root / 'link').symlink_to('d')
    await backend.remove('/link/f')
    assert list((root / 'd').iterdir()) == []


async def test_removing_a_tree_does_not_follow_its_links(backend: LocalBackend, root: Path, outside: Path) -> None:
    (root / 'tree' / 'below').mkdir(parents=True)
    (root / 'tree' / 'below' / 'link').symlink_to(outside)
    await backend.remove('/tree')
    assert os.listdir(root) == []
    assert (outside / 'secret').read_bytes() == SECRET


async def test_search_and_snapshot_do_not_follow_links_outside(
    backend: LocalBackend, root: Path, outside: Path
) -> None:
    (root / 'f').write_bytes(b'canary inside\n')
    (root / 'to-dir').symlink_to(outside)
    (root / 'to-file').symlink_to(outside / 'secret')
    found = await backend.grep('canary')
    assert ([match.path for match in found.matches], found.problems) == (['/f'], ())
    assert (await backend.glob('**')).paths == ('/f',)
    assert list(await backend.snapshot()) == ['/f']


async def test_listing_includes_dangling_and_outside_links(backend: LocalBackend, root: Path, outside: Path) -> None:
    (root / 'd').mkdir()
    (root / 'f').write_bytes(b'four')
    for name, target in {'dir': 'd', 'file': 'f', 'loop': 'loop', 'none': 'nowhere', 'out': outside}.items():
        (root / name).symlink_to(target)
    assert [(entry.name, entry.is_dir, entry.size) for entry in await backend.list_dir('/')] == [
        ('d', True, None),
        ('dir', True, None),
        ('f', False, 4),
        ('file', False, 4),
        ('loop', False, None),
        ('none', False, None),
        ('out', False, None),
    ]


async def test_write_replaces_one_name_of_a_hard_link(backend: LocalBackend, root: Path, outside: Path) -> None:
    os.link(outside / 'secret', root / 'linked')
    await backend.write_bytes('/linked', b'new')
    assert (root / 'linked').read_bytes() == b'new'
    assert (outside / 'secret').read_bytes() == SECRET


def _make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)  # socket paths have a short maximum length
        server.bind(path.name)


@pytest.mark.parametrize(('make', 'kind'), [(os.mkfifo, 'a FIFO'), (_make_socket, 'a socket')])
@pytest.mark.parametrize('operation', ['read_bytes', 'write_bytes', 'compare_and_swap', 'grep'])
async def test_special_files_are_refused_without_blocking(
    backend: LocalBackend, root: Path, make: Callable[[Path], None], kind: str, operation: str
) -> None:
    make(root / 'special')
    with pytest.raises(OSError, match=f"It is {kind}. Only regular files .*: '/special'") as caught:
        await OPERATIONS[operation](backend, '/special')
    assert caught.value.errno == errno.EINVAL


async def test_special_files_are_listed_and_removable_but_not_searched(backend: LocalBackend, root: Path) -> None:
    os.mkfifo(root / 'pipe')
    (root / 'to-pipe').symlink_to('pipe')
    assert [(entry.name, entry.is_dir, entry.size) for entry in await backend.list_dir('/')] == [
        ('pipe', False, None),
        ('to-pipe', False, None),
    ]
    assert (await backend.glob('**')).paths == ()
    assert (await backend.grep('x')).problems == ()
    assert list(await backend.snapshot()) == []
    await backend.remove('/pipe')
    assert not await backend.exists('/pipe')


@pytest.mark.parametrize('device', ['/dev/zero', '/dev/full', '/dev/tty', '/dev/stdin'])
async def test_links_to_devices_are_outside(backend: LocalBackend, root: Path, device: str) -> None:
    (root / 'link').symlink_to(device)
    with pytest.raises(OutsideRootError):
        await backend.read_bytes('/link')


async def test_proc_links_are_resolved_by_their_text(root: Path) -> None:
    """Opening `/proc/self/cwd` would give the working directory. Its text is an absolute path like any other."""
    with pytest.raises(OutsideRootError):
        await LocalBackend('/proc/self').list_dir('/cwd')
    with pytest.raises(OutsideRootError):
        await LocalBackend('/proc/self').list_dir('/root')


async def test_backend_at_the_file_system_root_has_nothing_outside(root: Path) -> None:
    (root / 'link').symlink_to('/etc/../etc')
    names = [entry.name for entry in await LocalBackend('/').list_dir(str(root / 'link'))]
    assert 'passwd' in names


async def test_file_above_the_read_limit_is_refused(backend: LocalBackend, root: Path) -> None:
    with (root / 'sparse').open('wb') as file:
        file.truncate(50_000_000_000)
    with pytest.raises(OSError, match=r'It has 50,000,000,000 bytes. At most 1,073,741,824') as caught:
        await backend.read_bytes('/sparse')
    assert caught.value.errno == errno.EFBIG
    found = await backend.grep('x')
    assert [(problem.path, '50,000,000,000 bytes' in problem.reason) for problem in found.problems] == [
        ('/sparse', True)
    ]


async def test_swap_through_an_outside_link_is_refused_before_reading(
    backend: LocalBackend, root: Path, outside: Path
) -> None:
    (root / 'link').symlink_to(outside / 'secret')
    with pytest.raises(OutsideRootError):
        await backend.compare_and_swap('/link', b'x', expected=None)
    (root / 'gone').symlink_to('nowhere')
    with pytest.raises(FileChangedError):
        await backend.compare_and_swap('/gone', b'x', expected=digest_of(b''))


@pytest.mark.parametrize('action', [stat_location, str], ids=['missing', 'empty'])
def test_root_removed_during_an_operation_is_unavailable(tmp_path: Path, action: Callable[[Location], object]) -> None:
    """The operation may find nothing or see an empty directory."""
    (tmp_path / 'root').mkdir()

    def visit() -> None:
        with ConfinedRoot(path=str(tmp_path / 'root')).open() as root:
            (tmp_path / 'root').rmdir()
            root.visit(('f',), action)

    with pytest.raises(BackendUnavailableError, match='was removed during'):
        visit()


def test_link_removed_before_it_is_followed_is_not_found(tmp_path: Path) -> None:
    def meet_link(place: Location) -> None:
        raise link_found()

    with ConfinedRoot(path=str(tmp_path)).open() as root, pytest.raises(FileNotFoundError):
        root.visit(('f',), meet_link)


def test_link_replaced_by_a_file_is_visited_again(tmp_path: Path) -> None:
    (tmp_path / 'f').touch()
    answers = iter(['link', 'file'])

    def meet(place: Location) -> str:
        if next(answers) == 'link':
            raise link_found()
        return place.name

    with ConfinedRoot(path=str(tmp_path)).open() as root:
        assert root.visit(('f',), meet) == 'f'
