"""States of the protected files of a directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pydantic_deep_backends import LocalBackend
from pydantic_deep_backends.local import _protected_scan as scan_module
from pydantic_deep_backends.local._protected_scan import MAX_READ_BYTES
from pydantic_deep_backends.protection import ProtectedChange, compare_protected

pytestmark = pytest.mark.anyio


async def test_protected_file_states_detect_every_change(repository: Path):
    """States cover contents, the executable bit, links and file types. Sample hooks and unprotected files have none."""
    backend = LocalBackend(repository)
    hooks = repository / '.git' / 'hooks'
    (hooks / 'old').write_text('#!/bin/sh\n')
    (repository / '.envrc').write_text('a')
    (repository / 'sub').mkdir()
    before = await backend.protected_files()
    assert '/.git/config' in before
    assert '/vendor/lib/.git/config' in before
    assert not [path for path in before if path.endswith('.sample') or 'objects' in path or path == '/notes.md']
    (repository / '.envrc').write_text('b')
    (hooks / 'old').chmod(0o755)
    (repository / '.vscode' / 'settings.json').unlink()
    (repository / 'sub' / '.envrc').symlink_to('/etc/hostname')
    os.mkfifo(repository / 'sub' / '.gitattributes')
    (repository / 'sub' / '.git').write_text('gitdir: ../evil\n')
    with (repository / 'AGENTS.md').open('wb') as large:
        large.truncate(MAX_READ_BYTES + 1)
    after = await backend.protected_files()
    assert compare_protected(before, after) == (
        ProtectedChange(path='/.envrc', change='changed'),
        ProtectedChange(path='/.git/hooks/old', change='changed'),
        ProtectedChange(path='/.vscode/settings.json', change='removed'),
        ProtectedChange(path='/AGENTS.md', change='added'),
        ProtectedChange(path='/sub/.envrc', change='added'),
        ProtectedChange(path='/sub/.git', change='added'),
        ProtectedChange(path='/sub/.gitattributes', change='added'),
    )
    assert compare_protected(after, await backend.protected_files()) == ()


async def test_unchanged_protected_files_are_not_scanned_again(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """A second scan reads only new files. The index has a fake clock, so that no time has to pass."""
    backend = LocalBackend(repository)
    index = backend._protected_index  # pyright: ignore[reportPrivateUsage] - only its clock is set
    index.clock = lambda: 2**62
    before = await backend.protected_files()
    listed: list[int] = []
    read: list[str] = []
    list_entries, contents = scan_module.list_entries, scan_module._contents  # pyright: ignore[reportPrivateUsage] - counted below

    def counted_list(directory: int) -> list[os.DirEntry[str]]:
        listed.append(directory)
        return list_entries(directory)

    def counted_read(directory: int, name: str) -> bytes:
        read.append(name)
        return contents(directory, name)

    # Counted inside the scan module: no public operation reports reads.
    monkeypatch.setattr(scan_module, 'list_entries', counted_list)
    monkeypatch.setattr(scan_module, '_contents', counted_read)
    assert await backend.protected_files() == before
    assert len(listed) == 5  # the protected directories: hooks and info of each repository, and .vscode
    assert set(read) == {'config'}  # read for the paths that they name, not for their state
    (repository / '.envrc').write_text('new')
    assert compare_protected(before, await backend.protected_files()) == (
        ProtectedChange(path='/.envrc', change='added'),
    )
    assert '.envrc' in read


async def test_unreadable_protected_file_has_a_state(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """Root can read everything, so the read failure is simulated."""

    def fail(directory: int, name: str) -> bytes:
        raise PermissionError(13, 'Permission denied')

    monkeypatch.setattr(scan_module, '_contents', fail)
    states = await LocalBackend(repository).protected_files()
    assert states['/.git/config'] == 'unreadable: Permission denied'


async def test_files_that_vanish_during_a_scan_are_absent(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """Removed between listing and stat. The race is simulated, because it cannot be triggered reliably."""
    (repository / '.envrc').write_text('')
    list_entries = scan_module.list_entries

    def vanishing(directory: int) -> list[os.DirEntry[str]]:
        entries = list_entries(directory)
        (repository / '.envrc').unlink(missing_ok=True)
        shutil.rmtree(repository / 'vendor', ignore_errors=True)
        return entries

    monkeypatch.setattr(scan_module, 'list_entries', vanishing)
    states = await LocalBackend(repository).protected_files()
    assert '/.git/config' in states
    assert not [path for path in states if path.startswith(('/.envrc', '/vendor'))]
