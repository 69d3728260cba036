"""Fixtures of the conformance tests, and names and paths that tests of backends share."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

import pytest

from pydantic_deep_backends.protocol import (
    BackendProtocol,
    FileEntryLike,
    SandboxProtocol,
    SupportsCompareAndSwap,
    SupportsIdentity,
    SupportsSearch,
    SupportsSnapshots,
)
from pydantic_deep_backends.search import GlobResult, GrepResult, glob_backend, grep_backend

T = TypeVar('T')

Seed: TypeAlias = Callable[[str, bytes], Awaitable[None]]
"""Writes a file into a backend by any available means, including its parent directories."""


HOSTILE_PATHS: Final = (
    '', '.', '..', 'a', 'a/b', './a', '../a', '/..', '/../etc/passwd', '/a/../../b',
    '~', '~/a', '~root', '/~', '/~root/a', 'C:', 'C:/a', 'c:\\a', '/C:/a', '/a\\b', '/..\\a', '\\\\server\\share',
    '//', '//server/share', '/a\0b', '/a\0', '/a\nb', '/a\rb', '/a\x1bb', '/a\x7f', '/a\x85', '/a/' + 'b' * 256,
    '/' + 'é' * 128, '/a' * 2049, '/\ud800', '/a\udcffb',
)  # fmt: skip
"""Paths that every operation rejects with `InvalidPathError`. Backends may reject any `..`: agents resolve it first."""


GOOD_NAMES: Final = (
    'a', '...', '..a', 'a..', 'foo..bar', '.hidden', ' ', ' a ', 'a.', '-rf', "it's", '"', '`id`', '$(id)', '%2e%2e',
    '*', '?', '[a]', '{a,b}', '#', '&', '|', ';', 'ab:c', 'naïve', '日本語', '．．', '\u202egnp.exe', 'a' * 255, 'é' * 127,
    'CON', 'a~',
)  # fmt: skip
"""Names that look dangerous but are valid and have no special meaning."""


WRITERS: Final = 8
"""Number of concurrent writers in the tests of lost updates."""


@runtime_checkable
class SwappingBackend(BackendProtocol, SupportsCompareAndSwap, Protocol):
    """A backend with compare-and-swap."""


@runtime_checkable
class CapturingBackend(BackendProtocol, SupportsSnapshots, Protocol):
    """A backend with snapshots."""


async def glob(backend: BackendProtocol, pattern: str, path: str) -> GlobResult:
    if isinstance(backend, SupportsSearch):
        return await backend.glob(pattern, path)
    return await glob_backend(backend, pattern, path)


async def grep(
    backend: BackendProtocol, pattern: str, path: str, *, glob: str | None = None, limit: int = 1000
) -> GrepResult:
    if isinstance(backend, SupportsSearch):
        return await backend.grep(pattern, path, glob=glob, limit=limit)
    return await grep_backend(backend, pattern, path, glob=glob, limit=limit)


def as_tuple(entry: FileEntryLike) -> tuple[str, str, bool, int | None]:
    return entry.name, entry.path, entry.is_dir, entry.size


def _require(backend: BackendProtocol, protocol: type[T]) -> T:
    """Return the backend, or skip the test if it does not implement a protocol."""
    if not isinstance(backend, protocol):
        pytest.skip(f'the backend is not a {protocol.__name__}')
    return backend


class BackendRules:
    """Fixtures of the conformance tests."""

    pytestmark: ClassVar[pytest.MarkDecorator] = pytest.mark.anyio

    @pytest.fixture
    def seed(self, backend: BackendProtocol) -> Seed:
        """Writes files into `backend`. Override it if the backend is read-only."""
        return backend.write_bytes

    @pytest.fixture
    def is_read_only(self) -> bool:
        """Whether the backend rejects every change."""
        return False

    @pytest.fixture
    async def root(self, backend: BackendProtocol) -> str:
        """The directory for the files of a test, a new one in the working directory."""
        return posixpath.join(await backend.working_dir(), 'conformance')

    @pytest.fixture
    def make_unreadable(self) -> Callable[[str], Awaitable[None]] | None:
        """Makes a file unreadable to the backend; enables the tests of unreadable files."""
        return None

    @pytest.fixture
    def writable(self, backend: BackendProtocol, is_read_only: bool) -> BackendProtocol:
        """The backend, for tests that write."""
        if is_read_only:
            pytest.skip('the backend is read-only')
        return backend

    @pytest.fixture
    def swapping(self, backend: BackendProtocol) -> SwappingBackend:
        """The backend, for tests of compare-and-swap."""
        return _require(backend, SwappingBackend)

    @pytest.fixture
    def identified(self, backend: BackendProtocol) -> SupportsIdentity:
        """The backend, for tests of identities."""
        return _require(backend, SupportsIdentity)

    @pytest.fixture
    def sandbox(self, backend: BackendProtocol) -> SandboxProtocol:
        """The backend, for tests of commands."""
        return _require(backend, SandboxProtocol)

    @pytest.fixture
    def tree_root(self, root: str) -> str:
        """The path of `root` in trees. Override it if the paths of trees start elsewhere."""
        return root

    @pytest.fixture
    def capturing(self, backend: BackendProtocol) -> CapturingBackend:
        """The backend, for tests of snapshots."""
        return _require(backend, CapturingBackend)
