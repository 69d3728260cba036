"""Identity of a directory: a copy, a recreated directory and a directory of another machine are different."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from pydantic_deep_backends import (
    CompositeBackend,
    LocalBackend,
    OverlayBackend,
    ReadOnlyBackend,
    ReadOnlyError,
    SandboxBackend,
    StateBackend,
    SupportsIdentity,
)
from pydantic_deep_backends.local import _identity as module

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / 'work'
    root.mkdir()
    return root


@pytest.fixture(autouse=True)
def _fresh() -> Generator[None]:
    """Clear the cached machine id after each test."""
    yield
    module._machine.cache_clear()  # pyright: ignore[reportPrivateUsage] - the cached machine id


async def _identity(root: Path) -> str:
    identity = await LocalBackend(root).identity()
    assert identity is not None
    return identity


async def test_changes_preserve_the_identity_of_a_directory(root: Path, tmp_path: Path) -> None:
    backend = LocalBackend(root)
    identity = await _identity(root)
    (root / 'a.txt').write_text('one')
    (root / 'sub').mkdir()
    os.utime(root, ns=(0, 0))
    assert await backend.has_identity(identity) is True
    shutil.rmtree(root / 'sub')
    (root / 'a.txt').unlink()
    assert await backend.has_identity(identity) is True
    link = tmp_path / 'link'
    link.symlink_to(root)
    assert await LocalBackend(link).has_identity(identity) is True
    assert await SandboxBackend(root).has_identity(identity) is True


async def test_renamed_directory_keeps_its_identity_but_its_copy_differs(root: Path, tmp_path: Path) -> None:
    (root / 'a.txt').write_text('one')
    identity = await _identity(root)
    aside = tmp_path / 'aside'
    root.rename(aside)
    assert await LocalBackend(root).has_identity(identity) is False
    assert await LocalBackend(aside).has_identity(identity) is True
    await anyio.run_process(['cp', '-a', str(aside), str(root)])
    assert await LocalBackend(root).has_identity(identity) is False
    shutil.rmtree(root)
    aside.rename(root)
    assert await LocalBackend(root).has_identity(identity) is True


async def test_recreated_directory_with_the_same_inode_is_different(root: Path) -> None:
    backend = LocalBackend(root)
    identity = await _identity(root)
    while json.loads(identity)['changed_ns'] == json.loads(identity)['born_ns']:  # the clock ticks every few ms
        (root / 'a.txt').touch()
        (root / 'a.txt').unlink()
        identity = await _identity(root)
    inode = json.loads(identity)['inode']
    for _ in range(200):
        shutil.rmtree(root)
        root.mkdir()
        assert await backend.has_identity(identity) is False
        if root.stat().st_ino == inode:
            break


async def test_directory_on_another_machine_is_different(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = await _identity(root)
    id_file = root / 'machine-id'
    monkeypatch.setattr(module, '_MACHINE_IDS', (str(root / 'missing'), str(id_file)))
    found: list[str] = []
    for content in ('', '0123456789abcdef0123456789abcdef\n', 'fedcba9876543210fedcba9876543210\n'):
        id_file.write_text(content)
        module._machine.cache_clear()  # pyright: ignore[reportPrivateUsage]
        assert await LocalBackend(root).has_identity(identity) is False
        identity = await _identity(root)
        assert await LocalBackend(root).has_identity(identity) is True
        found.append(json.loads(identity)['machine'])
        assert not content or content.strip() not in identity
    assert found[0] == ''
    assert len(set(found)) == 3


async def test_directory_on_a_rolled_back_disk_is_different(root: Path) -> None:
    identity = json.loads(await _identity(root))
    later = json.dumps({**identity, 'changed_ns': identity['changed_ns'] + 1})
    assert await LocalBackend(root).has_identity(later) is False


@pytest.mark.parametrize('reason', ['no statx', 'refused', 'not told', 'never'])
async def test_identity_is_unproven_without_birth_times(
    root: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """`never` is the birth time of directories in a disk image."""

    def statx(_directory: int, _name: bytes, _flags: int, _mask: int, found: ctypes.Array[ctypes.c_char]) -> int:
        found[0:4] = (0x7FF if reason == 'not told' else 0xFFF).to_bytes(4, sys.byteorder)
        return -1 if reason == 'refused' else 0

    libc = SimpleNamespace() if reason == 'no statx' else SimpleNamespace(statx=statx)
    certain = await _identity(root)
    monkeypatch.setattr(module, '_libc', lambda: libc)
    backend = LocalBackend(root)
    identity = await _identity(root)
    assert json.loads(identity)['born_ns'] is None
    assert await backend.has_identity(identity) is None
    assert await backend.has_identity(certain) is False
    other = {**json.loads(identity), 'inode': 7}
    assert await backend.has_identity(json.dumps(other)) is False
    later = {**json.loads(identity), 'changed_ns': 2**62}
    assert await backend.has_identity(json.dumps(later)) is False


async def test_birth_time_comes_from_fstat_without_statx(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, 'platform', 'darwin')
    identity = json.loads(await _identity(root))
    assert identity['born_ns'] is None

    def fstat(descriptor: int) -> object:
        status = os.fstat(descriptor)
        return SimpleNamespace(st_birthtime=12.5, st_ino=status.st_ino, st_ctime_ns=status.st_ctime_ns)

    monkeypatch.setattr(module, 'os', SimpleNamespace(fstat=fstat))
    assert json.loads(await _identity(root)) == {**identity, 'born_ns': 12_500_000_000}


@pytest.mark.parametrize('make', [LocalBackend, SandboxBackend])
async def test_missing_root_is_recreated_with_another_identity(
    root: Path, make: type[LocalBackend] | type[SandboxBackend]
) -> None:
    backend = make(root)
    identity = await backend.identity()
    assert identity is not None
    shutil.rmtree(root.parent)
    assert await backend.identity() is None
    assert await backend.has_identity(identity) is False
    await backend.make_root()
    assert await backend.has_identity(identity) is False
    assert await backend.list_dir(await backend.working_dir()) == []
    root.rmdir()
    root.write_text('a file')
    with pytest.raises(FileExistsError, match='work'):
        await backend.make_root()
    assert await backend.identity() is None


async def test_read_only_backend_has_an_identity_but_never_creates_the_root(root: Path) -> None:
    backend = ReadOnlyBackend(LocalBackend(root))
    assert isinstance(backend, SupportsIdentity)
    identity = await backend.identity()
    assert identity is not None
    assert await backend.has_identity(identity) is True
    root.rmdir()
    with pytest.raises(ReadOnlyError):
        await backend.make_root()
    assert not root.exists()


async def test_composite_identity_covers_all_parts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = root.parent / 'mounted'
    mounted.mkdir()
    backend = CompositeBackend(LocalBackend(root), {'/memory': StateBackend(), '/shared': LocalBackend(mounted)})
    assert isinstance(backend, SupportsIdentity)
    identity = await backend.identity()
    assert identity is not None
    assert await backend.has_identity(identity) is True
    other_identity = {**json.loads(identity), '/shared': 'of another form'}
    assert await backend.has_identity(json.dumps(other_identity)) is None
    mounted.rmdir()
    assert await backend.identity() is None
    assert await backend.has_identity(identity) is False
    assert await backend.has_identity(json.dumps({'/': json.loads(identity)['/']})) is None
    await backend.make_root()
    assert mounted.is_dir()
    assert await backend.has_identity(identity) is False


def test_state_and_overlay_backends_have_no_identity() -> None:
    assert not isinstance(StateBackend(), SupportsIdentity)
    assert not isinstance(CompositeBackend(StateBackend(), {'/a': StateBackend()}), SupportsIdentity)
    assert not isinstance(ReadOnlyBackend(StateBackend()), SupportsIdentity)
    assert not isinstance(OverlayBackend(StateBackend()), SupportsIdentity)
