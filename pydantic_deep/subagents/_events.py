"""What the room tells the world: an event of a subagent, with the way to it."""

from dataclasses import dataclass

from pydantic_ai import AgentStreamEvent, CapabilityEvent


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
