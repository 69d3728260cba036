"""Structure of a sandbox, and the report of its first process."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from pydantic_deep_backends import SandboxUnavailableError
from pydantic_deep_backends.sandbox import _bwrap as bwrap
from pydantic_deep_backends.sandbox._bwrap import SandboxCommand


def test_sandbox_that_never_started_is_unavailable() -> None:
    command = object.__new__(SandboxCommand)

    with pytest.raises(SandboxUnavailableError, match='no permission'):
        command.exit_code(b'', 'bwrap: no permission')


def test_make_devices_returns_none_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*details: object) -> None:
        raise PermissionError(errno.EPERM, 'Operation not permitted')

    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    monkeypatch.setattr(os, 'mknod', refuse)
    assert bwrap.make_devices() is None
    assert list(tmp_path.iterdir()) == []
    bwrap.remove_devices(None)


def test_devices_are_created_with_mode_666_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regular files replace the devices, which only root can create."""
    made: dict[str, int] = {}

    def make(path: Path, mode: int, device: int) -> None:
        assert stat.S_ISCHR(mode)
        path.touch(mode=0o600)
        made[path.name] = device

    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    monkeypatch.setattr(os, 'mknod', make)
    directory = bwrap.make_devices()
    assert directory is not None
    names = ('null', 'zero', 'full', 'random', 'urandom', 'tty')
    assert made == {name: os.stat(f'/dev/{name}').st_rdev for name in names}
    assert {stat.S_IMODE(path.stat().st_mode) for path in Path(directory).iterdir()} == {0o666}
    bwrap.remove_devices(directory)
    assert list(tmp_path.iterdir()) == []


def test_host_devices_are_used_without_own_devices() -> None:
    own, hosts = (list(bwrap._kernel_files(1, devices)) for devices in ('/made', None))  # pyright: ignore[reportPrivateUsage]
    assert own.count('--dev-bind') == 6
    assert hosts.count('--dev-bind') == 0
    assert hosts.count('--dev') == 1


def test_most_of_proc_is_hidden_only_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = bwrap._hidden.__wrapped__  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(os, 'geteuid', lambda: 1000)
    assert hidden() == ([], ['/proc/cmdline', '/proc/key-users', '/proc/keys'])
    monkeypatch.setattr(os, 'geteuid', lambda: 0)
    directories, files = hidden()
    assert '/proc/irq' in directories
    assert {*files} > {'/proc/cmdline', '/proc/keys'}
    assert '/proc/meminfo' not in files


def test_separate_system_directories_are_mounted_separately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'lib').symlink_to('usr/lib')
    monkeypatch.setattr(bwrap, '_TOP', tmp_path)
    options = list(bwrap._system(lambda data: '9', network=True))  # pyright: ignore[reportPrivateUsage]
    assert options[3:9] == ['--ro-bind', f'{tmp_path}/bin', '/bin', '--symlink', 'usr/lib', '/lib']
    assert '/etc/resolv.conf' in options
