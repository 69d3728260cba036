"""The promises of `Repository` as tests, for everyone who writes one. Needs pytest and the pytest plugin of anyio.

Subclass `RepositorySuite` in a test module and provide a fixture `open_repository`: it opens a repository of any model
on one place, fresh for each test, again each time that it is called. What it opened the fixture closes.

```text
class TestMyRepository(RepositorySuite):
    @pytest.fixture
    async def open_repository(self, tmp_path: Path) -> AsyncIterator[OpenRepository]:
        async with AsyncExitStack() as stack:
            async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
                return await stack.enter_async_context(open_mine(tmp_path, model, key=key, fields=fields))
            yield open_one
```
One whose rows nobody else sees says so with `is_shared = False`, one that forgets when the last closes it with
`is_durable = False`. Transactions are tested where there are any, see `SupportsTransactions`.

Each module here has the rules about one subject. A subclass of the suite overrides a rule by its name.
"""

from __future__ import annotations

from ._base import FIELDS, SAMPLES, OpenRepository, Sample, Shade
from ._opening import OpeningRules
from ._pages import PageRules
from ._questions import QuestionRules
from ._rows import RowRules
from ._transactions import TransactionRules

__all__ = ('FIELDS', 'SAMPLES', 'OpenRepository', 'RepositorySuite', 'Sample', 'Shade')


class RepositorySuite(
    RowRules,
    QuestionRules,
    PageRules,
    TransactionRules,
    OpeningRules,
):
    """What holds for every repository."""
