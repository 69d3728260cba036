"""Support for Windows, tested by imitation: `imitation.py` describes the imitation, `program.py` has the scenarios."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

pytest.importorskip('mypy', reason='its stubs say what Windows lacks')

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('measured_processes')]

PROGRAM = Path(__file__).with_name('program.py')

CRASHED = 9
"""The exit code of the scenario that ends its process."""


def run(directory: Path, *scenarios: str, exit_code: int = 0) -> dict[str, list[str]]:
    """Run scenarios in one process, and return the output lines of each."""
    command = [sys.executable, PROGRAM, directory, *scenarios]
    ran = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (exit_code, '')
    parts = [part.splitlines() for part in ran.stdout.split('== ')[1:]]
    return {name: lines for name, *lines in parts}


def test_everything_without_posix_works_and_the_rest_is_refused(tmp_path: Path) -> None:
    """One process crashes in a run. Another recovers only that run, and then uses everything else: a process takes
    long to start, as it imports every module before and after it becomes Windows.
    """
    run(tmp_path, 'crash_in_a_run', exit_code=CRASHED)
    assert run(
        tmp_path,
        *('recover_a_run', 'import_again', 'run_agent', 'serve_an_agent', 'use_the_command_line'),
        *('interrupt_a_turn', 'discard_input', 'open_directories'),
    ) == snapshot(
        {
            'recover_a_run': ["['Recovered.']", 'Finished.', 'True []'],
            'import_again': ['True'],
            'run_agent': ["Written. b'A'", "Again. b'A'"],
            'serve_an_agent': ['200 Hello.'],
            'use_the_command_line': ['0 True', '0 True', '2 True'],
            'interrupt_a_turn': ['True'],
            'discard_input': ['[]'],
            'open_directories': [
                "`LocalBackend` and `SandboxBackend` need Linux or macOS, and this is 'win32'. Use `StateBackend`, which holds files in memory, or run the program under WSL or in a container.",
                "`LocalBackend` and `SandboxBackend` need Linux or macOS, and this is 'win32'. Use `StateBackend`, which holds files in memory, or run the program under WSL or in a container.",
                'SQL over a store needs `fork`, which Windows lacks. Query the store under WSL.',
            ],
        }
    )
