"""Paths named by git configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep_backends import LocalBackend
from pydantic_deep_backends.local import _protected_scan as scan_module
from pydantic_deep_backends.local._protected_scan import MAX_READ_BYTES
from pydantic_deep_backends.protection import PROTECTED_FILES, is_protected

pytestmark = pytest.mark.anyio


async def test_paths_named_by_a_git_config_are_protected(repository: Path, tmp_path: Path):
    """`core.hooksPath` and included files decide which programs git runs, so they are protected like the
    configuration."""
    (repository / '.githooks').mkdir()
    (repository / '.githooks' / 'pre-commit').write_text('#!/bin/sh\n')
    (repository / 'team.cfg').write_text(f'[core]\nhooksPath = {repository}/more\n[include]\npath = ../missing\n')
    (repository / 'more').mkdir()
    (repository / 'more' / 'x').write_text('')
    with (repository / '.git' / 'config').open('a') as config:
        config.write(
            '[core] hooksPath = ".githooks" ; of the team\n[include]\n\tpath = ..\\\n/team.cfg # and this\n'
            '[includeIf "gitdir:~/x"]\npath = ~/other\npath = ../../outside\npath =\npath = /etc/hostname\n path\npath = "a\\\\b"\n'
            'path = ..\n[include]path=config\n'
        )
    backend = LocalBackend(repository)
    for path in ('/.githooks/new', '/team.cfg', '/more/x'):
        assert path == '/more/x' or await is_protected(backend, path, PROTECTED_FILES)
    assert not await is_protected(backend, '/notes.md', PROTECTED_FILES)
    assert {'/.githooks/pre-commit', '/team.cfg', '/more/x'} <= (await backend.protected_files()).keys()


async def test_odd_git_configs_are_read_within_bounds(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """A git directory as its own hooks directory, a link to the root, large files and long include chains are
    bounded."""
    (repository / 'large.cfg').write_bytes(b'#' * (MAX_READ_BYTES + 1) + b'\n[include]\npath = notes.md\n')
    with (repository / '.git' / 'config').open('a') as config:
        config.write('[core]\nhooksPath = .git\n[include]\npath = ../large.cfg\n')
    (repository / '.envrc').symlink_to('.')
    (repository / '.husky' / '_').mkdir(parents=True)
    (repository / '.husky' / '_' / 'pre-push').write_text('')
    states = await LocalBackend(repository).protected_files()
    assert {'/large.cfg', '/.envrc', '/.husky/_/pre-push'} <= states.keys()
    assert not {'/notes.md', '/.git/HEAD'} & states.keys()
    monkeypatch.setattr(scan_module, 'MAX_CONFIGS', 1)  # lowered, since real configurations never reach the limit
    (repository / 'vendor' / 'more.cfg').write_text('')
    with (repository / 'vendor' / 'lib' / '.git' / 'config').open('a') as config:
        config.write('[include]\npath = ../../more.cfg\n')
    assert {'/large.cfg', '/vendor/more.cfg'} - (await LocalBackend(repository).protected_files()).keys()
