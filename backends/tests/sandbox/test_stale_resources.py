"""Leftover directories of killed processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pydantic_deep_backends.sandbox import _stale_resources as leftovers
from pydantic_deep_backends.sandbox._cgroups import Controllers, remove_stale_groups


def test_leftovers_of_crashed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same PID namespace the id of the owner decides; in others, where ids mean nothing, the age."""
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    here = Path('/proc/self/ns/pid').stat().st_ino
    names = {
        'ours': f'pydantic-deep-group-{here}-{os.getpid()}-x',
        'dead': f'pydantic-deep-group-{here}-999999999-x',
        'foreign': 'pydantic-deep-group-1-999999999-x',
        'old': f'pydantic-deep-group-1-{os.getpid()}-x',
        'busy': f'pydantic-deep-group-{here}-999999999-y',
        'other kind': f'pydantic-deep-probe-{here}-999999999-x',
        'other': 'other',
    }
    assert leftovers.prefix_of('group') == names['ours'].removesuffix('x')
    for name in names.values():
        (tmp_path / name).mkdir()
    os.utime(tmp_path / names['old'], (1, 1))
    (tmp_path / names['busy'] / 'child').mkdir()
    remove_stale_groups(Controllers(processes=tmp_path, memory=None))
    left = {kind for kind, name in names.items() if (tmp_path / name).exists()}
    assert left == {'ours', 'foreign', 'busy', 'other kind', 'other'}
    (tmp_path / f'pydantic-deep-probe-{here}-999999999-link').symlink_to('other')
    leftovers.remove_stale_directories('group', 'probe')
    left = {kind for kind, name in names.items() if (tmp_path / name).exists()}
    assert left == {'ours', 'foreign', 'other'}
    monkeypatch.setattr(os, 'geteuid', lambda: 4242)  # a user who does not own it cannot remove it
    (tmp_path / names['dead']).mkdir()
    leftovers.remove_stale_directories('group')
    assert (tmp_path / names['dead']).exists()


def test_concurrently_removed_directory_is_not_stale(tmp_path: Path) -> None:
    assert not leftovers._is_stale(tmp_path / 'pydantic-deep-group-1-1-gone')  # pyright: ignore[reportPrivateUsage]
