"""Tests of reading files and listing directories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pydantic_deep_backends.protocol import BackendProtocol
from pydantic_deep_backends.snapshots import digest_of

from ._base import BackendRules, Seed, as_tuple, grep


class ReadingRules(BackendRules):
    """Tests of reads and listings."""

    @pytest.mark.parametrize(
        'data',
        [b'', bytes(range(256)), b'a\r\nb\rc\n', b'\xef\xbb\xbfa', b'\xff\xfea\0', 'é'.encode('latin-1')],
        ids=ascii,
    )
    async def test_bytes_are_read_unchanged(self, backend: BackendProtocol, seed: Seed, root: str, data: bytes) -> None:
        await seed(f'{root}/file', data)
        assert await backend.read_bytes(f'{root}/file') == data
        assert (await backend.stat(f'{root}/file')).size == len(data)

    async def test_eight_megabytes_are_read_unchanged(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        data = bytes(range(256)) * (8 * 4096)
        await seed(f'{root}/file', data)
        assert digest_of(await backend.read_bytes(f'{root}/file')) == digest_of(data)

    async def test_missing_file_is_not_found(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/there', b'')
        for operation in (backend.read_bytes, backend.stat, backend.list_dir):
            for path in (f'{root}/none', f'{root}/none/below'):
                with pytest.raises(FileNotFoundError):
                    await operation(path)

    async def test_path_below_a_file_is_not_found(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/file', b'')
        assert not await backend.exists(f'{root}/file/below')
        for operation in (backend.read_bytes, backend.stat, backend.list_dir):
            with pytest.raises((FileNotFoundError, NotADirectoryError)):
                await operation(f'{root}/file/below')

    async def test_directory_cannot_be_read(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/d/file', b'')
        with pytest.raises(IsADirectoryError):
            await backend.read_bytes(f'{root}/d')

    async def test_file_cannot_be_listed(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/file', b'')
        with pytest.raises(NotADirectoryError):
            await backend.list_dir(f'{root}/file')

    async def test_files_and_directories_exist(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/d/file', b'')
        found = [await backend.exists(f'{root}/{path}') for path in ('d', 'd/file', 'none', 'd/none', 'fil')]
        assert found == [True, True, False, False, False]
        assert await backend.exists('/')

    async def test_stat_returns_metadata_of_files_and_directories(
        self, backend: BackendProtocol, seed: Seed, root: str
    ) -> None:
        await seed(f'{root}/d/file', b'12345')
        assert as_tuple(await backend.stat(f'{root}/d/file')) == ('file', f'{root}/d/file', False, 5)
        assert as_tuple(await backend.stat(f'{root}/d')) == ('d', f'{root}/d', True, None)
        top = await backend.stat('/')
        assert (top.path, top.is_dir, top.size) == ('/', True, None)

    async def test_listing_is_sorted_by_name_and_not_recursive(
        self, backend: BackendProtocol, seed: Seed, root: str
    ) -> None:
        for name in ('b', 'a-b', 'a/x/y', 'a.b', 'Z', 'é', '10', '9', '.h'):
            await seed(f'{root}/{name}', b'1')
        names = sorted(['b', 'a-b', 'a', 'a.b', 'Z', 'é', '10', '9', '.h'])
        expected = [(name, f'{root}/{name}', name == 'a', None if name == 'a' else 1) for name in names]
        assert [as_tuple(entry) for entry in await backend.list_dir(root)] == expected

    async def test_listing_of_the_root_has_absolute_paths(
        self, backend: BackendProtocol, seed: Seed, root: str
    ) -> None:
        await seed(f'{root}/file', b'')
        for entry in await backend.list_dir('/'):
            assert entry.path == f'/{entry.name}'

    async def test_unreadable_file_is_an_error_and_hides_no_other_file(
        self,
        backend: BackendProtocol,
        seed: Seed,
        root: str,
        make_unreadable: Callable[[str], Awaitable[None]] | None,
    ) -> None:
        if make_unreadable is None:
            pytest.skip('nothing is unreadable here, or `make_unreadable` is to be provided')
        for name in ('a', 'b', 'c'):
            await seed(f'{root}/{name}', b'found\n')
        await make_unreadable(f'{root}/b')
        with pytest.raises(OSError):  # noqa: PT011 - the backend chooses the error; an empty result is not allowed
            await backend.read_bytes(f'{root}/b')
        result = await grep(backend, 'found', root)
        assert result.counts == {f'{root}/a': 1, f'{root}/c': 1}
        assert [problem.path for problem in result.problems] == [f'{root}/b']
