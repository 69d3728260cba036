"""Fixtures and helpers for tests of protected files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


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
