"""Conformance of every backend of this package."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    FileEntry,
    FileVersion,
    LocalBackend,
    ReadBlob,
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
from pydantic_deep_backends.paths import parse_path

pytestmark = pytest.mark.anyio


class PlainBackend(WrapperBackend):
    """Only the members of `BackendProtocol`, like a third-party backend."""

    capabilities = ()

    def __init__(self) -> None:
        super().__init__(StateBackend())
        self.unreadable: set[str] = set()

    async def read_bytes(self, path: str) -> bytes:
        if parse_path(path) in self.unreadable:
            raise PermissionError(13, 'Permission denied', path)
        return await super().read_bytes(path)


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


# The rules themselves: each must fail for a backend that violates it.


class Lossy(StateBackend):
    """Does not compare before it swaps."""

    async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        await self.write_bytes(path, data)


class Torn(StateBackend):
    """Writes in two steps, and others see the first."""

    async def write_bytes(self, path: str, data: bytes) -> None:
        await super().write_bytes(path, data[: len(data) // 2])
        await anyio.lowlevel.checkpoint()
        await super().write_bytes(path, data)

    async def read_bytes(self, path: str) -> bytes:
        await anyio.lowlevel.checkpoint()
        return await super().read_bytes(path)


class Trusting(StateBackend):
    """Accepts every path."""

    async def realpath(self, path: str) -> str:
        return path


class Unsorted(StateBackend):
    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        return list(reversed(await super().list_dir(path)))


class Silent(PlainBackend):
    """Returns no bytes for unreadable files."""

    async def read_bytes(self, path: str) -> bytes:
        return b'' if path in self.unreadable else await super().read_bytes(path)


class Greedy(StateBackend):
    """Removes every path that begins with the same characters."""

    async def remove(self, path: str) -> None:
        for other in (await self.glob('conformance/**')).paths:
            if other.startswith(path):
                await super().remove(other)


class HalfRestored(StateBackend):
    """Does not remove files missing from the tree, unless they block a path of the tree."""

    async def restore(self, tree: Tree, read_blob: ReadBlob | None = None) -> None:
        for path, version in (await self.snapshot()).items():
            if path not in tree and not tree.is_dir(path) and tree.file_above(path) is None:
                tree = tree.set(path, version)
        await super().restore(tree, read_blob)


class Hasty(StateBackend):
    """Removes files before it has the contents to write."""

    async def restore(self, tree: Tree, read_blob: ReadBlob | None = None) -> None:
        await super().restore(Tree())
        await super().restore(tree, read_blob)


RULES = BackendSuite()
FAILURES = (AssertionError, pytest.fail.Exception)


@pytest.mark.parametrize(
    ('backend', 'rule'),
    [
        (Lossy(), RULES.test_a_file_is_created_only_if_there_is_none),
        (Lossy(), RULES.test_a_file_is_replaced_only_if_it_is_what_was_read),
        (Lossy(), RULES.test_a_file_that_is_gone_is_not_replaced),
        (Lossy(), RULES.test_writers_of_one_file_lose_no_update),
        (Lossy(), RULES.test_one_of_many_creators_wins),
    ],
)
async def test_lost_update_violates_a_rule(
    backend: StateBackend, rule: Callable[[BackendProtocol, SupportsCompareAndSwap, str], Awaitable[None]]
) -> None:
    with pytest.raises(FAILURES):
        await rule(backend, backend, '/conformance')


@pytest.mark.parametrize(
    ('backend', 'rule'),
    [
        (Torn(), RULES.test_readers_see_the_old_contents_or_the_new),
        (Torn(), RULES.test_a_write_that_is_cancelled_is_done_or_not),
        (Greedy(), RULES.test_a_directory_is_removed_with_all_in_it_and_no_neighbour),
        (Greedy(), RULES.test_what_is_missing_cannot_be_removed),
        (Greedy(), RULES.test_the_working_directory_and_those_above_stay),
    ],
)
async def test_careless_write_violates_a_rule(
    backend: BackendProtocol, rule: Callable[[BackendProtocol, str], Awaitable[None]]
) -> None:
    with pytest.raises(FAILURES):
        await rule(backend, '/conformance')


@pytest.mark.parametrize(
    ('backend', 'rule'),
    [
        (HalfRestored(), RULES.test_a_restore_brings_every_file_back),
        (HalfRestored(), RULES.test_an_empty_tree_removes_every_file),
    ],
)
async def test_partial_restore_violates_a_rule(
    backend: StateBackend, rule: Callable[[BackendProtocol, SupportsSnapshots, str], Awaitable[None]]
) -> None:
    with pytest.raises(FAILURES):
        await rule(backend, backend, '/conformance')


async def test_restore_that_changes_files_without_contents_violates_a_rule() -> None:
    backend = Hasty()
    with pytest.raises(FAILURES):
        await RULES.test_nothing_changes_where_contents_are_missing(backend, backend, '/conformance', '/conformance')


async def test_unchecked_path_violates_a_rule() -> None:
    with pytest.raises(FAILURES):
        await RULES.test_a_malformed_path_is_refused_by_every_operation(Trusting(), '/../a')


async def test_unsorted_listing_violates_a_rule() -> None:
    backend = Unsorted()
    with pytest.raises(FAILURES):
        await RULES.test_a_listing_is_sorted_by_name_and_one_level_deep(backend, backend.write_bytes, '/conformance')


async def test_empty_result_for_an_unreadable_file_violates_a_rule() -> None:
    backend = Silent()

    async def make_unreadable(path: str) -> None:
        backend.unreadable.add(path)

    with pytest.raises(FAILURES):
        await RULES.test_what_cannot_be_read_is_an_error_and_hides_nothing(
            backend, backend.write_bytes, '/conformance', make_unreadable
        )
