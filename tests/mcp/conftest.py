"""Servers for tests, and agents that use them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from pydantic_deep.mcp import McpServer

SERVER = Path(__file__).with_name('fixture_server.py')

MakeServer: TypeAlias = Callable[..., McpServer]


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], Sequence[str]]:
    """Return the calls that the servers have received."""
    return lambda: [line for line in _lines(tmp_path) if line != 'start']


@pytest.fixture
def starts(tmp_path: Path) -> Callable[[], int]:
    """Return the number of times that servers were started."""
    return lambda: _lines(tmp_path).count('start')


def _lines(tmp_path: Path) -> list[str]:
    path = tmp_path / 'calls'
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def make_server(tmp_path: Path) -> MakeServer:
    """Return a function that returns the fixture server, with a number of further tools."""

    def make(count: int = 0, **env: str) -> McpServer:
        return McpServer(
            command=sys.executable, args=(str(SERVER), str(count)), env={'CALLS': str(tmp_path / 'calls'), **env}
        )

    return make
