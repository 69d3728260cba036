"""Runs in durable workflows of pydantic-ai are refused, and agents with such a capability run as usual elsewhere."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.exceptions import UserError

from pydantic_deep import DeepAgentDeps, StateBackend, VersionedAgent, create_deep_agent, open_store
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio

REFUSAL = r'inside a durable workflow.*`VersionedAgent`.*temporal://host:port/namespace.*postgresql://'


def deep_agent(model: ScriptedModel) -> Agent[DeepAgentDeps, str]:
    return create_deep_agent(model, name='deep', capabilities=[TemporalDurability[DeepAgentDeps]()])


def no_id(*_: object) -> None:
    """Let pydantic-ai make an id, which a real workflow provides."""


@contextmanager
def in_workflow() -> Generator[None]:
    """Let pydantic-ai report that it runs in a workflow. An agent is created outside of one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TemporalDurability, 'in_durable_context', True)
        patch.setattr(TemporalDurability, 'get_default_run_id', no_id)
        patch.setattr(TemporalDurability, 'get_default_conversation_id', no_id)
        yield


async def test_deep_agent_is_refused_in_a_workflow() -> None:
    model = ScriptedModel('Done.')
    agent = deep_agent(model)
    with in_workflow(), pytest.raises(UserError, match=REFUSAL):
        await agent.run('Go', deps=DeepAgentDeps(backend=StateBackend()))
    assert model.requests == []


async def test_versioned_agent_is_refused_in_a_workflow() -> None:
    model = ScriptedModel('Done.')
    plain = Agent(model, name='plain', capabilities=[TemporalDurability[object]()])
    async with open_store('memory:') as store:
        for root in (
            await VersionedAgent(plain, store).create(),
            await VersionedAgent(deep_agent(model), store).create(),
        ):
            with in_workflow(), pytest.raises(UserError, match=REFUSAL):
                await root.advance('Go')
        assert {run.state for run in await store.runs()} == {'failed'}
    assert model.requests == []


async def test_same_agents_run_outside_of_a_workflow() -> None:
    agent = deep_agent(ScriptedModel('Done.', 'Done.'))
    assert (await agent.run('Go', deps=DeepAgentDeps(backend=StateBackend()))).output == 'Done.'
    async with open_store('memory:') as store:
        assert (await (await VersionedAgent(agent, store).create()).advance('Go')).output == 'Done.'
