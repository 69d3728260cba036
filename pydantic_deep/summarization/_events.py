"""The event of this capability: a history was summarized."""

from dataclasses import dataclass

from pydantic_ai import CapabilityEvent


@dataclass(kw_only=True)
class HistorySummarizedEvent(CapabilityEvent, namespace='summarization', name='summarized'):
    """The head of a history was replaced by a summary. The replaced messages remain available to `search_history`."""

    reason: str
    """The trigger: `tokens`, `messages` or `fraction`, or `overflow` if the provider rejected a request as too long."""
    replaced_messages: int
    """The number of messages that the summary replaces."""
    tokens_before: int
    """The size of the request before the summary, as far as it is known."""
    tokens_after: int
    """The size of the shortened history, as counted locally."""
    is_plain: bool
    """Whether no model wrote the summary, so that it only lists the most important state."""
    error: str | None = None
    """The error of the summarizer: its type and message."""
