"""Creation and removal of control groups."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pydantic_deep_backends.sandbox import _cgroups as cgroups
from pydantic_deep_backends.sandbox._cgroups import Controllers, find_controllers, make_group


@pytest.fixture
def version_2(tmp_path: Path) -> tuple[Path, Path]:
    """Kernel files of a single hierarchy, with this process two levels down."""
    mounts, own = tmp_path / 'mounts', tmp_path / 'own'
    mounts.write_text(f'proc /proc proc rw 0 0\ncgroup2 {tmp_path}/top cgroup2 rw,nsdelegate 0 0\n')
    own.write_text('0::/service/worker\n')
    (tmp_path / 'top/service/worker').mkdir(parents=True)
    return mounts, own


class Kernel:
    """Creates control files in new directories of `parent`, like the cgroup file system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, parent: Path, files: tuple[str, ...]) -> None:
        make, remove = Path.mkdir, Path.rmdir

        def mkdir(path: Path) -> None:
            make(path)
            if path.parent == parent:
                for name in files:
                    (path / name).touch()

        def rmdir(path: Path) -> None:
            for name in files:
                (path / name).unlink(missing_ok=True)
            remove(path)

        monkeypatch.setattr(Path, 'mkdir', mkdir)
        monkeypatch.setattr(Path, 'rmdir', rmdir)


FILES = ('cgroup.procs', 'pids.max', 'memory.max', 'memory.swap.max', 'memory.oom.group')


def test_groups_are_created_where_controllers_are_available(
    version_2: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kernel(monkeypatch, tmp_path / 'top', FILES)
    controllers = find_controllers(*version_2)
    assert controllers == Controllers(processes=tmp_path / 'top', memory=tmp_path / 'top')
    group = make_group(controllers, processes=7, memory_bytes=1000)
    (directory,) = group.directories
    group.add(42)
    assert {name: (directory / name).read_text() for name in FILES} == {
        'cgroup.procs': '42',
        'pids.max': '7',
        'memory.max': '1000',
        'memory.swap.max': '0',
        'memory.oom.group': '1',
    }
    group.remove()
    assert sorted(path.name for path in (tmp_path / 'top').iterdir()) == ['service']
    group.remove()  # removed already


def test_no_controllers_without_writable_groups(version_2: tuple[Path, Path], tmp_path: Path) -> None:
    assert find_controllers(*version_2) == Controllers(processes=None, memory=None)
    (tmp_path / 'mounts').write_text(f'cgroup2 {tmp_path}/none cgroup2 rw 0 0\n')
    assert find_controllers(*version_2) == Controllers(processes=None, memory=None)
    assert make_group(Controllers(processes=None, memory=None), processes=1, memory_bytes=1).directories == ()


def test_partially_created_group_is_removed(tmp_path: Path) -> None:
    (tmp_path / 'processes').mkdir()
    controllers = Controllers(processes=tmp_path / 'processes', memory=tmp_path / 'none')
    with pytest.raises(FileNotFoundError):
        make_group(controllers, processes=1, memory_bytes=1)
    assert list((tmp_path / 'processes').iterdir()) == []


def test_removal_of_a_busy_group_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([OSError(errno.EBUSY, 'busy'), OSError(errno.EBUSY, 'busy'), None])
    tried: list[Path] = []

    def rmdir(path: Path) -> None:
        tried.append(path)
        if (answer := next(answers)) is not None:
            raise answer

    monkeypatch.setattr(Path, 'rmdir', rmdir)
    cgroups.Group(directories=(tmp_path,)).remove()
    assert tried == [tmp_path] * 3


def test_removal_of_a_busy_group_stops_after_the_last_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, '_REMOVE_ATTEMPTS', 2)
    tried: list[Path] = []

    def rmdir(path: Path) -> None:
        tried.append(path)
        raise OSError(errno.EBUSY, 'busy')

    monkeypatch.setattr(Path, 'rmdir', rmdir)
    cgroups.Group(directories=(tmp_path,)).remove()
    assert tried == [tmp_path] * 2
