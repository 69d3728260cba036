"""Served agents: their names and stores, and the names in their versions."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.test import TestModel

from pydantic_deep import DeepAgentDeps, VersionedAgent, create_deep_agent, open_store
from pydantic_deep.server import InvalidAgentsError, create_app
from pydantic_deep.store import SqlStore
from pydantic_deep.testing import ScriptedModel
from tests.server.conftest import Serve

pytestmark = pytest.mark.anyio


def agent(*answers: str, name: str = 'deep-agent') -> Agent[DeepAgentDeps, str]:
    return create_deep_agent(ScriptedModel(*answers), name=name)


@pytest.mark.parametrize('name', ['', 'a b', 'a/b', 'a:b', '.a', 'a' * 65, 'é', 'a\n', 1])
async def test_agent_name_invalid_in_urls_is_refused(store: SqlStore, name: Any) -> None:
    with pytest.raises(InvalidAgentsError, match='names are part of URLs'):
        create_app({name: agent()}, store)


async def test_app_without_agents_is_refused(store: SqlStore) -> None:
    with pytest.raises(InvalidAgentsError, match='Pass at least one'):
        create_app({}, store)


async def test_versioned_agent_with_another_store_is_refused(store: SqlStore) -> None:
    async with open_store('memory:') as other:
        with pytest.raises(InvalidAgentsError, match="The agent 'a' has another store"):
            create_app({'a': VersionedAgent(agent(name='a'), other)}, store)


async def test_versioned_agent_must_be_served_under_its_own_name(store: SqlStore) -> None:
    with pytest.raises(InvalidAgentsError, match="Serve it as 'b', or create it with `name='a'`"):
        create_app({'a': VersionedAgent(agent(name='b'), store)}, store)


async def test_versions_have_the_served_name_and_the_agent_is_unchanged(serve: Serve) -> None:
    own = agent('Hello.')
    async with serve(agents={'analyst': own}) as served:
        version = await (await served.state.agents['analyst'].create()).advance('Hi')
    assert (version.agent_name, version.output, own.name) == ('analyst', 'Hello.', 'deep-agent')


async def test_one_agent_can_be_served_under_two_names(serve: Serve) -> None:
    names: list[str | None] = []

    def note(ctx: RunContext[DeepAgentDeps]) -> str:
        """Note the name."""
        assert ctx.agent is not None
        names.append(ctx.agent.name)
        return ''

    both = create_deep_agent(TestModel(call_tools=['note']), tools=[note])
    async with serve(agents={'a': both, 'b': both}) as served:
        for name in ('a', 'b', 'a'):
            await (await served.state.agents[name].create()).advance('Hi')
    assert (names, both.name) == (['a', 'b', 'a'], 'deep-agent')


async def test_name_of_a_served_agent_cannot_be_changed(serve: Serve) -> None:
    async with serve() as served:
        with pytest.raises(AttributeError, match="served as 'analyst'"):
            served.state.agents['analyst'].agent.name = 'x'
