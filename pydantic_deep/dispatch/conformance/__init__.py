"""The contract of `Dispatcher` as a test suite, for implementations of the protocol. Requires pytest and anyio's pytest
plugin.

Subclass `DispatcherSuite` in a test module and provide a fixture `open_dispatcher`: a function that opens a dispatcher
on the same engine each time it is called. No runs are queued in the engine when a test starts, and the fixture closes
the dispatchers. A subclass overrides a rule by its name.

```text
class TestMyDispatcher(DispatcherSuite):
    @pytest.fixture
    async def open_dispatcher(self) -> AsyncIterator[OpenDispatcher]:
        async with AsyncExitStack() as stack:
            async def open_one() -> Dispatcher:
                return await stack.enter_async_context(open_mine())
            yield open_one
```
"""

from __future__ import annotations

from ._suite import DispatcherSuite, EngineSwitch, FakeExecution, OpenDispatcher

__all__ = ('DispatcherSuite', 'EngineSwitch', 'FakeExecution', 'OpenDispatcher')
