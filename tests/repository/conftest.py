"""Fixtures for repository tests: a real PostgreSQL server that exits when its pipe closes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from pydantic import BaseModel

PROGRAM = Path(__file__).parents[1] / 'store' / 'postgres_server.py'


@pytest.fixture(scope='session')
def new_postgres_url() -> Generator[Callable[[], str]]:
    """Return a function that creates a new database on one server."""
    command = [sys.executable, str(PROGRAM), '--no-fsync']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        source, sink = program.stdin, program.stdout

        def new_url() -> str:
            source.write('database\n')
            source.flush()
            url = sink.readline().rstrip('\n')
            assert url.startswith('postgresql://')
            return url

        assert sink.readline()  # it runs
        yield new_url


class Person(BaseModel):
    id: str
    name: str
    born: int | None = None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / 'rows.db'


@pytest.fixture
def url(path: Path) -> str:
    return f'sqlite:///{path}'


def places(path: Path, new_postgres_url: Callable[[], str]) -> list[str]:
    return [f'sqlite:///{path}', new_postgres_url()]
