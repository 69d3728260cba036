"""`OverlayBackend`: the conformance rules, visible files, and links.

`test_merge` covers merges.

"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from pydantic_deep_backends import (
    CompositeBackend,
    FileChangedError,
    LocalBackend,
    OverlayBackend,
    ReadOnlyBackend,
    StateBackend,
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsSearch,
    SupportsSnapshots,
    digest_of,
)
from pydantic_deep_backends.conformance import BackendSuite

pytestmark = pytest.mark.anyio


class TestOverlayOfState(BackendSuite):
    @pytest.fixture
    def backend(self) -> OverlayBackend:
        return OverlayBackend(StateBackend())


class TestOverlayOfLocal(BackendSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> OverlayBackend:
        return OverlayBackend(LocalBackend(tmp_path))


class TestOverlayOfFilesInTheBase(BackendSuite):
    """Conformance with the initial files in the base and the changes in the overlay."""

    @pytest.fixture
    def base(self, tmp_path: Path) -> LocalBackend:
        return LocalBackend(tmp_path)

    @pytest.fixture
    def backend(self, base: LocalBackend) -> OverlayBackend:
        return OverlayBackend(base)

    @pytest.fixture
    def seed(self, base: LocalBackend) -> Callable[[str, bytes], Awaitable[None]]:
        return base.write_bytes


class TestOverlayOfReadOnlyWithoutSearch(BackendSuite):
    """Over a base that supports neither search nor writes."""

    @pytest.fixture
    def base(self) -> StateBackend:
        return StateBackend()

    @pytest.fixture
    def backend(self, base: StateBackend) -> OverlayBackend:
        plain = ReadOnlyBackend(base)
        del vars(plain)['glob'], vars(plain)['grep']
        assert not isinstance(plain, SupportsSearch)
        return OverlayBackend(plain)

    @pytest.fixture
    def seed(self, base: StateBackend) -> Callable[[str, bytes], Awaitable[None]]:
        return base.write_bytes


class TestOverlayOfOverlay(BackendSuite):
    @pytest.fixture
    def backend(self) -> OverlayBackend:
        return OverlayBackend(OverlayBackend(StateBackend()))


class TestMountedOverlay(BackendSuite):
    @pytest.fixture
    def backend(self) -> CompositeBackend:
        return CompositeBackend(OverlayBackend(StateBackend()), {'/mounted': OverlayBackend(StateBackend())})


class Slow(StateBackend):
    """Yields to other tasks before it answers."""

    async def read_bytes(self, path: str) -> bytes:
        await anyio.lowlevel.checkpoint()
        return await super().read_bytes(path)

    async def stat(self, path: str) -> Any:
        await anyio.lowlevel.checkpoint()
        return await super().stat(path)

    async def list_dir(self, path: str) -> Any:
        await anyio.lowlevel.checkpoint()
        return await super().list_dir(path)


def test_overlay_supports_search_and_swap_but_no_commands_or_snapshots() -> None:
    overlay = OverlayBackend(StateBackend())
    assert isinstance(overlay, SupportsSearch)
    assert isinstance(overlay, SupportsCompareAndSwap)
    assert not isinstance(overlay, SupportsCommands)
    assert not isinstance(overlay, SupportsSnapshots)


async def test_base_is_unchanged_before_the_merge() -> None:
    base = StateBackend({'/a': '1', '/d/b': '2'})
    before = await base.snapshot()
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/a', b'new')
    await overlay.write_bytes('/n/m', b'new')
    await overlay.make_dir('/empty')
    await overlay.remove('/d')
    assert await base.snapshot() == before
    assert overlay.changed_paths == ('/a', '/d/b', '/n/m')
    assert repr(overlay) == '<OverlayBackend of 3 changed files over <StateBackend of 2 files, 2 bytes>>'


async def test_base_changes_are_visible_in_untouched_files() -> None:
    base = StateBackend({'/mine': '1', '/theirs': '1'})
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/mine', b'2')
    await base.write_bytes('/mine', b'other')
    await base.write_bytes('/theirs', b'other')
    await base.write_bytes('/new', b'other')
    assert [await overlay.read_bytes(path) for path in ('/mine', '/theirs', '/new')] == [b'2', b'other', b'other']
    assert [(entry.name, entry.size) for entry in await overlay.list_dir('/')] == [
        ('mine', 1),
        ('new', 5),
        ('theirs', 5),
    ]


async def test_nothing_is_created_below_a_file_of_an_inexact_base() -> None:
    class Vague(StateBackend):
        async def read_bytes(self, path: str) -> bytes:
            if path.startswith('/f/'):
                raise FileNotFoundError(path)
            return await super().read_bytes(path)

        async def stat(self, path: str) -> Any:
            if path.startswith('/f/'):
                raise FileNotFoundError(path)
            return await super().stat(path)

    overlay = OverlayBackend(Vague({'/f': '1'}))
    with pytest.raises(NotADirectoryError):
        await overlay.write_bytes('/f/x', b'')
    with pytest.raises(NotADirectoryError):
        await overlay.make_dir('/f/x/y')


async def test_links_of_the_base_are_followed(tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir()
    (tmp_path / 'd/f').write_text('old')
    (tmp_path / 'l').symlink_to('d')
    (tmp_path / 'm').symlink_to('l/f')
    overlay = OverlayBackend(LocalBackend(tmp_path))
    assert await overlay.realpath('/l/f') == '/d/f'
    await overlay.write_bytes('/l/f', b'new!')
    assert overlay.changed_paths == ('/d/f',)
    assert await overlay.read_bytes('/m') == b'new!'
    assert (await overlay.stat('/l/f')).path == '/l/f'
    assert (await overlay.stat('/l/f')).size == 4
    assert [(e.path, e.size) for e in await overlay.list_dir('/l')] == [('/l/f', 4)]
    assert (await overlay.glob('*', '/l')).paths == ('/l/f',)
    assert (await overlay.grep('new', '/l')).counts == {'/l/f': 1}
    assert await overlay.realpath('/m') == '/d/f'
    await overlay.remove('/l')
    assert not await overlay.exists('/l/f')
    assert await overlay.read_bytes('/d/f') == b'new!'
    await overlay.write_bytes('/l', b'a file now')
    assert await overlay.realpath('/l') == '/l'
    assert overlay.changed_paths == ('/d/f', '/l')


async def test_link_through_a_removed_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / 'd/e').mkdir(parents=True)
    (tmp_path / 'd/in').symlink_to('e')
    (tmp_path / 'l').symlink_to('d')
    (tmp_path / 'root').symlink_to('.')
    overlay = OverlayBackend(LocalBackend(tmp_path))
    await overlay.remove('/d/in')
    assert await overlay.realpath('/l/in/x') == '/d/in/x'
    assert await overlay.realpath('/root') == '/'


async def test_removing_a_directory_removes_its_links_but_not_their_targets(tmp_path: Path) -> None:
    (tmp_path / 'keep').mkdir()
    (tmp_path / 'keep/f').write_text('1')
    (tmp_path / 'd').mkdir()
    (tmp_path / 'd/dir').symlink_to('../keep')
    (tmp_path / 'd/loop').symlink_to('loop')
    (tmp_path / 'd/out').symlink_to('/etc')
    (tmp_path / 'd/a\nb').write_text('no path')
    overlay = OverlayBackend(LocalBackend(tmp_path))
    await overlay.remove('/d')
    assert overlay.changed_paths == ('/d/dir', '/d/loop', '/d/out')
    assert await overlay.read_bytes('/keep/f') == b'1'


async def test_unreadable_directory_is_not_removed(tmp_path: Path) -> None:
    class Failing(LocalBackend):
        async def read_bytes(self, path: str) -> bytes:
            raise PermissionError(13, 'Permission denied', path)

        async def realpath(self, path: str) -> str:
            if path == '/d/g':
                raise PermissionError(13, 'Permission denied', path)
            return await super().realpath(path)

    (tmp_path / 'd').mkdir()
    for name in ('f', 'g'):
        (tmp_path / 'd' / name).write_text('1')
        overlay = OverlayBackend(Failing(tmp_path))
        with pytest.raises(PermissionError):
            await overlay.remove('/d')
        assert await overlay.exists('/d')
        assert overlay.changed_paths == ()
        (tmp_path / 'd' / name).unlink()


async def test_concurrent_writers_through_one_overlay_lose_nothing() -> None:
    overlay = OverlayBackend(Slow({'/f': ''}))

    async def add(line: bytes) -> None:
        while True:
            data = await overlay.read_bytes('/f')
            try:
                return await overlay.compare_and_swap('/f', data + line, expected=digest_of(data))
            except FileChangedError:
                continue

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(add, b'%d\n' % number)
            group.start_soon(overlay.make_dir, f'/made/{number}')
            group.start_soon(overlay.write_bytes, f'/w/{number}', b'')
    assert sorted((await overlay.read_bytes('/f')).split()) == [b'%d' % number for number in range(8)]
    assert [e.name for e in await overlay.list_dir('/made')] == [str(number) for number in range(8)]


async def test_removed_directory_includes_concurrent_writes() -> None:
    overlay = OverlayBackend(Slow({'/d/a': '1', '/d/b': '2'}))
    async with anyio.create_task_group() as group:
        group.start_soon(overlay.remove, '/d')
        group.start_soon(overlay.write_bytes, '/d/c', b'3')
    assert [await overlay.exists(path) for path in ('/d/a', '/d/b')] == [False, False]
