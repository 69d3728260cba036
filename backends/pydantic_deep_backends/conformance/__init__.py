"""The rules of `protocol` as tests, for everyone who writes a backend. Needs pytest and the pytest plugin of anyio.

Subclass `BackendSuite` in a test module and provide a fixture `backend` that returns a fresh, empty backend:

```text
class TestMyBackend(BackendSuite):
    @pytest.fixture
    def backend(self) -> MyBackend:
        return MyBackend()
```
A rule about a capability that the backend does not have is skipped, and the reason names the protocol. A read-only
backend overrides `seed` and `is_read_only`. The rules of commands are for a backend that runs a POSIX shell.

Each module here has the rules about one subject. A subclass of the suite overrides a rule by its name.
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
    """Each test is one rule of the backend protocols; see the docstring of the module for how to use it."""
