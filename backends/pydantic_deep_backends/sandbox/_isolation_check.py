"""Tests of the isolation before the first command runs. A sandbox that fails a test is not used.

A probe is a program that tries to violate each guarantee. It runs in an ordinary sandbox with lower limits and its own
workspace, and prints the guarantees that hold; for devices and owners of files, the effects are checked from outside.
This happens once per plan and process.
"""

from __future__ import annotations

import functools
import os
import secrets
import socket
import stat
import tempfile
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic_deep_backends.commands._execution import Execution
from pydantic_deep_backends.errors import SandboxUnavailableError

from ._bwrap import INSTALL, SandboxPlan, start_in_sandbox
from ._cgroups import remove_stale_groups
from ._limits import SandboxLimits
from ._perl import PERL, read_program
from ._seccomp import ARCHITECTURES, denied_number
from ._stale_resources import prefix_of, remove_stale_directories

_LIMITS: Final = SandboxLimits(
    timeout_seconds=60, processes=16, memory_bytes=256 * 2**20, file_size_bytes=65_536, tmp_bytes=2**20
)
"""The limits of the probe: low, so that the tests are fast."""

_GUARANTEES: Final = (
    'memory is limited', 'processes are limited', 'system calls are filtered', 'temporary files are limited',
    'the environment is hidden', 'the files of the host are hidden', 'the processes of the host are hidden',
    'the size of files is limited', 'the system is read-only', 'the user has no rights', 'there are no new namespaces',
    'the input is no device of the host',
)  # fmt: skip
_NO_NETWORK: Final = 'there is no network'
_DEVICES: Final = 'devices of the host stay as they are'
_OWN_FILES: Final = 'files of commands belong to this user'

_ADVICE: Final = {
    'processes are limited': 'Run as a user other than root, or make the pids controller of /sys/fs/cgroup writable',
    'system calls are filtered': 'The kernel needs CONFIG_SECCOMP_FILTER',
    _DEVICES: 'Run as a user other than root, or allow root to create devices (CAP_MKNOD) in the temporary directory',
}
"""Advice per failed guarantee; by default, a current bwrap on a current kernel."""

_DEVICE: Final = Path('/dev/full')
"""The device whose mode the probe tries to change. Programs need it least."""

_lock = threading.Lock()


def check_isolation(plan: SandboxPlan) -> None:
    """Test the isolation of a plan, unless that was done before.

    Raises:
        SandboxUnavailableError: A guarantee does not hold, or a sandbox cannot be created at all.
    """
    with _lock:
        _check(plan)


@functools.cache
def _check(plan: SandboxPlan) -> None:
    """Run all tests. A failure is not cached, so the tests run again after a missing program was installed."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise SandboxUnavailableError(f'System calls cannot be filtered on {machine!r}. Use one of {ARCHITECTURES}.')
    remove_stale_groups(plan.controllers)
    remove_stale_directories('devices', 'probe')
    verified, stderr = _probe(replace(plan, limits=_LIMITS, read_only=()), machine)
    guarantees = {*_GUARANTEES, _DEVICES, _OWN_FILES}
    if not plan.network:
        guarantees.add(_NO_NETWORK)
    failed = tuple(sorted(guarantees - verified))
    if failed:
        advice = '. '.join(dict.fromkeys(_ADVICE.get(guarantee, INSTALL) for guarantee in failed))
        raise SandboxUnavailableError(
            f'The sandbox failed its isolation check: {"; ".join(failed)}. {advice}. {stderr}'.rstrip(), failed=failed
        )


def _probe(plan: SandboxPlan, machine: str) -> tuple[set[str], str]:
    """Return the guarantees that hold according to a probe, and the end of its standard error."""
    with tempfile.TemporaryDirectory(prefix=prefix_of('probe')) as directory, closing(_listener()) as listener:
        workspace = Path(directory, 'workspace')
        workspace.mkdir()
        canary = Path(directory, secrets.token_hex(8))
        canary.touch()
        arguments = (
            canary,
            0 if plan.network else listener.getsockname()[1],
            denied_number('unshare', machine),
            denied_number('keyctl', machine),
            plan.limits.processes,
            plan.limits.memory_bytes,
            plan.limits.file_size_bytes,
            plan.limits.tmp_bytes,
        )
        command = [PERL, '-e', read_program('isolation_probe.pl'), '--', *map(str, arguments)]
        before = stat.S_IMODE(_DEVICE.stat().st_mode)
        result = Execution(
            start=lambda: start_in_sandbox(plan, str(workspace), command, {'PROBE': ''}),
            check=lambda: None,
            output_bytes=65_536,
            timeout_seconds=plan.limits.timeout_seconds,
        ).run()
        assert result is not None  # noqa: S101 - nothing stops it
        verified = {*result.stdout.splitlines()}
        if stat.S_IMODE(_DEVICE.stat().st_mode) == before:
            verified.add(_DEVICES)
        else:
            _DEVICE.chmod(before)
        made = workspace / 'made'
        if made.exists() and made.stat().st_uid == os.geteuid():
            verified.add(_OWN_FILES)
    return verified, result.stderr.strip()[-300:]


def _listener() -> socket.socket:
    """Return a socket that is reachable through the loopback of this machine."""
    return socket.create_server(('127.0.0.1', 0))
