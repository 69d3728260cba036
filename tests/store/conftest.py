"""Fixtures for store tests: real PostgreSQL servers, which are stopped with their fixtures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from pydantic_deep.store import Store
from pydantic_deep.store import open_store as open_at
from pydantic_deep.store.conformance import OpenStore
from tests.store.ports import free_port
from tests.store.s3_server import BUCKET

PROGRAM = Path(__file__).with_name('postgres_server.py')

Ask = Callable[[str], str]
"""Sends a command to the program that runs the server and returns its answer; see `postgres_server.py`."""


@contextmanager
def running_postgres(*options: str) -> Generator[Ask]:
    command = [sys.executable, str(PROGRAM), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        source, sink = program.stdin, program.stdout

        def ask(question: str) -> str:
            source.write(f'{question}\n')
            source.flush()
            answer = sink.readline().rstrip('\n')
            assert answer, f'The server did not answer {question!r}.'
            return answer

        assert sink.readline()  # its URL: it runs
        yield ask


@pytest.fixture(scope='session')
def ask_postgres() -> Generator[Ask]:
    """A server shared by all tests that do not stop it."""
    with running_postgres('--no-fsync') as ask:
        yield ask


@pytest.fixture
def postgres_url(ask_postgres: Ask) -> str:
    """URL of a new database."""
    return ask_postgres('database')


@pytest.fixture
def ask_durable_postgres() -> Generator[Ask]:
    """A server for one test that syncs to disk and may be stopped."""
    with running_postgres() as ask:
        yield ask


@pytest.fixture(scope='session')
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """URL of a bucket of an S3 server shared by all tests that do not stop it, in an environment that leads there."""
    port = free_port(4)
    with running_s3(port, tmp_path_factory.mktemp('s3')), pytest.MonkeyPatch.context() as patch:
        for name, value in s3_environment(port).items():
            patch.setenv(name, value)
        yield f's3://{BUCKET}'


def s3_environment(port: int) -> dict[str, str]:
    """Return the environment variables that lead to the server at a port."""
    url = f'http://127.0.0.1:{port}'
    keys = {'AWS_ACCESS_KEY_ID': 'key', 'AWS_SECRET_ACCESS_KEY': 'secret', 'AWS_REGION': 'us-east-1'}
    return {**keys, 'AWS_ENDPOINT_URL': url, 'AWS_ALLOW_HTTP': 'true'}


@contextmanager
def running_s3(port: int, directory: Path) -> Generator[int]:
    """Run an S3 server, and yield its process id."""
    command = [sys.executable, str(Path(__file__).with_name('s3_server.py')), str(port), str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            yield int(program.stdout.readline())
        finally:
            program.stdin.close()


async def opener(url: str) -> AsyncIterator[OpenStore]:
    """Yield a function that opens stores, and close them at the end."""
    async with AsyncExitStack() as stack:

        async def open_one() -> Store:
            return await stack.enter_async_context(open_at(url))

        yield open_one
