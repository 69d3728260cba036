"""Resolution of `..`: as in the operating system, through links, and the same on every backend."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    LocalBackend,
    OverlayBackend,
    ReadOnlyBackend,
    StateBackend,
)
from pydantic_deep_backends.errors import BackendError, InvalidPathError, OutsideRootError, ReadOnlyError
from pydantic_deep_backends.protocol import SupportsCompareAndSwap, SupportsSearch
from pydantic_deep_backends.resolving import absolute_path, canonical_path
from pydantic_deep_backends.search import glob_backend, grep_backend
from pydantic_deep_backends.snapshots import digest_of

pytestmark = pytest.mark.anyio

FILES = ('a/b/f', 'a/f', 'b/a/f', 'f')
"""Every name exists at several places, so that a wrong resolution finds another file."""

NAMES = st.sampled_from(('a', 'b', 'f', 'x', '..', '..', '.'))
TYPED = st.lists(st.sampled_from(('a', 'b', 'f', 'x', 'l', 'm', '..', '..', '.')), max_size=7).map('/'.join)
INSIDE = st.lists(st.sampled_from(('a', 'b', 'f', 'l', 'm')), min_size=1, max_size=2).map('/'.join)


def make_tree(root: Path, links: Sequence[tuple[str, str]]) -> None:
    for file in FILES:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)
    for place, target in links:
        path = root / place
        if not path.is_symlink():
            path.symlink_to(target)


async def outcome_of(operation: Awaitable[object]) -> object:
    try:
        return await operation
    except (OSError, BackendError) as error:
        return type(error)


def leaves(root: str, path: str) -> bool:
    """Return whether a path is above its root at any component."""
    at = root
    for name in path.split('/'):
        at = os.path.realpath(f'{at}/{name}')
        if at != root and not at.startswith(f'{root}/'):
            return True
    return False


@pytest.mark.slow
@given(
    path=TYPED,
    links=st.lists(st.tuples(st.sampled_from(('l', 'm', 'a/l', 'a/b/m', 'b/l')), INSIDE), max_size=3),
)
def test_path_resolves_like_in_the_operating_system(path: str, links: list[tuple[str, str]]) -> None:
    async def check(top: str) -> None:
        root = os.path.realpath(top)
        make_tree(Path(root), links)
        backend = LocalBackend(root)
        if leaves(root, path):
            assert await outcome_of(backend.realpath(f'/{path}')) is InvalidPathError
            return
        real = os.path.realpath(f'{root}/{path}')
        assert f'{root}{await backend.realpath(f"/{path}")}'.rstrip('/') == real
        assert f'{root}{await canonical_path(backend, path)}'.rstrip('/') == real
        try:
            expected: object = Path(root, path).read_bytes() if path else IsADirectoryError
        except OSError as error:
            expected = type(error)
        # The kernel refuses `.` and a slash after a file. They are ignored here.
        if path.rstrip('/.') == path:
            assert await outcome_of(backend.read_bytes(f'/{path}')) == expected
        if isinstance(expected, bytes):
            absolute = await absolute_path(backend, path)
            assert '..' not in absolute
            assert await backend.read_bytes(absolute) == expected

    with TemporaryDirectory() as top:
        anyio.run(check, top)


@pytest.mark.slow
@given(
    path=TYPED,
    links=st.lists(st.tuples(st.sampled_from(('l', 'm', 'a/l', 'a/b/m', 'b/l')), TYPED.filter(bool)), max_size=3),
)
def test_path_through_links_reads_the_file_of_the_operating_system(path: str, links: list[tuple[str, str]]) -> None:
    async def check(top: str) -> None:
        root = f'{os.path.realpath(top)}/root'
        (Path(root).parent / 'f').write_text('outside')
        make_tree(Path(root), links)
        found = await outcome_of(LocalBackend(root).read_bytes(f'/{path}'))
        if isinstance(found, bytes):
            assert found == Path(os.path.realpath(f'{root}/{path}')).read_bytes() != b'outside'
        else:
            assert isinstance(found, type)

    with TemporaryDirectory() as top:
        anyio.run(check, top)


@pytest.mark.slow
@given(path=st.lists(NAMES, max_size=7).map(lambda names: '/' + '/'.join(names)))
def test_path_means_the_same_on_every_backend(path: str) -> None:
    async def check(top: str) -> None:
        root = Path(top)
        make_tree(root, ())
        files = {f'/{file}': file for file in FILES}
        part = StateBackend({'/b/f': 'a/b/f', '/f': 'a/f'})
        backends: list[BackendProtocol] = [
            StateBackend(files),
            ReadOnlyBackend(LocalBackend(root)),
            OverlayBackend(LocalBackend(root)),
            OverlayBackend(StateBackend(files)),
            CompositeBackend(StateBackend({'/b/a/f': 'b/a/f', '/f': 'f'}), {'/a': part}),
        ]
        expected = await outcomes_on(LocalBackend(root), path)
        for backend in backends:
            assert await outcomes_on(backend, path) == expected, backend

    with TemporaryDirectory() as top:
        anyio.run(check, top)


def searching(backend: BackendProtocol) -> SupportsSearch:
    assert isinstance(backend, SupportsSearch)
    return backend


async def outcomes_on(backend: BackendProtocol, path: str) -> list[object]:
    async def names() -> list[str]:
        return [entry.path for entry in await backend.list_dir(path)]

    async def place() -> tuple[str, bool]:
        entry = await backend.stat(path)
        return entry.path, entry.is_dir

    reads: list[Callable[[], Awaitable[object]]] = [
        lambda: backend.read_bytes(path),
        place,
        names,
        lambda: backend.exists(path),
        lambda: backend.realpath(path),
        lambda: absolute_path(backend, path),
        lambda: glob_backend(backend, '**', path),
        lambda: grep_backend(backend, 'f', path),
    ]
    return [await outcome_of(read()) for read in reads]


@pytest.fixture(params=('local', 'commands', 'state', 'overlay', 'composite'))
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> BackendProtocol:
    kinds: dict[str, Callable[[], BackendProtocol]] = {
        'local': lambda: LocalBackend(tmp_path),
        'commands': lambda: LocalBackend(tmp_path, allow_commands=True),
        'state': StateBackend,
        'overlay': lambda: OverlayBackend(LocalBackend(tmp_path)),
        'composite': lambda: CompositeBackend(StateBackend(), {'/d': LocalBackend(tmp_path)}),
    }
    return kinds[request.param]()


async def test_every_operation_resolves_dotdot(backend: BackendProtocol) -> None:
    root = posixpath.join(await backend.working_dir(), 'd')
    await backend.write_bytes(f'{root}/a/b', b'x')
    for spelling in (f'{root}/a/../a/b', f'{root}/a/./..//a/b', f'{root}/../d/a/b'):
        assert await backend.read_bytes(spelling) == b'x'
        assert (await backend.stat(spelling)).path == await backend.realpath(spelling) == f'{root}/a/b'
        assert await backend.exists(spelling)
        assert [match.path for match in (await searching(backend).grep('x', spelling)).matches] == [f'{root}/a/b']
    assert [entry.path for entry in await backend.list_dir(f'{root}/a/..')] == [f'{root}/a']
    assert (await searching(backend).glob('**', f'{root}/a/..')).paths == (f'{root}/a/b',)
    await backend.write_bytes(f'{root}/a/../c', b'new')
    assert isinstance(backend, SupportsCompareAndSwap)
    await backend.compare_and_swap(f'{root}/a/../c', b'newer', expected=digest_of(b'new'))
    assert await backend.read_bytes(f'{root}/c') == b'newer'
    await backend.make_dir(f'{root}/a/../e/f')
    assert (await backend.stat(f'{root}/e/f')).is_dir
    await backend.remove(f'{root}/e/../c')
    assert not await backend.exists(f'{root}/c')


@pytest.mark.parametrize(('before', 'kind'), [('missing', FileNotFoundError), ('file', NotADirectoryError)])
async def test_dotdot_requires_an_existing_directory(
    backend: BackendProtocol, before: str, kind: type[OSError]
) -> None:
    root = posixpath.join(await backend.working_dir(), 'd')
    await backend.write_bytes(f'{root}/file', b'x')
    path = f'{root}/{before}/../file'
    assert isinstance(backend, SupportsCompareAndSwap)
    swapping, searched = backend, searching(backend)
    operations: list[Callable[[], Awaitable[object]]] = [
        lambda: backend.read_bytes(path),
        lambda: backend.stat(path),
        lambda: backend.list_dir(path),
        lambda: backend.write_bytes(path, b''),
        lambda: swapping.compare_and_swap(path, b'', expected=None),
        lambda: backend.make_dir(path),
        lambda: backend.remove(path),
        lambda: searched.glob('**', path),
        lambda: searched.grep('x', path),
    ]
    for operation in operations:
        with pytest.raises(kind):
            await operation()
    assert not await backend.exists(path)
    assert not await backend.exists(f'{root}/missing')
    assert await backend.read_bytes(f'{root}/file') == b'x'
    assert await backend.realpath(path) == f'{root}/file'


async def test_read_only_backend_resolves_dotdot() -> None:
    backend = ReadOnlyBackend(StateBackend({'/a/f': 'text'}))
    assert await backend.read_bytes('/a/../a/f') == b'text'
    for change in (backend.write_bytes('/a/../f', b''), backend.make_dir('/a/../f'), backend.remove('/a/../f')):
        with pytest.raises(ReadOnlyError, match=r"^'/f' is read-only"):
            await change


async def test_path_may_leave_and_reenter_the_shown_directory(tmp_path: Path) -> None:
    (tmp_path / 'f').write_text('text')
    backend = LocalBackend(tmp_path, allow_commands=True)
    shown = await backend.working_dir()
    name = shown.rpartition('/')[2]
    assert await backend.read_bytes(f'{shown}/../{name}/f') == b'text'
    assert await absolute_path(backend, f'../{name}/./f') == f'{shown}/f'
    with pytest.raises(FileNotFoundError):
        await backend.read_bytes(f'{shown}/../other/../{name}/f')
    with pytest.raises(OutsideRootError):
        await backend.write_bytes(f'{shown}/../f', b'')


async def test_repeated_dotdot_costs_one_lookup_per_directory() -> None:
    looked: list[str] = []

    class Counting(StateBackend):
        async def stat(self, path: str):
            looked.append(path)
            return await super().stat(path)

    assert await Counting({'/a/f': ''}).exists('/a/..' * 500 + '/a/../a/f')
    assert looked == ['/a']
    files = {f'/d{number}/f': '' for number in range(41)}
    path = ''.join(f'/d{number}/..' for number in range(41))
    with pytest.raises(InvalidPathError, match='after more than 40 directories'):
        await StateBackend(files).exists(f'{path}/d1/f')
    assert await StateBackend(files).exists(f'{path[len("/d0/..") :]}/d1/f')


async def test_link_into_a_hidden_directory_has_no_parent(tmp_path: Path) -> None:
    (tmp_path / 'm' / 'd').mkdir(parents=True)
    (tmp_path / 'link').symlink_to('m/d')
    (tmp_path / 'e').mkdir()
    (tmp_path / 'in').symlink_to('e')
    (tmp_path / 'f').write_text('text')
    backend = CompositeBackend(LocalBackend(tmp_path), {'/m': StateBackend({'/f': 'mounted'})})
    assert await backend.read_bytes('/m/../f') == await backend.read_bytes('/in/../f') == b'text'
    assert await backend.read_bytes('/in/../m/f') == b'mounted'
    for operation in (backend.read_bytes, backend.stat, backend.realpath):
        with pytest.raises(FileNotFoundError, match='a file that a mount hides'):
            await operation('/link/../f')


async def test_overlay_resolves_dotdot_in_its_visible_files(tmp_path: Path) -> None:
    (tmp_path / 'd' / 'e').mkdir(parents=True)
    (tmp_path / 'd' / 'f').write_text('text')
    (tmp_path / 'link').symlink_to('d/e')
    overlay = OverlayBackend(LocalBackend(tmp_path))
    assert await overlay.read_bytes('/link/../f') == b'text'
    await overlay.remove('/d/e')
    with pytest.raises(FileNotFoundError):
        await overlay.read_bytes('/link/../f')
    await overlay.write_bytes('/d/e', b'a file now')
    with pytest.raises(NotADirectoryError):
        await overlay.read_bytes('/link/../f')
