"""The event of this capability, which forwards an event of a subagent with its path."""

from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic_ai import AgentStreamEvent, CapabilityEvent, RunContext

Forward: TypeAlias = Callable[[RunContext[Any], AsyncIterable[AgentStreamEvent]], Awaitable[None]]
"""The type of pydantic-ai's event stream handler."""


@dataclass(kw_only=True)
class SubagentEvent(CapabilityEvent, namespace='subagents', name='event'):
    """An event of a subagent, as in its own event stream.

    It is emitted into the stream of the parent. `tool_call_id` is the `task` call in that stream. Events of nested
    subagents are not nested themselves, but have a longer path.
    """

    path: tuple[str, ...]
    """The names of the subagents that lead to the event, outermost first."""
    conversation_id: str
    """The conversation id of the subagent that emitted the event."""
    event: AgentStreamEvent
    """The event of the subagent; never a `SubagentEvent`."""


def forward_to(parent: RunContext[object], path: tuple[str, ...]) -> Forward:
    """Return an event stream handler that forwards events of a child to the stream of its parent.

    Args:
        parent: The context of the parent's `task` call.
        path: The path of the child.
    """

    async def forward(child: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        conversation_id = child.conversation_id or ''
        async for event in events:
            if isinstance(event, SubagentEvent):  # from a nested subagent, with its complete path
                forwarded = SubagentEvent(path=event.path, conversation_id=event.conversation_id, event=event.event)
            else:
                forwarded = SubagentEvent(path=path, conversation_id=conversation_id, event=event)
            await parent.emit(forwarded)

    return forward
