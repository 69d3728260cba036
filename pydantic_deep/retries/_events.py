"""What the room tells the world: a request that is made again."""

from dataclasses import dataclass

from pydantic_ai import CapabilityEvent


@dataclass(kw_only=True)
class ModelRetriedEvent(CapabilityEvent, namespace='retries', name='retried', dispatch='immediate'):
    """An attempt at a request failed, and another one follows.

    Listeners hear of it before the wait. A stream has it there only if the attempt had told something; else it comes
    with the first piece of a later attempt, and not at all if there is none.
    """

    attempt: int
    """The number of the attempt that follows; the first of a request was 1."""
    attempts: int
    """How many there are at most."""
    reason: str
    """Why the last one failed, in words that hold nothing of the conversation, such as `'rate limited (429)'`."""
    delay_seconds: float
    """How long is waited before it."""
    is_void: bool
    """Whether pieces of the failed answer were told before this event. Whoever shows them takes them back: the answer
    begins anew, at the index of its first part, and the response of the step will have none of the old pieces.
    """
