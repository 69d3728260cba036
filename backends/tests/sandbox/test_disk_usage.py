"""Disk usage of a workspace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pydantic_deep_backends import SandboxLimits
from pydantic_deep_backends.files._confined_root import ConfinedRoot
from pydantic_deep_backends.sandbox import _disk_usage as disk
from pydantic_deep_backends.sandbox._disk_usage import measure


def test_disk_usage_is_measured_only_up_to_the_limit(tmp_path: Path) -> None:
    for number in range(20):
        directory = tmp_path / f'd{number}'
        directory.mkdir()
        (directory / 'file').write_bytes(b'x' * 10_000)
    os.link(tmp_path / 'd0/file', tmp_path / 'd0/again')
    root = ConfinedRoot(path=str(tmp_path))
    size_bytes, files, is_complete = measure(root, SandboxLimits())
    assert (files, is_complete) == (41, True)
    assert size_bytes >= 200_000
    assert measure(root, SandboxLimits(disk_files=25))[1] == 26
    (tmp_path / 'd0/closed').symlink_to('.')
    assert measure(root, SandboxLimits(disk_files=1))[1] == 2


def test_measurement_is_incomplete_below_the_maximum_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'a/b/c').mkdir(parents=True)
    root = ConfinedRoot(path=str(tmp_path))
    assert measure(root, SandboxLimits())[1:] == (3, True)
    monkeypatch.setattr('pydantic_deep_backends.sandbox._disk_usage.MAX_DEPTH', 1)
    assert measure(root, SandboxLimits())[1:] == (2, False)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


class Watched:
    """A directory with 20 files of a page each, and a disk with simulated free space."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(20):
            (directory / f'f{number}').write_bytes(b'x' * 4096)
        self.free: disk.FreeSpace = (1_000_000, 1000)
        self.ledger = disk.DiskUsageRecord()
        self._root = ConfinedRoot(path=str(directory))
        monkeypatch.setattr(disk.DiskWatch, '_free_space', self._free_space)

    def _free_space(self, *watch: object) -> disk.FreeSpace:
        return self.free

    def begin(self, limits: SandboxLimits) -> disk.DiskWatch:
        watch = disk.DiskWatch(self._root, limits, self.ledger)
        watch.begin()
        return watch


def test_writes_of_successive_short_commands_accumulate(watched: Watched) -> None:
    limits = SandboxLimits(disk_bytes=16_000)
    assert watched.begin(limits)() is None  # counted, without own writes
    for lost in (500, 1000):
        watched.free = (1_000_000 - lost, 1000)
        assert watched.begin(limits)() is None  # too little since the count
    watch = watched.begin(limits)
    watched.free = (1_000_000 - 1001, 1000)
    assert watch() == 'ended: the workspace may take 16,000 bytes on the disk and took more'


def test_command_can_free_space_in_an_overfull_workspace(watched: Watched) -> None:
    watch = watched.begin(SandboxLimits(disk_bytes=1, disk_files=1))
    watched.free = (1_004_096, 1001)
    assert watch() is None
    watch = watched.begin(SandboxLimits(disk_files=1))
    watched.ledger.counted_at = None
    watched.free = (1_004_096, 1000)
    assert watch() == 'ended: the workspace may have 1 files and had more'


def test_workspace_that_is_slow_to_count_is_limited_by_free_space(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, '_COUNT_SECONDS', -1.0)
    limits = SandboxLimits(disk_bytes=1000, disk_files=10)
    watch = watched.begin(limits)
    assert watch() is None
    watched.free = (999_500, 995)
    assert watch() is None
    watched.free = (999_500, 989)
    assert watch() == 'ended: the disk lost 11 files while the command ran'
    watched.free = (998_999, 989)
    assert watch() == 'ended: the disk lost 1,001 bytes while the command ran'
