"""Isolation checks before the first command."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from pydantic_deep_backends import SandboxBackend, SandboxLimits, SandboxUnavailableError
from pydantic_deep_backends.sandbox import _bwrap as bwrap
from pydantic_deep_backends.sandbox import _isolation_check as promises

from .conftest import write_program

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap'),
]


@pytest.mark.parametrize(
    ('removed', 'promise'),
    [
        (('--unshare-all',), 'there is no network'),
        pytest.param(
            ('--cap-drop', 'ALL'),
            'the user has no rights',
            marks=pytest.mark.skipif(os.geteuid() != 0, reason='bwrap takes all rights from who is not root anyway'),
        ),
        (('--seccomp',), 'system calls are filtered'),
        (('--size',), 'temporary files are limited'),
        (('--remount-ro',), 'the system is read-only'),
    ],
    ids=ascii,
)
async def test_failed_isolation_check_names_the_promise(fake: Path, removed: tuple[str, ...], promise: str) -> None:
    """A program in place of bwrap omits an option."""
    fake.write_text(FORGETFUL.format(python=sys.executable, removed=removed, real=shutil.which('bwrap')))
    fake.chmod(0o755)
    backend = SandboxBackend(fake.parent / 'root', bwrap=fake)
    with pytest.raises(SandboxUnavailableError, match='failed its isolation check') as caught:
        await backend.run('echo > file', shell=True)
    assert promise in caught.value.failed
    assert promise in str(caught.value)


FORGETFUL = """#!{python} -IS
import os, sys
removed = {removed!r}
place = sys.argv.index('--args') + 1
options = open(int(sys.argv[place]), 'rb').read().decode().split('\\0')[:-1]
kept, number = [], 0
while number < len(options):
    if options[number] == removed[0]:
        if removed[0] == '--unshare-all':
            kept += ['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts']
            number += 1
        else:
            number += 2
    else:
        kept.append(options[number])
        number += 1
file = os.memfd_create('kept', 0)
os.write(file, ''.join(option + '\\0' for option in kept).encode())
os.lseek(file, 0, 0)
sys.argv[place] = str(file)
os.execv({real!r}, [{real!r}, *sys.argv[1:]])
"""


async def test_changed_host_device_fails_the_check_and_is_repaired(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = fake.parent / 'device'
    device.touch(mode=0o644)
    monkeypatch.setattr(promises, '_DEVICE', device)
    write_program(fake, f'chmod 600 {device}; exec {shutil.which("bwrap")} "$@"')
    with pytest.raises(SandboxUnavailableError, match='CAP_MKNOD') as caught:
        await SandboxBackend(fake.parent / 'root', bwrap=fake).run('echo > file', shell=True)
    assert caught.value.failed == ('devices of the host stay as they are',)
    assert device.stat().st_mode & 0o777 == 0o644


async def test_foreign_file_owner_fails_the_check(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(fake, f'exec {shutil.which("bwrap")} "$@"')
    monkeypatch.setattr(promises.os, 'geteuid', lambda: 4242)
    with pytest.raises(SandboxUnavailableError) as caught:
        await SandboxBackend(fake.parent / 'root', bwrap=fake).run('echo > file', shell=True)
    assert caught.value.failed == ('files of commands belong to this user',)


async def test_isolation_is_checked_once_for_each_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bool] = []
    probe = promises._probe  # pyright: ignore[reportPrivateUsage]

    def count(plan: bwrap.SandboxPlan, machine: str) -> tuple[set[str], str]:
        tried.append(plan.network)
        return probe(plan, machine)

    monkeypatch.setattr(promises, '_probe', count)
    limits = SandboxLimits(processes=77)
    for network in (False, True, False, True):
        backend = SandboxBackend(tmp_path, network=network, limits=limits)
        await backend.run(['true'])
        await backend.run(['true'])
    assert tried == [False, True]
