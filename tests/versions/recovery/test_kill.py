"""Agents killed with SIGKILL are recovered by others; nothing is lost, incomplete, or done twice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

_HERE = Path(__file__).parent
_SERVER = _HERE.parent.parent / 'store' / 'postgres_server.py'

KILL_ROUNDS = int(os.environ.get('KILL_ROUNDS', '0'))
"""Number of rounds per engine; 0 for a few."""

SOAK_ROUNDS = int(os.environ.get('SOAK_ROUNDS', '0'))


def _run(program: str, *arguments: str | Path) -> dict[str, Any]:
    """Run a program and return its report."""
    command = [sys.executable, _HERE / program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report['wrong'] == [], done.stderr  # shows the traceback of a process that ended by itself
    return report


def _rounds(url: str, files: Path, rounds: int) -> dict[str, Any]:
    seed = random.SystemRandom().randint(1, 1_000_000)
    print(f'seed {seed}')
    return _run('kill_rounds.py', url, '--rounds', str(rounds), '--seed', str(seed), '--files', files)


def _on_postgres(files: Path, rounds: int) -> dict[str, Any]:
    command = [sys.executable, _SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        return _rounds(server.stdout.readline().strip(), files, rounds)


def test_killed_agents_on_sqlite_lose_and_repeat_nothing(tmp_path: Path) -> None:
    report = _rounds(f'sqlite:///{tmp_path}/store.db', tmp_path, KILL_ROUNDS or 10)
    assert report['killed'] > 0
    assert report['checked'] > 0


def test_killed_agents_on_postgres_lose_and_repeat_nothing(tmp_path: Path) -> None:
    report = _on_postgres(tmp_path, KILL_ROUNDS or 4)
    assert report['killed'] > 0
    assert report['checked'] > 0


def test_turn_can_be_killed_after_each_of_its_writes(tmp_path: Path) -> None:
    report = _run('kill_boundaries.py', f'sqlite:///{tmp_path}/store.db', '--files', tmp_path)
    assert report['boundaries'] > 50


@pytest.mark.soak
@pytest.mark.skipif(SOAK_ROUNDS == 0, reason='`make soak` sets SOAK_ROUNDS')
def test_agents_survive_a_long_series_of_kills(tmp_path: Path) -> None:
    for name, share in (('sqlite', 10), ('postgres', 30)):
        files = tmp_path / name
        files.mkdir()
        rounds = max(1, SOAK_ROUNDS // share)
        report = (
            _on_postgres(files, rounds) if name == 'postgres' else _rounds(f'sqlite:///{files}/store.db', files, rounds)
        )
        print(report)


@pytest.mark.soak
@pytest.mark.skipif(SOAK_ROUNDS == 0, reason='`make soak` sets SOAK_ROUNDS')
@pytest.mark.parametrize('options', [(), ('--temporal', '--release', '16')])
def test_disturbed_servers_and_workers_lose_and_repeat_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    rounds = max(5, SOAK_ROUNDS // 200)
    report = _run('chaos_rounds.py', '--rounds', str(rounds), '--files', tmp_path, *options)
    assert report['taken_over'] > 0
    print(report)
