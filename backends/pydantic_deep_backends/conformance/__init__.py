"""Conformance tests for implementations of `protocol`. They need pytest and the pytest plugin of anyio.

Subclass `BackendSuite` in a test module and provide a fixture `backend` that returns a fresh, empty backend:

```text
class TestMyBackend(BackendSuite):
    @pytest.fixture
    def backend(self) -> MyBackend:
        return MyBackend()
```
Tests of an optional protocol that the backend does not implement are skipped, with a reason that names the protocol. A
read-only backend overrides `seed` and `is_read_only`. The tests of commands expect a POSIX shell.

Each module contains the tests of one subject. A subclass of the suite can override a test by its name.
"""

from __future__ import annotations

from ._base import GOOD_NAMES, HOSTILE_PATHS, Seed
from ._commands import CommandRules
from ._compare_and_swap import CompareAndSwapRules
from ._paths import PathRules
from ._reading import ReadingRules
from ._search import SearchRules
from ._snapshots import SnapshotRules
from ._writing import WritingRules

__all__ = ('GOOD_NAMES', 'HOSTILE_PATHS', 'BackendSuite', 'Seed')


class BackendSuite(
    PathRules,
    ReadingRules,
    WritingRules,
    CompareAndSwapRules,
    SearchRules,
    SnapshotRules,
    CommandRules,
):
    """Conformance tests of the backend protocols; see the docstring of the module for how to use them."""
