"""The supervisor of a command: it reports the exit status and ends all descendants."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pydantic_deep_backends.commands import _supervisor as supervisor

pytestmark = pytest.mark.usefixtures('measured_processes')


def watch(*command: str, parent: int | None = None) -> tuple[subprocess.Popen[bytes], int]:
    report, write_end = os.pipe()
    # Run as a module, so that coverage measures it. The backend runs the file alone, which starts faster.
    program = [sys.executable, '-m', supervisor.__name__, str(write_end), str(parent or os.getpid())]
    process = subprocess.Popen([*program, *command], pass_fds=(write_end,))
    os.close(write_end)
    return process, report


def reported(process: subprocess.Popen[bytes], report: int) -> bytes:
    with open(report, 'rb') as file:
        data = file.read()
    assert process.wait() == 0
    return data


@pytest.mark.parametrize(
    ('command', 'status'),
    [
        (['sh', '-c', 'exit 3'], 3 << 8),
        (['sh', '-c', 'kill -KILL $$'], 9),
        (['pydantic-deep-no-such-program'], 127 << 8),
        (['/usr'], 126 << 8),
        (['sh', '-c', '(sleep 0 &); (sleep 600 &); sleep 0.05; exit 2'], 2 << 8),
        (['sh', '-c', 'setsid sleep 600 & setsid sleep 600 & exit 1'], 1 << 8),
    ],
)
def test_supervisor_reports_the_wait_status(command: list[str], status: int) -> None:
    assert reported(*watch(*command)) == b'%d' % status


def test_supervisor_ends_all_descendants_on_sigterm(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / 'fifo')
    process, report = watch('sh', '-c', f'echo $$ > {tmp_path}/fifo; sleep 600')
    pid = int((tmp_path / 'fifo').read_text())
    # Coverage records no lines of a signal handler that interrupts its own code, so wait until the supervisor sleeps.
    while Path('/proc', str(process.pid), 'stat').read_text().rpartition(')')[2].split()[0] != 'S':
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    assert reported(process, report) == b''
    assert not Path('/proc', str(pid)).exists()


def test_supervisor_with_wrong_parent_starts_nothing(tmp_path: Path) -> None:
    assert reported(*watch('touch', str(tmp_path / 'file'), parent=1)) == b''
    assert os.listdir(tmp_path) == []


def test_descendants_include_all_generations() -> None:
    command = ['sh', '-c', 'sh -c "sleep 600 & echo there; wait" & cat; kill 0']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write(b'here\n')
        shell.stdin.flush()
        assert {shell.stdout.readline() for _ in range(2)} == {
            b'here\n',
            b'there\n',
        }  # both children and the grandchild
        below = supervisor.descendants(shell.pid)
        shell.stdin.close()
    assert len(below) == 3
    assert supervisor.descendants(2**30) == []
    assert supervisor._parent_of(str(2**30)) == 0  # pyright: ignore[reportPrivateUsage] - ended since the listing
