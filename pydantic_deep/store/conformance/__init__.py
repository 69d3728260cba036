"""The contracts of `Store` and `BlobStore` as test suites, for implementations of the protocols. Requires pytest and
anyio's pytest plugin.

Subclass `StoreSuite` in a test module and provide a fixture `open_store`: a function that opens a store on the same
database each time it is called. The database is new for each test, and the fixture closes the stores.

```text
class TestMyStore(StoreSuite):
    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenStore]:
        async with AsyncExitStack() as stack:
            async def open_one() -> Store:
                return await stack.enter_async_context(open_my_store(tmp_path))
            yield open_one
```
A store whose data is lost when it is closed for the last time declares so with `is_durable = False`.

Each module contains the rules about one subject. A subclass of the suite overrides a rule by its name.
"""

from __future__ import annotations

from ._approvals import ApprovalRules
from ._base import OpenStore
from ._blobs import BlobStoreSuite
from ._closing import ClosingRules
from ._commits import CommitRules
from ._contents import ContentRules
from ._garbage_collection import GarbageCollectionRules
from ._messages import MessageRules
from ._processes import ProcessRules
from ._runs import RunRules
from ._versions import VersionRules

__all__ = ('BlobStoreSuite', 'OpenStore', 'StoreSuite')


class StoreSuite(
    CommitRules,
    MessageRules,
    VersionRules,
    ContentRules,
    RunRules,
    ProcessRules,
    ApprovalRules,
    GarbageCollectionRules,
    ClosingRules,
):
    """The rules for every store."""
