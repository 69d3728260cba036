"""Tests of `SupportsCompareAndSwap`."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from pydantic_deep_backends.errors import FileChangedError
from pydantic_deep_backends.snapshots import digest_of

from ._base import WRITERS, BackendRules, SwappingBackend


class CompareAndSwapRules(BackendRules):
    """Tests of compare-and-swap."""

    async def test_file_is_created_only_if_it_does_not_exist(self, swapping: SwappingBackend, root: str) -> None:
        path = f'{root}/a/file'
        await swapping.compare_and_swap(path, b'one', expected=None)
        with pytest.raises(FileChangedError) as caught:
            await swapping.compare_and_swap(path, b'two', expected=None)
        assert (caught.value.path, caught.value.expected, caught.value.actual) == (path, None, digest_of(b'one'))
        assert await swapping.read_bytes(path) == b'one'

    async def test_file_is_replaced_only_if_it_is_unchanged_since_the_read(
        self, swapping: SwappingBackend, root: str
    ) -> None:
        path = f'{root}/file'
        await swapping.write_bytes(path, b'one')
        await swapping.compare_and_swap(path, b'two', expected=digest_of(b'one'))
        with pytest.raises(FileChangedError) as caught:
            await swapping.compare_and_swap(path, b'three', expected=digest_of(b'one'))
        assert (caught.value.expected, caught.value.actual) == (digest_of(b'one'), digest_of(b'two'))
        assert await swapping.read_bytes(path) == b'two'

    async def test_missing_file_is_not_replaced(self, swapping: SwappingBackend, root: str) -> None:
        await swapping.write_bytes(f'{root}/other', b'')
        for path in (f'{root}/file', f'{root}/d/file'):
            with pytest.raises(FileChangedError) as caught:
                await swapping.compare_and_swap(path, b'two', expected=digest_of(b'one'))
            assert (caught.value.path, caught.value.actual) == (path, None)
        assert [entry.name for entry in await swapping.list_dir(root)] == ['other']

    async def test_directory_is_not_replaced(self, swapping: SwappingBackend, root: str) -> None:
        await swapping.write_bytes(f'{root}/d/file', b'x')
        for expected in (None, digest_of(b'x')):
            with pytest.raises(IsADirectoryError):
                await swapping.compare_and_swap(f'{root}/d', b'new', expected=expected)
            with pytest.raises(NotADirectoryError):
                await swapping.compare_and_swap(f'{root}/d/file/below', b'new', expected=expected)

    async def test_concurrent_writers_of_a_file_lose_no_update(self, swapping: SwappingBackend, root: str) -> None:
        """Append lines through one spelling of the path, and retry when another writer was faster."""
        rounds = 5
        await swapping.write_bytes(f'{root}/file', b'')
        spellings = (f'{root}/file', f'{root}//file', f'{root}/./file', f'{root}/file/')

        async def add_lines(writer: int) -> None:
            path = spellings[writer % len(spellings)]
            done = 0
            while done < rounds:
                data = await swapping.read_bytes(path)
                await anyio.lowlevel.checkpoint()
                try:
                    line = f'{writer}.{done}\n'.encode()
                    await swapping.compare_and_swap(path, data + line, expected=digest_of(data))
                except FileChangedError:
                    continue
                done += 1

        async with anyio.create_task_group() as group:
            for writer in range(WRITERS):
                group.start_soon(add_lines, writer)
        lines = (await swapping.read_bytes(f'{root}/file')).decode().split()
        assert sorted(lines) == sorted(f'{writer}.{done}' for writer in range(WRITERS) for done in range(rounds))

    async def test_one_of_several_concurrent_creators_succeeds(self, swapping: SwappingBackend, root: str) -> None:
        won: list[bytes] = []

        async def create(writer: int) -> None:
            data = b'%d' % writer
            try:
                await swapping.compare_and_swap(f'{root}/file', data, expected=None)
            except FileChangedError:
                return
            won.append(data)

        async with anyio.create_task_group() as group:
            for writer in range(WRITERS):
                group.start_soon(create, writer)
        assert won == [await swapping.read_bytes(f'{root}/file')]
