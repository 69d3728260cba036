"""Fixtures for backend tests."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pydantic_deep_backends import FileVersion, Tree
from pydantic_deep_backends.tracking import Captured, DirectoryRules, FileTracker, SupportsTracking


@pytest.fixture
def anyio_backend() -> str:
    return 'asyncio'


@pytest.fixture
def descriptors() -> Callable[[], list[str]]:
    """List the open descriptors of this process, after garbage collection: other tests may have left some."""

    def listed() -> list[str]:
        gc.collect()
        return sorted(os.listdir('/proc/self/fd'))

    return listed


@pytest.fixture
def children() -> Callable[[], set[str]]:
    """List the children of this process, zombies included: other tests of the worker may have left some."""

    def listed() -> set[str]:
        found: set[str] = set()
        for path in Path('/proc').glob('[0-9]*/stat'):
            with suppress(OSError):  # the process has ended
                if path.read_text().rpartition(')')[2].split()[1] == str(os.getpid()):
                    found.add(path.parent.name)
        return found

    return listed


@dataclass(frozen=True)
class Named:
    """Ignores the names listed in an ignore file, in its directory and below."""

    names: frozenset[str] = frozenset()

    def with_ignore_file(self, data: bytes) -> DirectoryRules:
        return replace(self, names=self.names | set(data.decode().split()))

    def below(self, name: str) -> DirectoryRules:
        return self

    def leaves_out(self, name: str, *, is_dir: bool) -> bool:
        return name in self.names


def track(backend: SupportsTracking, *, max_file_bytes: int = 1000, tree: Tree | None = None) -> FileTracker:
    return backend.track(Named(), max_file_bytes=max_file_bytes, tree=tree)


def contents(captured: Captured, blobs: Mapping[str, bytes] = {}) -> dict[str, bytes]:
    """Return the files of a capture with their contents."""
    return {path: {**blobs, **captured.blobs}[version.digest] for path, version in captured.tree.items()}


def replaced(digest: str, size: int) -> FileVersion:
    return FileVersion(digest=digest, size=size)


def deep_directory(root: Path, name: str, levels: int) -> None:
    """Make nested directories, deeper than the longest path."""
    directory = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=directory)
        below = os.open(name, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(os.open('f', os.O_CREAT | os.O_WRONLY, dir_fd=directory))
    os.write(fd := os.open('f', os.O_WRONLY, dir_fd=directory), b'canary')
    os.close(fd)
    os.close(directory)


NOBODY = 65534


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """Drop root privileges, which would make every file readable. Yield a directory that the user owns."""
    directory = Path(tempfile.mkdtemp())
    if os.geteuid() != 0:
        yield directory
    else:
        os.chown(directory, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield directory
        finally:
            os.seteuid(0)
    for path in directory.rglob('*'):
        path.chmod(0o700)
    shutil.rmtree(directory)


def open_descriptors() -> int:
    gc.collect()  # garbage of other tests may hold descriptors
    return len(os.listdir('/proc/self/fd' if os.path.isdir('/proc/self/fd') else '/dev/fd'))


def git(directory: Path, *arguments: str) -> str:
    """Run git as a user does, without the configuration of this machine."""
    env = {'PATH': os.environ['PATH'], 'HOME': '/nonexistent', 'GIT_CONFIG_NOSYSTEM': '1'}
    done = subprocess.run(['git', *arguments], cwd=directory, env=env, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A directory with a repository, a nested repository and editor settings."""
    root = tmp_path / 'root'
    (root / 'vendor' / 'lib').mkdir(parents=True)
    git(root, 'init', '-q')
    git(root / 'vendor' / 'lib', 'init', '-q')
    (root / '.vscode').mkdir()
    (root / '.vscode' / 'settings.json').write_text('{}')
    (root / 'notes.md').write_text('notes\n')
    return root
