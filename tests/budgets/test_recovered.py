"""Recovery of a crashed run keeps the rest of its budget, and the conversation's usage is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage

from pydantic_deep import VersionedAgent, create_deep_agent
from pydantic_deep.budgets import Budget, Budgets
from pydantic_deep.budgets._stamp import read_before
from pydantic_deep.store import Commit, Committed, SqlStore, StoreUnavailableError, open_engine
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio

Make = Callable[..., ScriptedModel]


class DyingStore(SqlStore):
    """Store of a process that crashes: after some steps, every commit fails."""

    steps_left = 2

    async def commit(self, commit: Commit) -> Committed:
        if not self.steps_left:
            raise StoreUnavailableError('The process is dead.')
        self.steps_left -= any(version.kind == 'step' for version in commit.versions)
        return await super().commit(commit)


def _agent(model: ScriptedModel) -> Any:
    budgets = Budgets(run=Budget(requests=4), conversation=Budget(requests=20))
    agent = create_deep_agent(model, name='worker', capabilities=[budgets])

    @agent.tool_plain(metadata={'effect': 'read'})
    def work() -> str:
        return 'done'

    return agent


async def test_recovered_run_has_the_rest_of_its_budget(working: Make, tmp_path: Any) -> None:
    url = f'memory:{tmp_path.name}'
    before, after = working(), working()
    messages: list[ModelMessage]
    async with SqlStore(await open_engine(url)):
        async with DyingStore(await open_engine(url)) as store:
            with pytest.raises(StoreUnavailableError):
                await (await VersionedAgent(_agent(before), store).create()).advance('go')
        async with SqlStore(await open_engine(url)) as store:
            (version,) = await VersionedAgent(_agent(after), store).recover()
            messages = await version.messages()
    assert version.output == 'what is done'
    assert len(before.requests) == 3
    # Two of four requests were stored. The third was answered, but the process crashed before storing it.
    assert len(after.requests) == 2
    assert read_before(messages).used['requests'] == 4
