"""The promises of `Store` as tests, for everyone who writes one. Needs pytest and the pytest plugin of anyio.

Subclass `StoreSuite` in a test module and provide a fixture `open_store`: a function that opens a store on one place,
fresh for each test, again each time that it is called. What it opened the fixture closes.

```text
class TestMyStore(StoreSuite):
    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenStore]:
        async with AsyncExitStack() as stack:
            async def open_one() -> Store:
                return await stack.enter_async_context(open_my_store(tmp_path))
            yield open_one
```
A store that forgets when the last who has it open closes it says so with `is_durable = False`.

Each module here has the rules about one subject. A subclass of the suite overrides a rule by its name.
"""

from __future__ import annotations

from ._approvals import ApprovalRules
from ._base import OpenStore
from ._closing import ClosingRules
from ._commits import CommitRules
from ._contents import ContentRules
from ._garbage_collection import GarbageCollectionRules
from ._messages import MessageRules
from ._processes import ProcessRules
from ._runs import RunRules
from ._versions import VersionRules

__all__ = ('OpenStore', 'StoreSuite')


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
    """What holds for every store."""
