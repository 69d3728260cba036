"""Code of users that must type-check under strict pyright and strict mypy. It is checked and never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.workspaces import LocalWorkspaceBackend

from pydantic_deep import (
    ApprovalRule,
    DeepAgentDeps,
    Deny,
    Edit,
    Filesystem,
    LocalBackend,
    PendingApproval,
    StateBackend,
    Subagent,
    Todos,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep.approvals import Decision
from pydantic_deep_backends import BackendProtocol, SupportsCommands, SupportsSearch


@dataclass(kw_only=True)
class TenantDeps(DeepAgentDeps):
    tenant: str


class Answer(BaseModel):
    text: str


async def tenant(ctx: RunContext[TenantDeps]) -> str:
    return ctx.deps.tenant


assert_type(create_deep_agent('test'), Agent[DeepAgentDeps, str])
assert_type(create_deep_agent('test', output_type=Answer), Agent[DeepAgentDeps, Answer])
assert_type(create_deep_agent('test', deps_type=TenantDeps), Agent[TenantDeps, str])
assert_type(
    create_deep_agent('test', deps_type=TenantDeps, output_type=Answer, tools=[tenant]), Agent[TenantDeps, Answer]
)


async def run() -> None:
    agent = create_deep_agent('test', deps_type=TenantDeps, output_type=Answer)
    result = await agent.run('go', deps=TenantDeps(tenant='acme'))
    assert_type(result.output, Answer)


async def backends_are_found_by_protocol(backend: BackendProtocol) -> None:
    local: BackendProtocol = LocalBackend('.')
    state: BackendProtocol = StateBackend({'/a.txt': 'text', '/b.bin': b'bytes'})
    if isinstance(backend, SupportsSearch):
        await backend.glob('*')
    if isinstance(backend, SupportsCommands):
        await backend.run(['true'])
    theirs: BackendProtocol = LocalWorkspaceBackend('.')
    del local, state, theirs


def rooms_fit_any_agent() -> None:
    room: AbstractCapability[object] = Todos()
    Agent('test', deps_type=int, capabilities=[room, Filesystem(backend=StateBackend())])


create_deep_agent('test', deps_type=int)  # type: ignore[type-var]
TenantDeps(tenant=1)  # type: ignore[arg-type]

assert_type(
    create_deep_agent('test', interrupt_on={'write_file': True}), Agent[DeepAgentDeps, str | DeferredToolRequests]
)
assert_type(
    create_deep_agent('test', output_type=Answer, interrupt_on={'x': ApprovalRule(when=lambda args: True)}),
    Agent[DeepAgentDeps, Answer | DeferredToolRequests],
)
assert_type(
    create_deep_agent('test', subagents=[Subagent('a', 'Does a.', agent=Agent('test', deps_type=int))], skills=['.']),
    Agent[DeepAgentDeps, str],
)


async def approvals_are_answered() -> None:
    agent = create_deep_agent('test', interrupt_on={'write_file': True})
    output = (await agent.run('go', deps=DeepAgentDeps())).output
    if isinstance(output, DeferredToolRequests):
        pending: list[PendingApproval] = pending_approvals(output)
        decisions: dict[str, Decision] = {pending[0].id: Deny('no'), pending[1].id: Edit({'path': 'a'})}
        assert_type(answer_approvals(output, decisions), DeferredToolResults)
    else:
        assert_type(output, str)
