"""Values of command limits, and behavior when they are reached."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pydantic_deep_backends import CommandResult, CommandTimeoutError, SandboxBackend, SandboxLimits

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap'),
]


@pytest.mark.parametrize('value', [0, -1, float('inf'), float('nan'), '1'], ids=ascii)
def test_limits_must_be_positive_and_finite(value: int) -> None:
    with pytest.raises(ValueError, match=r'`processes` is .* Pass a positive, whole number'):
        SandboxLimits(processes=value)


async def test_timeout_of_the_limits_is_the_maximum(tmp_path: Path) -> None:
    backend = SandboxBackend(tmp_path, limits=SandboxLimits(timeout_seconds=0.3))
    for timeout in (None, 600.0):
        with pytest.raises(CommandTimeoutError, match=r'longer than 0\.3 seconds'):
            await backend.run(['sleep', '600'], timeout=timeout)
    with pytest.raises(CommandTimeoutError, match=r'longer than 0\.1 seconds'):
        await backend.run(['sleep', '600'], timeout=0.1)


async def test_output_is_capped_at_the_limit(tmp_path: Path) -> None:
    backend = SandboxBackend(tmp_path, limits=SandboxLimits(output_bytes=10))
    result = await backend.run('printf 0123456789; printf éabcdefghé >&2', shell=True)
    assert result.stdout == '0123456789'
    assert result.stderr == 'éabc\n[… 2 bytes left out …]\nfghé'


async def test_command_that_fills_the_workspace_is_ended(tmp_path: Path) -> None:
    backend = SandboxBackend(tmp_path, limits=SandboxLimits(disk_bytes=8 * 2**20, file_size_bytes=2**20))
    script = 'i=0; while :; do head -c 1000000 /dev/urandom > f$i; i=$((i+1)); done'
    result = await backend.run(script, shell=True, timeout=120)
    assert result.exit_code == -9
    assert result.stderr.endswith('\n[ended: the workspace may take 8,388,608 bytes on the disk and took more]\n')
    assert await backend.run(['sh', '-c', 'rm f*']) == CommandResult(exit_code=0, stdout='', stderr='')


async def test_command_that_creates_too_many_files_is_ended(tmp_path: Path) -> None:
    backend = SandboxBackend(tmp_path, limits=SandboxLimits(disk_files=500))
    script = 'i=0; while :; do mkdir $i; : > $i/f; i=$((i+1)); done'
    result = await backend.run(script, shell=True, timeout=120)
    assert (result.exit_code, '[ended: the workspace may have 500 files and had more]' in result.stderr) == (-9, True)


async def test_command_that_writes_to_deleted_files_is_ended(tmp_path: Path) -> None:
    backend = SandboxBackend(tmp_path, limits=SandboxLimits(disk_bytes=8 * 2**20))
    script = 'exec 3> f; rm f; while :; do head -c 1000000 /dev/urandom >&3; done'
    result = await backend.run(script, shell=True, timeout=120)
    assert result.exit_code == -9
    assert '[ended: the disk lost' in result.stderr


async def test_command_within_the_disk_limits_is_not_ended(tmp_path: Path) -> None:
    backend = SandboxBackend(tmp_path, limits=SandboxLimits(disk_bytes=64 * 2**20))
    result = await backend.run('head -c 20000000 /dev/urandom > f; sleep 0.3; mkfifo g; exit 3', shell=True)
    assert (result.exit_code, result.stderr) == (3, '')


def test_of_process_uses_the_given_limits() -> None:
    limits = SandboxLimits()
    assert replace(limits, processes=3).of_process() == limits.of_process() | {6: 3}
