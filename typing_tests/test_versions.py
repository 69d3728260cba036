"""Code of users with versions, for strict pyright and strict mypy. It is checked and never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage

from pydantic_deep import (
    AgentVersion,
    ApprovalInbox,
    Approve,
    DeepAgentDeps,
    LocalBackend,
    Model,
    PendingApproval,
    VersionedAgent,
    create_deep_agent,
    open_store,
)
from pydantic_deep.versions import Lineage, Replay, VersionDiff


@dataclass(kw_only=True)
class TenantDeps(DeepAgentDeps):
    tenant: str


class Answer(BaseModel):
    text: str


async def versions() -> None:
    async with open_store('sqlite:///agents.db') as store:
        analyst = VersionedAgent(create_deep_agent(Model.CLAUDE_OPUS), store)
        assert_type(analyst, VersionedAgent[DeepAgentDeps, str])
        v0 = await analyst.create(name='Q3', backend=LocalBackend('./work'), model_settings={'temperature': 0})
        assert_type(v0, AgentVersion[DeepAgentDeps, str])
        v1 = await v0.advance('Read sales.csv', temperature=0.5, max_tokens=100)
        assert_type(v1.output, str | None)
        assert_type(await v1.lineage(), Lineage[DeepAgentDeps, str])
        assert_type(await v1.diff(v0), VersionDiff)
        assert_type(await v1.merge(v0), AgentVersion[DeepAgentDeps, str])
        assert_type(await v1.replay(), Replay)
        assert_type(await v1.messages(), list[ModelMessage])
        assert_type(v1.pending, list[PendingApproval])
        await v1.resume({approval.id: Approve() for approval in v1.pending}, by='ann')
        async with v1.advance_stream('Add a chart') as stream:
            async for text in stream:
                assert_type(text, str)
        assert_type(stream.version, AgentVersion[DeepAgentDeps, str])
        assert_type(await analyst.list(name='q'), list[AgentVersion[DeepAgentDeps, str]])
        assert_type(await analyst.conversation(v1.conversation_id).head(), AgentVersion[DeepAgentDeps, str])
        for item in await ApprovalInbox(store).list():
            await ApprovalInbox(store).answer(item.id, Approve(), by='ann')


async def types_are_those_of_the_agent() -> None:
    async with open_store('memory:') as store:
        agent = create_deep_agent('test', deps_type=TenantDeps, output_type=Answer)
        versioned = VersionedAgent(agent, store, make_deps=lambda: TenantDeps(tenant='acme'))
        turn = await (await versioned.create()).advance('go', deps=TenantDeps(tenant='acme'))
        assert_type(turn.output, Answer | None)
        await turn.advance('go', deps=DeepAgentDeps())  # type: ignore[arg-type]

        paused = VersionedAgent(create_deep_agent('test', interrupt_on={'write_file': True}), store)
        assert_type(paused, VersionedAgent[DeepAgentDeps, str | DeferredToolRequests])

        plain = VersionedAgent(Agent('test', deps_type=int, output_type=list[Answer]), store, make_deps=lambda: 7)
        assert_type((await (await plain.create()).advance('go')).output, list[Answer] | None)


async def a_version_is_read_only(version: AgentVersion[DeepAgentDeps, str]) -> None:
    version.name = 'other'  # type: ignore[misc]
    version.metadata['a'] = 1  # type: ignore[index]
