"""The conversations that a turn delegated to, as a tree, and the events that link them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic_deep.store import DelegationRecord, RequestRecord, RunState, Store, VersionFilter, VersionRecord

from ._frozen_json import FrozenJson, freeze


@dataclass(frozen=True, kw_only=True)
class SubagentThread:
    """A conversation that a tool call delegated to."""

    conversation_id: str
    """The id of the conversation, on the wire `sub_agent_thread_id`. `VersionedAgent.thread` returns its messages."""
    subagent: str
    """The name of the subagent in the call."""
    intent: str
    """The task of the subagent."""
    arguments: FrozenJson
    """The arguments of the tool call."""
    tool_call_id: str
    """The id of the tool call that delegated."""
    run_id: str
    """The id of the run that made the call."""
    state: RunState
    """The state of its last run."""
    version_id: str | None
    """The id of its newest version; `None` if it has none."""
    subagents: Sequence[SubagentThread] = ()
    """The threads that it delegated to itself."""


@dataclass(frozen=True, kw_only=True)
class ThreadEvent:
    """An event about a delegation of a conversation, in the order of the store."""

    kind: Literal['tool_call', 'tool_response']
    """`tool_call` for the start of a delegation, `tool_response` for its end."""
    tool_call_id: str
    """The id of the tool call that delegated."""
    tool_name: str
    """The name of the called tool."""
    data: FrozenJson
    """For a `tool_call`: `intent`, `arguments`, `sub_agent_thread_id`. For a `tool_response`: the same id, and
    `status`.
    """
    at: int
    """The time of the event, in microseconds since 1970."""


async def load_subagents(store: Store, run_ids: Sequence[str]) -> list[SubagentThread]:
    """Return the conversations that runs delegated to, each once: a paused one is linked to several runs."""
    links = [link for run_id in run_ids for link in await store.delegations(parent_run_id=run_id)]
    return [await _thread(store, link) for link in {link.child_conversation_id: link for link in links}.values()]


async def load_events(store: Store, conversation_id: str) -> list[ThreadEvent]:
    """Return the delegations of a conversation as events."""
    events: list[ThreadEvent] = []
    for run in reversed(await store.runs(conversation_id=conversation_id)):
        calls = {(call.response_id, call.tool_call_id): call for call in await store.calls([run.id])}
        for link in await store.delegations(parent_run_id=run.id):
            call = calls.get((link.response_id, link.tool_call_id))
            name = 'task' if call is None else call.tool_name
            data = {
                'intent': link.intent,
                'arguments': parse_arguments(link.arguments),
                'sub_agent_thread_id': link.child_conversation_id,
            }
            events.append(
                ThreadEvent(
                    kind='tool_call', tool_call_id=link.tool_call_id, tool_name=name, data=freeze(data),
                    at=link.created_at,
                )
            )  # fmt: skip
            if call is not None and call.ended_at is not None:
                response = {'sub_agent_thread_id': link.child_conversation_id, 'status': call.status}
                events.append(
                    ThreadEvent(
                        kind='tool_response', tool_call_id=link.tool_call_id, tool_name=name, data=freeze(response),
                        at=call.ended_at,
                    )
                )  # fmt: skip
    return sorted(events, key=lambda event: event.at)


async def attempt_ids(store: Store, record: VersionRecord) -> list[str]:
    """Return the id of the run that made a version, after the ids of the crashed runs that it resumed, oldest first."""
    run_ids: list[str] = []
    run_id = record.run_id
    while run_id is not None and run_id not in run_ids:
        run_ids.append(run_id)
        run = await store.run(run_id)
        run_id = None if run is None else run.attempt_of
    return run_ids[::-1]


async def load_requests(store: Store, record: VersionRecord) -> list[RequestRecord]:
    """Return the model requests of the turn that created a version."""
    return [request for run_id in await attempt_ids(store, record) for request in await store.requests(run_id)]


async def _thread(store: Store, link: DelegationRecord) -> SubagentThread:
    runs = await store.runs(conversation_id=link.child_conversation_id)
    newest = await store.versions(VersionFilter(conversation_id=link.child_conversation_id), limit=1)
    return SubagentThread(
        conversation_id=link.child_conversation_id,
        subagent=link.subagent,
        intent=link.intent,
        arguments=freeze(parse_arguments(link.arguments)),
        tool_call_id=link.tool_call_id,
        run_id=link.parent_run_id,
        state=runs[0].state if runs else 'interrupted',
        version_id=newest[0].id if newest else None,
        subagents=await load_subagents(store, [run.id for run in reversed(runs)]),
    )


def parse_arguments(arguments: str) -> object:
    """Return the arguments of a call, parsed if they are JSON."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
