"""The directory of a `LocalBackend`: its root, its listings, and errors that name a path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pydantic_deep_backends.errors import BackendUnavailableError, InvalidPathError
from pydantic_deep_backends.local import LocalBackend
from pydantic_deep_backends.protocol import BackendRef, FileEntry

pytestmark = pytest.mark.anyio


def test_refs_of_one_directory_are_equal_for_every_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'real').mkdir()
    (tmp_path / 'link').symlink_to('real')
    monkeypatch.chdir(tmp_path)
    expected = BackendRef(provider='local', id=str((tmp_path / 'real').resolve()))
    for root in ('real', './link', tmp_path / 'real', tmp_path / 'link' / '..' / 'link'):
        assert LocalBackend(root).ref == expected


async def test_relative_root_is_resolved_at_construction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'root').mkdir()
    monkeypatch.chdir(tmp_path)
    backend = LocalBackend('root')
    monkeypatch.chdir('/')
    await backend.write_bytes('/f', b'')
    assert (tmp_path / 'root' / 'f').exists()


async def test_linked_root_is_resolved_at_first_use(tmp_path: Path) -> None:
    for name in ('one', 'two'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'f').write_text(name)
    (tmp_path / 'link').symlink_to('one')
    backend = LocalBackend(tmp_path / 'link')
    ref = backend.ref
    (tmp_path / 'link').unlink()
    (tmp_path / 'link').symlink_to('two')
    assert await backend.read_bytes('/f') == b'one'
    assert backend.ref == ref


@pytest.mark.parametrize('names', [[], ['root']], ids=['missing', 'file'])
async def test_invalid_root_is_unavailable_and_not_created(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    backend = LocalBackend(tmp_path / 'root')
    with pytest.raises(BackendUnavailableError, match=r'root. is not a directory. Create it'):
        await backend.working_dir()
    with pytest.raises(BackendUnavailableError):
        await backend.exists('/f')
    with pytest.raises(BackendUnavailableError):
        await backend.write_bytes('/f', b'')
    assert os.listdir(tmp_path) == names


async def test_removed_root_is_unavailable_until_recreated(tmp_path: Path) -> None:
    root = tmp_path / 'root'
    root.mkdir()
    backend = LocalBackend(root)
    await backend.write_bytes('/f', b'')
    shutil.rmtree(root)
    for operation in (backend.read_bytes, backend.stat, backend.exists, backend.list_dir, backend.make_dir):
        with pytest.raises(BackendUnavailableError):
            await operation('/f')
    with pytest.raises(BackendUnavailableError):
        await backend.compare_and_swap('/f', b'', expected=None)
    with pytest.raises(BackendUnavailableError):
        await backend.snapshot()
    root.mkdir()
    assert list(await backend.snapshot()) == []


async def test_root_created_later_becomes_available(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / 'root')
    with pytest.raises(BackendUnavailableError):
        await backend.working_dir()
    (tmp_path / 'root').mkdir()
    assert await backend.working_dir() == '/'


async def test_unreadable_root_error_names_the_root(unprivileged: Path) -> None:
    (unprivileged / 'root').mkdir(mode=0)
    with pytest.raises(PermissionError, match=str(unprivileged / 'root')):
        await LocalBackend(unprivileged / 'root').working_dir()


async def test_working_dir_is_the_root(backend: LocalBackend) -> None:
    assert await backend.working_dir() == '/'
    assert await backend.stat('/') == FileEntry(name='', path='/', is_dir=True, size=None)


async def test_errors_name_the_requested_path(backend: LocalBackend) -> None:
    await backend.write_bytes('/d/f', b'')
    with pytest.raises(FileNotFoundError) as missing:
        await backend.read_bytes('/d/no')
    with pytest.raises(IsADirectoryError) as directory:
        await backend.read_bytes('/d')
    with pytest.raises(NotADirectoryError) as file:
        await backend.list_dir('/d/f')
    assert [error.value.filename for error in (missing, directory, file)] == ['/d/no', '/d', '/d/f']


async def test_entries_are_sorted_and_omit_temporary_files(backend: LocalBackend, tmp_path: Path) -> None:
    for name in ('b', 'a', 'C', '.hidden', f'.pydantic-deep-{"0" * 32}.tmp', '.pydantic-deep-1.tmp'):
        (tmp_path / name).write_text('canary')
    shown = ['.hidden', '.pydantic-deep-1.tmp', 'C', 'a', 'b']
    assert [entry.name for entry in await backend.list_dir('/')] == shown
    assert [match.path for match in (await backend.grep('canary')).matches] == ['/C', '/a', '/b']
    assert list(await backend.snapshot()) == [f'/{name}' for name in shown]


async def test_invalid_names_are_listed_and_removed_with_their_directory(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir()
    names = ['two\nlines', 'bell\a', os.fsdecode(b'latin-\xe9'), 'back\\slash']
    for name in names:
        (tmp_path / 'd' / name).write_text('canary')
    (tmp_path / 'd' / 'good').write_text('canary')
    assert {entry.name for entry in await backend.list_dir('/d')} == {*names, 'good'}
    for name in names:
        with pytest.raises(InvalidPathError):
            await backend.read_bytes(f'/d/{name}')
    assert list(await backend.snapshot()) == ['/d/good']
    assert len((await backend.grep('canary')).problems) == len(names)
    await backend.remove('/d')
    assert os.listdir(tmp_path) == []
