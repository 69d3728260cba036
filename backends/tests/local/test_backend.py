"""`LocalBackend`: its capabilities, its snapshots, and its descriptors."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from backends.tests.conftest import open_descriptors
from pydantic_deep_backends.errors import FileChangedError
from pydantic_deep_backends.local import LocalBackend
from pydantic_deep_backends.protocol import (
    BackendProtocol,
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsSearch,
    SupportsSnapshots,
)

pytestmark = pytest.mark.anyio


def test_empty_root_is_refused() -> None:
    """`Path('')` is the current directory."""
    with pytest.raises(ValueError, match="`root` is ''"):
        LocalBackend('')


@pytest.mark.parametrize('flag', ['allow_commands', 'allow_hard_links'])
@pytest.mark.parametrize('value', ['no', 0, None])
def test_flags_are_bools(tmp_path: Path, flag: str, value: object) -> None:
    """A text such as that of an environment variable would be true, whatever it says."""
    options: dict[str, Any] = {flag: value}
    with pytest.raises(TypeError, match=f'`{flag}` is .* Pass True or False'):
        LocalBackend(tmp_path, **options)


def test_local_backend_supports_files_search_swaps_and_snapshots_but_no_commands(backend: LocalBackend) -> None:
    assert isinstance(backend, BackendProtocol)
    assert isinstance(backend, SupportsSearch)
    assert isinstance(backend, SupportsCompareAndSwap)
    assert isinstance(backend, SupportsSnapshots)
    assert not isinstance(backend, SupportsCommands)


def test_repr_shows_the_given_directory(tmp_path: Path) -> None:
    assert repr(LocalBackend(tmp_path / 'a')) == f'LocalBackend({str(tmp_path / "a")!r})'


@pytest.mark.parametrize('closed', ['d', 'd/f'])
async def test_snapshot_fails_at_an_unreadable_path_and_names_it(unprivileged: Path, closed: str) -> None:
    (unprivileged / 'd').mkdir()
    (unprivileged / 'd' / 'f').touch()
    (unprivileged / closed).chmod(0)
    with pytest.raises(PermissionError) as caught:
        await LocalBackend(unprivileged).snapshot()
    assert caught.value.filename == f'/{closed}'


@pytest.mark.slow
async def test_operations_leave_no_descriptors_open(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.write_bytes('/d/f', b'data')
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'out').symlink_to('/etc')
    (tmp_path / 'loop').symlink_to('loop')
    (tmp_path / 'link').symlink_to('d/../d/f')
    operations: list[Callable[[str], Awaitable[object]]] = [
        backend.read_bytes,
        backend.stat,
        backend.list_dir,
        backend.realpath,
        backend.make_dir,
        lambda path: backend.write_bytes(path, b'data'),
        lambda path: backend.compare_and_swap(path, b'', expected=None),
        lambda path: backend.glob('**', path),
        lambda path: backend.grep('data', path),
    ]
    before = open_descriptors()
    failures = 0
    for path in ('/d/f', '/d', '/pipe', '/out', '/out/passwd', '/loop', '/loop/f', '/d/f/x', '/link', '/no') * 3:
        for operation in operations:
            try:
                await operation(path)
            except (OSError, FileChangedError):
                failures += 1
        await backend.snapshot()
    assert failures > 100
    assert open_descriptors() == before
