"""What a sandbox consists of, and what its first process reports."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from pydantic_deep_backends import SandboxUnavailableError
from pydantic_deep_backends.sandbox import _bwrap as bwrap
from pydantic_deep_backends.sandbox._bwrap import SandboxCommand


def test_a_sandbox_that_never_began_is_unavailable_and_no_exit_code() -> None:
    command = object.__new__(SandboxCommand)

    with pytest.raises(SandboxUnavailableError, match='no permission'):
        command.exit_code(b'', 'bwrap: no permission')


def test_who_may_not_make_devices_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*details: object) -> None:
        raise PermissionError(errno.EPERM, 'Operation not permitted')

    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    monkeypatch.setattr(os, 'mknod', refuse)
    assert bwrap.make_devices() is None
    assert list(tmp_path.iterdir()) == []
    bwrap.remove_devices(None)


def test_devices_are_made_for_everybody_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files in the place of devices, which only root can make."""
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


def test_who_owns_no_device_uses_those_of_the_host() -> None:
    own, hosts = (list(bwrap._kernel_files(1, devices)) for devices in ('/made', None))  # pyright: ignore[reportPrivateUsage]
    assert own.count('--dev-bind') == 6
    assert hosts.count('--dev-bind') == 0
    assert hosts.count('--dev') == 1


def test_only_root_needs_most_of_proc_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = bwrap._hidden.__wrapped__  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(os, 'geteuid', lambda: 1000)
    assert hidden() == ([], ['/proc/cmdline', '/proc/key-users', '/proc/keys'])
    monkeypatch.setattr(os, 'geteuid', lambda: 0)
    directories, files = hidden()
    assert '/proc/irq' in directories
    assert {*files} > {'/proc/cmdline', '/proc/keys'}
    assert '/proc/meminfo' not in files


def test_a_system_with_separate_directories_is_shown_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'lib').symlink_to('usr/lib')
    monkeypatch.setattr(bwrap, '_TOP', tmp_path)
    options = list(bwrap._system(lambda data: '9', network=True))  # pyright: ignore[reportPrivateUsage]
    assert options[3:9] == ['--ro-bind', f'{tmp_path}/bin', '/bin', '--symlink', 'usr/lib', '/lib']
    assert '/etc/resolv.conf' in options
