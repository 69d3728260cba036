"""Fixtures for tests of loop detection: agents with a tool of constant results, and readers of their histories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelMessage, ToolReturnPart

from pydantic_deep.loops import LoopDetection, RepeatedCallEvent
from pydantic_deep.testing import ScriptedModel, Step
from pydantic_deep.testing._scripted import SeenRequest


def returns(messages: Iterable[ModelMessage]) -> list[str]:
    """Return the contents of all tool results."""
    return [str(part.content) for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def agent_of(*steps: Step, tools: FunctionToolset[Any], **options: Any) -> Agent[Any, Any]:
    """Return a plain agent with loop detection."""
    model = ScriptedModel(*steps)
    return Agent[Any, Any](model, capabilities=[LoopDetection()], toolsets=[tools], **options)


def looking(result: object = 'nothing new', **options: Any) -> FunctionToolset[Any]:
    """Return a toolset with the tool `look`, which always has the same result, and `find`, which has another each time."""
    toolset, found = FunctionToolset[Any](max_retries=10), list[str]()

    @toolset.tool_plain(**options)
    async def look(key: str = '') -> object:
        if isinstance(result, Exception):
            raise result
        return result

    @toolset.tool_plain
    async def find() -> str:
        found.append('')
        return f'finding {len(found)}'

    return toolset


class Events:
    """An event handler that stores the events of the capability."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    async def __call__(self, ctx: Any, events: Any) -> None:
        async for event in events:
            if isinstance(event, RepeatedCallEvent):
                self.seen.append((event.tool, event.count))


def choices(requests: Sequence[SeenRequest]) -> list[object]:
    """Return the tool choice of each request."""
    return [(request.settings or {}).get('tool_choice') for request in requests]
