"""Paths that are protected because of other files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from backends.tests.conftest import git
from pydantic_deep_backends import LocalBackend, StateBackend
from pydantic_deep_backends.protection import PROTECTED_FILES, is_protected

pytestmark = pytest.mark.anyio


async def test_bare_repository_is_recognized_by_its_contents(tmp_path: Path):
    """A repository can have any name: a directory with `HEAD` and `objects` is one."""
    git(tmp_path, 'init', '-q', '--bare', 'sub/mirror')
    backend = LocalBackend(tmp_path)
    for name in ('config', 'hooks/post-update', 'info/exclude', 'commondir'):
        assert await is_protected(backend, f'/sub/mirror/{name}', PROTECTED_FILES)
    assert not await is_protected(backend, '/sub/config', PROTECTED_FILES)
    assert '/sub/mirror/config' in await backend.protected_files()


async def test_target_of_a_protected_link_is_protected(repository: Path):
    (repository / 'AGENTS.md').symlink_to('notes.md')
    (repository / 'settings').mkdir()
    (repository / '.idea').symlink_to('settings')
    backend = LocalBackend(repository)
    assert await is_protected(backend, '/notes.md', PROTECTED_FILES)
    assert await is_protected(backend, '/settings/a.xml', PROTECTED_FILES)
    states = await backend.protected_files()
    assert {'/notes.md', '/AGENTS.md', '/.idea'} <= states.keys()


async def test_directory_with_protected_files_is_protected(repository: Path):
    assert await is_protected(LocalBackend(repository), '/vendor', PROTECTED_FILES)
    assert not await is_protected(LocalBackend(repository), '/.git/objects', PROTECTED_FILES)
    assert not await is_protected(StateBackend({'/a/b': ''}), '/a', PROTECTED_FILES)


async def test_backend_errors_do_not_weaken_protection_by_name():
    class Broken(StateBackend):
        async def exists(self, path: str) -> bool:
            raise OSError

        async def realpath(self, path: str) -> str:
            raise OSError

    assert not await is_protected(
        Broken({'/x/HEAD': '', '/.git/config': '[include]\npath = y'}), '/x/config', PROTECTED_FILES
    )
    assert await is_protected(Broken(), '/.git/config', PROTECTED_FILES)


async def test_git_module_without_head_is_recognized(repository: Path):
    module = repository / '.git' / 'modules' / 'lib'
    module.mkdir(parents=True)
    (module / 'config').write_text('[core]\n')
    assert '/.git/modules/lib/config' in await LocalBackend(repository).protected_files()


async def test_work_tree_and_linked_repository_are_protected(repository: Path):
    git(repository, '-c', 'user.name=a', '-c', 'user.email=b', 'commit', '-q', '--allow-empty', '-m', 'x')
    git(repository, 'worktree', 'add', '-q', 'tree')
    shutil.move(repository / 'vendor' / 'lib' / '.git', repository / 'vendor' / 'real')
    (repository / 'vendor' / 'lib' / '.git').symlink_to('../real')
    states = await LocalBackend(repository).protected_files()
    assert {'/tree/.git', '/.git/worktrees/tree/commondir', '/.git/worktrees/tree/gitdir'} <= states.keys()
    assert {'/vendor/lib/.git', '/vendor/real/config'} <= states.keys()
