"""Helpers for tests of pauses: paused turns, their inbox, and its clock."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart

from pydantic_deep import ApprovalInbox, Subagent
from pydantic_deep.testing import Step, call
from pydantic_deep.versions import AgentVersion
from tests.versions.conftest import MakeAgent, SpyStore

Version = AgentVersion[Any, Any]

ASK = {'write_file': True}


def write(path: str, content: str = 'x') -> Any:
    return call('write_file', path=path, content=content)


async def outcomes(version: Version) -> dict[str, str]:
    messages: list[ModelMessage] = await version.messages()
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    returned = [part for request in requests for part in request.parts if isinstance(part, ToolReturnPart)]
    return {part.tool_call_id: part.outcome for part in returned}


@pytest.fixture
def inbox(store: SpyStore) -> ApprovalInbox:
    return ApprovalInbox(store)


async def pause(make: MakeAgent, *steps: Step, **options: Any) -> Version:
    agent = make(*steps, interrupt_on=options.pop('interrupt_on', ASK), **options)
    return await (await agent.create()).advance('go')


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(store: SpyStore) -> Clock:
    clock = Clock()
    store._clock = clock  # pyright: ignore[reportPrivateUsage] - the store of the other fixtures
    return clock


def team() -> list[Subagent]:
    return [Subagent('lead', 'Leads.', subagents=[Subagent('hand', 'Works.')])]
