"""Tests of backend identity and paths."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable

import pytest

from pydantic_deep_backends.errors import InvalidPathError
from pydantic_deep_backends.protocol import BackendProtocol, SupportsCompareAndSwap

from ._base import GOOD_NAMES, HOSTILE_PATHS, BackendRules, Seed, glob, grep


class PathRules(BackendRules):
    """Tests of identity and paths."""

    async def test_backend_implements_the_protocol(self, backend: BackendProtocol) -> None:
        assert isinstance(backend, BackendProtocol)

    async def test_ref_does_not_change(self, backend: BackendProtocol) -> None:
        await backend.working_dir()
        assert backend.ref is not None
        assert backend.ref == backend.ref

    async def test_working_directory_exists_and_is_absolute_and_canonical(self, backend: BackendProtocol) -> None:
        path = await backend.working_dir()
        assert path.startswith('/')
        assert posixpath.normpath(path) == path
        assert await backend.realpath(path) == path
        assert (await backend.stat(path)).is_dir

    @pytest.mark.parametrize('path', HOSTILE_PATHS, ids=ascii)
    async def test_every_operation_refuses_malformed_paths(self, backend: BackendProtocol, path: str) -> None:
        operations: list[Callable[[], Awaitable[object]]] = [
            lambda: backend.read_bytes(path),
            lambda: backend.write_bytes(path, b''),
            lambda: backend.stat(path),
            lambda: backend.list_dir(path),
            lambda: backend.make_dir(path),
            lambda: backend.remove(path),
            lambda: backend.exists(path),
            lambda: backend.realpath(path),
            lambda: glob(backend, '**', path),
            lambda: grep(backend, 'a', path),
        ]
        if isinstance(backend, SupportsCompareAndSwap):
            swapping = backend
            operations.append(lambda: swapping.compare_and_swap(path, b'', expected=None))
        for operation in operations:
            with pytest.raises(InvalidPathError):
                await operation()

    @pytest.mark.parametrize('name', GOOD_NAMES, ids=ascii)
    async def test_unusual_names_are_valid(self, backend: BackendProtocol, seed: Seed, root: str, name: str) -> None:
        path = f'{root}/{name}'
        await seed(path, name.encode())
        assert await backend.read_bytes(path) == name.encode()
        assert [(entry.name, entry.path) for entry in await backend.list_dir(root)] == [(name, path)]

    async def test_spellings_of_one_path_name_the_same_file(
        self, backend: BackendProtocol, seed: Seed, root: str
    ) -> None:
        await seed(f'{root}/a/b', b'x')
        for spelling in (f'{root}//a/b', f'{root}/./a/./b', f'{root}/a/b/', f'{root}/a//b/.'):
            assert await backend.read_bytes(spelling) == b'x'
            assert (await backend.stat(spelling)).path == f'{root}/a/b'
            assert await backend.realpath(spelling) == f'{root}/a/b'

    async def test_missing_file_has_a_real_path(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/a', b'')
        assert await backend.realpath(f'{root}/none/at/all') == f'{root}/none/at/all'
        assert await backend.realpath('/') == '/'
