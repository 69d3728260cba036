"""Fixtures of the suite of the backends."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return 'asyncio'


@pytest.fixture
def descriptors() -> Callable[[], list[str]]:
    """List what this process has open, without what garbage still has: other tests of the worker may have left some."""

    def listed() -> list[str]:
        gc.collect()
        return sorted(os.listdir('/proc/self/fd'))

    return listed


@pytest.fixture
def children() -> Callable[[], set[str]]:
    """List the children of this process, zombies included: other tests of the worker may have left some."""

    def listed() -> set[str]:
        found: set[str] = set()
        for path in Path('/proc').glob('[0-9]*/stat'):
            with suppress(OSError):  # it has ended meanwhile
                if path.read_text().rpartition(')')[2].split()[1] == str(os.getpid()):
                    found.add(path.parent.name)
        return found

    return listed
