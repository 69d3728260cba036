"""Fixtures and helpers of the tests in this folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def git(directory: Path, *arguments: str) -> str:
    """Run git as a person does, without the configuration of this machine."""
    env = {'PATH': os.environ['PATH'], 'HOME': '/nonexistent', 'GIT_CONFIG_NOSYSTEM': '1'}
    done = subprocess.run(['git', *arguments], cwd=directory, env=env, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A directory with a repository, one nested in it, and settings of an editor."""
    root = tmp_path / 'root'
    (root / 'vendor' / 'lib').mkdir(parents=True)
    git(root, 'init', '-q')
    git(root / 'vendor' / 'lib', 'init', '-q')
    (root / '.vscode').mkdir()
    (root / '.vscode' / 'settings.json').write_text('{}')
    (root / 'notes.md').write_text('notes\n')
    return root
