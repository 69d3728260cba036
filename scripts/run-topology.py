"""Runs PostgreSQL, servers without workers, and workers on loopback, until Ctrl-C.

    .venv/bin/python scripts/run-topology.py house:agents

The module of the agents must be importable from the working directory. PostgreSQL is that of the tests, with its data
in a temporary directory, which is removed at the end.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name('pydantic-deep'))
POSTGRES = str(Path(__file__).resolve().parent.parent / 'tests/store/postgres_server.py')


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('agents', metavar='MODULE:NAME', help='the agents, as for `pydantic-deep serve`')
    parser.add_argument('--servers', type=int, default=2, help='the number of servers; default: 2')
    parser.add_argument('--workers', type=int, default=4, help='the number of workers; default: 4')
    parser.add_argument('--port', type=int, default=8000, help='the port of the first server; default: 8000')
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell that starts it in the background lets it ignore SIGINT
        signal.signal(number, signal.default_int_handler)
    with ExitStack() as stack:
        # In sessions of their own, so that Ctrl-C reaches this process only, which stops the others in order.
        postgres = subprocess.Popen(
            [sys.executable, POSTGRES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        stack.callback(postgres.communicate)  # closes its standard input, at which it ends
        assert postgres.stdout is not None
        common = ['--store', postgres.stdout.readline().strip()]
        key = subprocess.check_output([COMMAND, 'keys', 'create', 'topology', '--scope', 'admin', *common], text=True)
        ports = range(options.port, options.port + options.servers)
        common += ['--agents', options.agents]
        commands = [['serve', '--no-worker', '--port', str(port), *common] for port in ports]
        commands += [['worker', *common]] * options.workers
        processes = [subprocess.Popen([COMMAND, *command], start_new_session=True) for command in commands]
        stack.callback(stop, processes)
        try:
            for port in ports:
                wait_until_ready(f'http://127.0.0.1:{port}/readyz', processes)
            print('servers:', *(f'http://127.0.0.1:{port}' for port in ports), flush=True)
            print('store:  ', common[1], flush=True)
            print('key:    ', key.strip(), flush=True)
            while any(process.poll() is None for process in processes):  # you may kill some, and see what happens
                time.sleep(0.5)
        except KeyboardInterrupt:
            return 0
    return 1


def wait_until_ready(url: str, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until a server is ready."""
    while all(process.poll() is None for process in processes):
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit('A process has ended, so the others were stopped.')


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Drain all processes and wait for them."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
