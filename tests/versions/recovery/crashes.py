"""Simulated crashes: a store that commits nothing from some moment on, and a world outside of all processes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.store import CallRecord, Commit, Committed, SqlStore, StoreUnavailableError, open_engine
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import Answer, ScriptedModel
from pydantic_deep.versions import VersionedAgent

When = Callable[[Commit], bool]

MAY_HAVE_RUN = 'This call may have run before the process died.'


class MortalStore(SqlStore):
    """Simulates a crash: from one commit on, nothing is stored."""

    dies_before: When | None = None
    dies_after: When | None = None
    is_dead = False
    fails_at: When | None = None
    """Commits to refuse while the process is alive."""
    unread_after: When | None = None
    """The commit after which reading calls fails once."""
    is_unread = False

    async def calls(self, run_ids: Sequence[str]) -> list[CallRecord]:
        if self.is_unread:
            self.is_unread, self.unread_after = False, None
            raise StoreUnavailableError('The disk failed.')
        return await super().calls(run_ids)

    async def commit(self, commit: Commit) -> Committed:
        if self.fails_at is not None and self.fails_at(commit):
            raise StoreUnavailableError('The disk is full.')
        if self.dies_before is not None and self.dies_before(commit):
            self.is_dead = True
        if self.is_dead:
            raise StoreUnavailableError('The process is dead.')
        committed = await super().commit(commit)
        self.is_unread = self.unread_after is not None and self.unread_after(commit)
        if self.dies_after is not None and self.dies_after(commit):
            self.is_dead = True
            raise StoreUnavailableError('The process is dead.')
        return committed


@dataclass
class World:
    """State outside of all processes: the store, the effects of tools, and the requests to the model."""

    url: str
    script: Callable[[str, int], Answer]
    """Answers by the last prompt and the number of responses since."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    subagents: Sequence[Subagent] = ()
    ran: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])
    may_pay: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_pay.set()

    def model(self) -> ScriptedModel:
        def then(messages: list[ModelMessage], info: AgentInfo) -> Answer:
            said, count = '', 0
            for message in messages:
                parts = message.parts if isinstance(message, ModelRequest) else ()
                count += not isinstance(message, ModelRequest)
                for part in parts:
                    if isinstance(part, UserPromptPart):
                        said, count = str(part.content), 0
            self.asked.append(f'{said} {count}')
            return self.script(said, count)

        return ScriptedModel(then=then)

    @cached_property
    def tools(self) -> FunctionToolset[Any]:
        toolset = FunctionToolset[Any]()

        # None of them runs in a thread, which a crash might hit before it starts.
        @toolset.tool_plain(metadata={'effect': 'read'})
        async def look(key: str) -> str:
            """Look."""
            self.ran.append(f'look {key}')
            return f'seen {key}'

        @toolset.tool_plain
        async def long() -> str:
            """Return much."""
            return 'x' * 100_000

        @toolset.tool_plain
        async def measure() -> list[float]:
            """Return what JSON has no numbers for."""
            return [math.nan, -math.inf]

        @toolset.tool_plain
        async def send(key: str) -> str:
            """Send."""
            self.ran.append(f'send {key}')
            return f'sent {key}'

        @toolset.tool_plain
        async def pay(key: str) -> str:
            """Pay."""
            await self.may_pay.wait()
            self.ran.append(f'pay {key}')
            return f'paid {key}'

        @toolset.tool(metadata={'effect': 'write'})
        async def draft(ctx: RunContext[DeepAgentDeps]) -> str:
            """Draft."""
            await ctx.deps.backend.write_bytes('/draft.txt', b'half')
            await self.may_pay.wait()
            return 'drafted'

        @toolset.tool
        async def make(ctx: RunContext[DeepAgentDeps], key: str) -> str:
            """Write a file without a declared effect, like a third-party tool."""
            self.ran.append(f'make {key}')
            await ctx.deps.backend.write_bytes(f'/{key}', key.encode())
            return f'made {key}'

        return toolset

    def build(self) -> Agent[Any, Any]:
        """Return the agent as each process builds it."""
        child = Subagent('child', 'Helps.', toolsets=[self.tools])
        fork = Subagent('fork', 'Helps apart.', toolsets=[self.tools], isolation='fork')
        above = Subagent(
            'above', 'Has others.', toolsets=[self.tools], isolation='fork', subagents=[child, fork], max_depth=1
        )
        return create_deep_agent(
            self.model(), toolsets=[self.tools], subagents=[child, fork, above], name='agent', **self.options
        )

    def agent(self, store: SqlStore) -> VersionedAgent[Any, Any]:
        return VersionedAgent(self.build(), store, make_deps=lambda: DeepAgentDeps(max_depth=2))

    @asynccontextmanager
    async def process(
        self, *, dies_before: When | None = None, dies_after: When | None = None, fails_at: When | None = None
    ) -> AsyncGenerator[VersionedAgent[Any, Any]]:
        """Open the store like a process, and simulate its crash at the end."""
        async with MortalStore(await open_engine(self.url)) as store:
            store.dies_before, store.dies_after, store.fails_at = dies_before, dies_after, fails_at
            try:
                yield self.agent(store)
            except StoreUnavailableError:
                assert store.is_dead


def tool_call(tool: str, *, id: str | None = None, **args: object) -> ToolCallPart:
    return ToolCallPart(tool, args, tool_call_id=id or f'{tool} {" ".join(map(str, args.values()))}')


def starts(tool: str) -> When:
    return lambda commit: any(each.tool_name == tool and each.status == 'started' for each in commit.calls)


def ends(tool: str) -> When:
    return lambda commit: any(each.tool_name == tool and each.status == 'done' for each in commit.calls)


def parts_of_returns(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def returns(messages: Sequence[ModelMessage]) -> list[str]:
    return [str(part.content) for part in parts_of_returns(messages)]


def plan(answers: dict[str, list[Answer]]) -> Callable[[str, int], Answer]:
    return lambda said, count: answers[said][count]


def begins(commit: Commit) -> bool:
    return bool(commit.runs)


def nth(when: When, count: int) -> When:
    """Return a predicate for the nth matching commit."""
    seen: list[Commit] = []

    def is_it(commit: Commit) -> bool:
        if when(commit):
            seen.append(commit)
        return len(seen) == count and commit is seen[-1]

    return is_it


def keeps_child(commit: Commit) -> bool:
    return any(version.agent_name == 'child' for version in commit.versions)
