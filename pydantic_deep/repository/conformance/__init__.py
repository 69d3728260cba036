"""The contract of `Repository` as a test suite, for implementations of the protocol. Requires pytest and its anyio
plugin.

Subclass `RepositorySuite` in a test module and provide a fixture `open_repository`: a function that opens a repository
of any model, on the same database each time it is called. The database is new for each test, and the fixture closes the
repositories.

```text
class TestMyRepository(RepositorySuite):
    @pytest.fixture
    async def open_repository(self, tmp_path: Path) -> AsyncIterator[OpenRepository]:
        async with AsyncExitStack() as stack:
            async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
                return await stack.enter_async_context(open_mine(tmp_path, model, key=key, fields=fields))
            yield open_one
```
A repository whose rows are visible only to itself declares so with `is_shared = False`, and one whose rows are
discarded when it is closed for the last time with `is_durable = False`. Transactions are tested if the repository
implements `SupportsTransactions`.

Each module contains the rules about one subject. A subclass of the suite overrides a rule by its name.
"""

from __future__ import annotations

from ._base import FIELDS, SAMPLES, OpenRepository, Sample, Shade
from ._opening import OpeningRules
from ._pages import PageRules
from ._questions import QuestionRules
from ._rows import RowRules
from ._transactions import TransactionRules
from ._updates import UpdateRules

__all__ = ('FIELDS', 'SAMPLES', 'OpenRepository', 'RepositorySuite', 'Sample', 'Shade')


class RepositorySuite(
    RowRules,
    QuestionRules,
    PageRules,
    TransactionRules,
    UpdateRules,
    OpeningRules,
):
    """The rules for every repository."""
