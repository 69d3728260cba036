"""A process killed during a write leaves either the old file or the new one, complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pydantic_deep_backends import LocalBackend

pytestmark = [pytest.mark.anyio, pytest.mark.soak, pytest.mark.slow]

ROUNDS = int(os.environ.get('SOAK_ROUNDS', '800')) // 100
"""Rounds of the suite. A soak has more. Each starts a process, which takes some tenths of a second."""

SIZE_BYTES = 2_000_000

WRITER = """
import itertools, sys
import anyio
from pydantic_deep_backends import LocalBackend

async def main():
    backend = LocalBackend(sys.argv[1])
    for number in itertools.count():
        await backend.write_bytes('/f', number.to_bytes(4) * (int(sys.argv[2]) // 4))
        print(number, flush=True)

anyio.run(main)
"""


@pytest.mark.parametrize('round_number', range(ROUNDS))
async def test_killed_writer_leaves_a_complete_file(round_number: int, tmp_path: Path) -> None:
    acknowledged = write_until_killed(tmp_path, count=1 + round_number % 4)
    backend = LocalBackend(tmp_path)
    data = await backend.read_bytes('/f')
    assert len(data) == SIZE_BYTES
    assert data == data[:4] * (SIZE_BYTES // 4)
    assert int.from_bytes(data[:4]) >= acknowledged  # the last acknowledged write or a later one
    assert [entry.name for entry in await backend.list_dir('/')] == ['f']
    assert list(await backend.snapshot()) == ['/f']


def write_until_killed(root: Path, *, count: int) -> int:
    """Kill a writer after `count` writes, and return the number of its last acknowledged write."""
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}
    command = [sys.executable, '-c', WRITER, str(root), str(SIZE_BYTES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(count)]
        writer.kill()
    return acknowledged[-1]
