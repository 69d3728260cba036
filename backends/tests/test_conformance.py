"""Conformance of every backend of this package."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from backends.tests.conformance.conftest import PlainBackend
from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    FileVersion,
    LocalBackend,
    ReadOnlyBackend,
    StateBackend,
    SupportsCompareAndSwap,
    SupportsSearch,
    SupportsSnapshots,
    Tree,
    WrapperBackend,
    digest_of,
)
from pydantic_deep_backends.conformance import BackendSuite, Seed
from pydantic_deep_backends.files._operations import MAX_READ_BYTES

pytestmark = pytest.mark.anyio


class TestStateBackend(BackendSuite):
    @pytest.fixture
    def backend(self) -> StateBackend:
        return StateBackend()


class Forgetful(StateBackend):
    """Has only the tree of its files, and fetches contents on every read."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, bytes] = {}
        self._read_blob = self.fetch

    async def fetch(self, digest: str) -> bytes:
        return self.data[digest]

    async def write_bytes(self, path: str, data: bytes) -> None:
        await super().write_bytes(path, data)
        self.data[digest_of(bytes(data))] = bytes(data)
        self._files = Tree.of(
            {at: FileVersion(digest=each.digest, size=each.size, mode=each.mode) for at, each in self._files.items()}
        )


class TestFilesThatAreFetched(BackendSuite):
    @pytest.fixture
    def backend(self) -> Forgetful:
        return Forgetful()


class TestLocalBackend(BackendSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> LocalBackend:
        return LocalBackend(tmp_path)

    @pytest.fixture
    def make_unreadable(self, tmp_path: Path) -> Callable[[str], Awaitable[None]]:
        """Exceed the size limit, which affects root too. The tests of `LocalBackend` cover permissions."""

        async def make(path: str) -> None:
            os.truncate(tmp_path / path.removeprefix('/'), MAX_READ_BYTES + 1)

        return make


class TestPlainBackend(BackendSuite):
    @pytest.fixture
    def backend(self) -> PlainBackend:
        return PlainBackend()

    @pytest.fixture
    def make_unreadable(self, backend: PlainBackend) -> Callable[[str], Awaitable[None]]:
        async def make(path: str) -> None:
            backend.unreadable.add(path)

        return make

    async def test_plain_backend_has_no_optional_capability(self, backend: BackendProtocol) -> None:
        assert not isinstance(backend, SupportsSearch | SupportsCompareAndSwap | SupportsSnapshots)


class TestCompositeBackend(BackendSuite):
    """The tested files are in the default backend, beside a mount."""

    @pytest.fixture
    def backend(self) -> CompositeBackend:
        return CompositeBackend(StateBackend(), {'/mounted': StateBackend()})


class TestMount(BackendSuite):
    """The tested files are in a mounted backend."""

    @pytest.fixture
    def backend(self) -> CompositeBackend:
        return CompositeBackend(StateBackend(), {'/mounted/deep': StateBackend()})

    @pytest.fixture
    async def root(self) -> str:
        return '/mounted/deep/conformance'


class TestMountPoint(BackendSuite):
    """The tested directory is a mount point."""

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


class TestWrapperBackend(BackendSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> WrapperBackend:
        return WrapperBackend(LocalBackend(tmp_path, allow_commands=True))

    @pytest.fixture
    def tree_root(self) -> str:
        return '/conformance'
