"""What the room tells the world: that a history was summarized."""

from dataclasses import dataclass

from pydantic_ai import CapabilityEvent


@dataclass(kw_only=True)
class HistorySummarizedEvent(CapabilityEvent, namespace='summarization', name='summarized'):
    """The head of a history was replaced, for good. Nothing is lost: `search_history` finds all of it."""

    reason: str
    """Why: `tokens`, `messages`, `fraction`, or `overflow` where the provider refused the request as too long."""
    replaced_messages: int
    """How many messages the summary stands for."""
    tokens_before: int
    """What the request would have taken, as far as it is known."""
    tokens_after: int
    """What the shorter history takes, counted."""
    is_plain: bool
    """Whether no model could write the summary, and what must not be forgotten was only listed."""
    error: str | None = None
    """Why no model could: the type of the error, and what it says."""
