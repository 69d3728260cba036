"""What the room tells the world: an event of a subagent, with the way to it."""

from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic_ai import AgentStreamEvent, CapabilityEvent, RunContext

Forward: TypeAlias = Callable[[RunContext[Any], AsyncIterable[AgentStreamEvent]], Awaitable[None]]
"""What pydantic-ai calls with the stream of a run."""


@dataclass(kw_only=True)
class SubagentEvent(CapabilityEvent, namespace='subagents', name='event'):
    """Something that a subagent did, as its own stream has it.

    It is emitted where the parent's run is streamed. `tool_call_id` is the `task` call of the parent in whose stream
    it stands. An event from further below is no event within an event: its path is longer.
    """

    path: tuple[str, ...]
    """The names of the subagents that lead to it, from the top."""
    conversation_id: str
    """The conversation of the subagent that it came from."""
    event: AgentStreamEvent
    """The event of the subagent; never a `SubagentEvent`."""


def forward_to(parent: RunContext[object], path: tuple[str, ...]) -> Forward:
    """Return what carries the stream of a child over to the stream of its parent.

    Args:
        parent: The context of the parent's `task` call.
        path: The path of the child.
    """

    async def forward(child: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        conversation_id = child.conversation_id or ''
        async for event in events:
            if isinstance(event, SubagentEvent):  # of its own child, with the whole path in it
                raised = SubagentEvent(path=event.path, conversation_id=event.conversation_id, event=event.event)
            else:
                raised = SubagentEvent(path=path, conversation_id=conversation_id, event=event)
            await parent.emit(raised)

    return forward
