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


async def opener(url: str) -> AsyncIterator[OpenStore]:
    """Yield a function that opens stores, and close them at the end."""
    async with AsyncExitStack() as stack:

        async def open_one() -> Store:
            return await stack.enter_async_context(open_at(url))

        yield open_one
