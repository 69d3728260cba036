"""Tests of writing and removing files and directories."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from pydantic_deep_backends.errors import ReadOnlyError
from pydantic_deep_backends.protocol import BackendProtocol, SupportsCompareAndSwap, SupportsSnapshots
from pydantic_deep_backends.snapshots import digest_of

from ._base import WRITERS, BackendRules, Seed, as_tuple


class WritingRules(BackendRules):
    """Tests of writes, directories and removals."""

    async def test_read_only_backend_refuses_every_change(
        self, backend: BackendProtocol, seed: Seed, root: str, is_read_only: bool
    ) -> None:
        if not is_read_only:
            pytest.skip('the backend is not read-only')
        await seed(f'{root}/file', b'old')
        changes: list[Callable[[], Awaitable[None]]] = [
            lambda: backend.write_bytes(f'{root}/file', b'new'),
            lambda: backend.write_bytes(f'{root}/new', b'new'),
            lambda: backend.make_dir(f'{root}/new'),
            lambda: backend.make_dir(root),
            lambda: backend.remove(f'{root}/file'),
            lambda: backend.remove('/'),
        ]
        for change in changes:
            with pytest.raises(ReadOnlyError):
                await change()
        assert await backend.read_bytes(f'{root}/file') == b'old'
        assert [entry.name for entry in await backend.list_dir(root)] == ['file']
        assert not isinstance(backend, SupportsCompareAndSwap | SupportsSnapshots)

    async def test_write_creates_parents_and_replaces_files(self, writable: BackendProtocol, root: str) -> None:
        path = f'{root}/a/b/file'
        await writable.write_bytes(path, b'a longer text')
        await writable.write_bytes(path, b'short')
        assert await writable.read_bytes(path) == b'short'
        assert [entry.name for entry in await writable.list_dir(f'{root}/a/b')] == ['file']

    @pytest.mark.parametrize('data', ['text', 5, None, [1, 2]])
    async def test_contents_must_be_bytes(self, writable: BackendProtocol, root: str, data: Any) -> None:
        await writable.write_bytes(f'{root}/file', b'old')
        with pytest.raises(TypeError, match=r'bytes'):
            await writable.write_bytes(f'{root}/file', data)
        with pytest.raises(TypeError, match=r'bytes'):
            await writable.write_bytes(f'{root}/new/file', data)
        assert await writable.read_bytes(f'{root}/file') == b'old'
        buffers: list[Any] = [bytearray(b'new'), memoryview(b'new')]
        for buffer in buffers:
            await writable.write_bytes(f'{root}/file', buffer)
            assert await writable.read_bytes(f'{root}/file') == b'new'

    async def test_directory_cannot_be_written(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/d/file', b'old')
        for path in (f'{root}/d', '/'):
            with pytest.raises(IsADirectoryError):
                await writable.write_bytes(path, b'new')
        assert await writable.read_bytes(f'{root}/d/file') == b'old'

    async def test_nothing_can_be_created_below_a_file(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/file', b'old')
        for path in (f'{root}/file/below', f'{root}/file/far/below'):
            with pytest.raises(NotADirectoryError):
                await writable.write_bytes(path, b'new')
            with pytest.raises(NotADirectoryError):
                await writable.make_dir(path)
        assert await writable.read_bytes(f'{root}/file') == b'old'

    async def test_readers_see_the_old_or_the_new_contents(self, writable: BackendProtocol, root: str) -> None:
        path = f'{root}/file'
        versions = [bytes([number]) * 200_000 for number in range(WRITERS)]
        await writable.write_bytes(path, versions[0])
        seen: set[str] = set()

        async def read(pause: int) -> None:
            for _ in range(20):
                for _ in range(pause):  # staggered, so that some readers run between any two steps of a writer
                    await anyio.lowlevel.checkpoint()
                seen.add(digest_of(await writable.read_bytes(path)))

        async with anyio.create_task_group() as group:
            for pause, version in enumerate(versions):
                group.start_soon(read, pause)
                group.start_soon(writable.write_bytes, path, version)
        assert seen <= {digest_of(version) for version in versions}
        assert await writable.read_bytes(path) in versions
        assert [entry.name for entry in await writable.list_dir(root)] == ['file']

    async def test_cancelled_write_is_complete_or_has_no_effect(self, writable: BackendProtocol, root: str) -> None:
        path = f'{root}/file'
        await writable.write_bytes(path, b'old' * 1000)
        async with anyio.create_task_group() as group:
            group.start_soon(writable.write_bytes, path, b'new' * 1_000_000)
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert await writable.read_bytes(path) in (b'old' * 1000, b'new' * 1_000_000)
        assert [entry.name for entry in await writable.list_dir(root)] == ['file']

    async def test_concurrently_written_files_all_exist(self, writable: BackendProtocol, root: str) -> None:
        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(writable.write_bytes, f'{root}/d{number % 3}/{number}', b'%d' % number)
        for number in range(30):
            assert await writable.read_bytes(f'{root}/d{number % 3}/{number}') == b'%d' % number

    async def test_directory_is_created_with_its_parents(self, writable: BackendProtocol, root: str) -> None:
        await writable.make_dir(f'{root}/a/b')
        assert (await writable.stat(f'{root}/a/b')).is_dir
        assert await writable.list_dir(f'{root}/a/b') == []
        assert [as_tuple(entry) for entry in await writable.list_dir(f'{root}/a')] == [('b', f'{root}/a/b', True, None)]

    async def test_creating_an_existing_directory_changes_nothing(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/a/file', b'x')
        for path in (f'{root}/a', root, '/'):
            await writable.make_dir(path)
        assert await writable.read_bytes(f'{root}/a/file') == b'x'

    async def test_directory_cannot_replace_a_file(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/file', b'x')
        with pytest.raises(FileExistsError):
            await writable.make_dir(f'{root}/file')
        assert await writable.read_bytes(f'{root}/file') == b'x'

    async def test_removing_a_file_does_not_remove_its_directory(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/d/file', b'x')
        await writable.remove(f'{root}/d/file')
        assert not await writable.exists(f'{root}/d/file')
        assert await writable.list_dir(f'{root}/d') == []

    async def test_directory_is_removed_with_its_contents_only(self, writable: BackendProtocol, root: str) -> None:
        for path in ('d/a/b', 'd/c', 'dd', 'd-e/f'):
            await writable.write_bytes(f'{root}/{path}', b'x')
        await writable.make_dir(f'{root}/d/empty/more')
        await writable.remove(f'{root}/d')
        assert not await writable.exists(f'{root}/d')
        assert [entry.name for entry in await writable.list_dir(root)] == ['d-e', 'dd']
        assert await writable.read_bytes(f'{root}/d-e/f') == b'x'

    async def test_missing_file_cannot_be_removed(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/file', b'x')
        with pytest.raises(FileNotFoundError):
            await writable.remove(f'{root}/none')
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            await writable.remove(f'{root}/file/below')
        assert await writable.exists(f'{root}/file')

    async def test_working_directory_and_its_parents_cannot_be_removed(
        self, writable: BackendProtocol, root: str
    ) -> None:
        await writable.write_bytes(f'{root}/file', b'x')
        path = await writable.working_dir()
        for ancestor in {path, posixpath.dirname(path), '/'}:
            with pytest.raises(ValueError, match=r'(?i)remove'):
                await writable.remove(ancestor)
        assert await writable.read_bytes(f'{root}/file') == b'x'
