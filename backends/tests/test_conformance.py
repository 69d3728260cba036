"""Every backend of this package against the rules for all backends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    FileEntry,
    LocalBackend,
    ReadOnlyBackend,
    StateBackend,
    SupportsCompareAndSwap,
    SupportsSearch,
    SupportsSnapshots,
)
from pydantic_deep_backends.conformance import BackendSuite, Seed
from pydantic_deep_backends.paths import parse_path


class PlainBackend:
    """What a stranger may write: the members of `BackendProtocol` and nothing else."""

    def __init__(self) -> None:
        self.files = StateBackend()
        self.unreadable: set[str] = set()

    @property
    def ref(self) -> object:
        return self.files.ref

    async def working_dir(self) -> str:
        return await self.files.working_dir()

    async def read_bytes(self, path: str) -> bytes:
        if parse_path(path) in self.unreadable:
            raise PermissionError(13, 'Permission denied', path)
        return await self.files.read_bytes(path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        await self.files.write_bytes(path, data)

    async def stat(self, path: str) -> FileEntry:
        return await self.files.stat(path)

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        return await self.files.list_dir(path)

    async def make_dir(self, path: str) -> None:
        await self.files.make_dir(path)

    async def remove(self, path: str) -> None:
        await self.files.remove(path)

    async def exists(self, path: str) -> bool:
        return await self.files.exists(path)

    async def realpath(self, path: str) -> str:
        return await self.files.realpath(path)


class TestStateBackend(BackendSuite):
    @pytest.fixture
    def backend(self) -> StateBackend:
        return StateBackend()


class TestLocalBackend(BackendSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> LocalBackend:
        return LocalBackend(tmp_path)


class TestPlainBackend(BackendSuite):
    @pytest.fixture
    def backend(self) -> PlainBackend:
        return PlainBackend()

    @pytest.fixture
    def make_unreadable(self, backend: PlainBackend) -> Callable[[str], Awaitable[None]]:
        async def make(path: str) -> None:
            backend.unreadable.add(path)

        return make

    async def test_it_has_no_other_capability(self, backend: BackendProtocol) -> None:
        assert not isinstance(backend, SupportsSearch | SupportsCompareAndSwap | SupportsSnapshots)


class TestCompositeBackend(BackendSuite):
    """The files of the rules are in the default backend, beside a mount."""

    @pytest.fixture
    def backend(self) -> CompositeBackend:
        return CompositeBackend(StateBackend(), {'/mounted': StateBackend()})


class TestMount(BackendSuite):
    """The files of the rules are in a mounted backend."""

    @pytest.fixture
    def backend(self) -> CompositeBackend:
        return CompositeBackend(StateBackend(), {'/mounted/deep': StateBackend()})

    @pytest.fixture
    async def root(self) -> str:
        return '/mounted/deep/conformance'


class TestMountPoint(BackendSuite):
    """The directory of the rules is a mount point itself."""

    @pytest.fixture
    def backend(self) -> CompositeBackend:
        return CompositeBackend(StateBackend(), {'/conformance': StateBackend()})


class TestReadOnlyBackend(BackendSuite):
    @pytest.fixture
    def files(self) -> StateBackend:
        return StateBackend()

    @pytest.fixture
    def backend(self, files: StateBackend) -> ReadOnlyBackend:
        return ReadOnlyBackend(files)

    @pytest.fixture
    def seed(self, files: StateBackend) -> Seed:
        return files.write_bytes

    @pytest.fixture
    def is_read_only(self) -> bool:
        return True
