"""`RunStream`: what the streams of both protocols know of their run, the same in every process."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic_deep._messages.call_ids import unescape_call_id
from pydantic_deep.approvals import PendingApproval
from pydantic_deep.server._agents import ServedAgent
from pydantic_deep.store import VersionNotFoundError
from pydantic_deep.versions import external_tools_of


@dataclass(frozen=True, kw_only=True)
class RunCalls:
    """The calls that a run answers, and those that its client executes."""

    client_tools: frozenset[str] = frozenset()
    """The names of the client's tools."""
    client_results: frozenset[str] = frozenset()
    """The ids of the calls whose results the client has sent."""
    subagent_calls: Mapping[str, str] = field(default_factory=dict[str, str])
    """The calls of subagents that were pending before the run: their ids, by `shortened_id`."""


@dataclass(kw_only=True)
class RunStream:
    """Part of a stream of pydantic-ai, with the run that it shows."""

    agent: ServedAgent
    """The agent of the run."""
    id: str
    """The id of the run."""
    messages: int = 0
    """The number of messages so far."""
    _calls: RunCalls | None = field(default=None, init=False)

    def new_message_id(self) -> str:
        """Return an id that no other message has, and which names the run."""
        self.messages += 1
        self.message_id = f'{self.id}.{self.messages}'
        return self.message_id

    async def calls(self) -> RunCalls:
        """Return the calls of the run, from the store. Call it after an event of the run, which is stored then."""
        if self._calls is None:
            self._calls = await _load_calls(self.agent, self.id)
        return self._calls


def shortened_id(id: str) -> str:
    """Return the first and the last part of an id, which events of subagents contain."""
    parts = id.split('/')
    return f'{parts[0]}/{parts[-1]}'


async def _load_calls(agent: ServedAgent, run_id: str) -> RunCalls:
    run = await agent.store.run(run_id)
    if run is None:
        return RunCalls()
    pending = await _pending_at(agent, run.base_id)
    tools = frozenset(tool.name for tool in external_tools_of(run))
    return RunCalls(
        client_tools=tools,
        client_results=frozenset(unescape_call_id(call.id) for call in pending if not call.path and call.tool in tools),
        subagent_calls={shortened_id(call.id): call.id for call in pending if call.path},
    )


async def _pending_at(agent: ServedAgent, version_id: str | None) -> list[PendingApproval]:
    """Return the pending calls of a version; none if it was deleted."""
    with suppress(VersionNotFoundError):
        if version_id is not None and (await agent.store.version(version_id)).kind == 'pause':
            return (await agent.load(version_id)).pending
    return []
