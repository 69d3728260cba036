"""The event of this capability: a request is retried."""

from dataclasses import dataclass

from pydantic_ai import CapabilityEvent


@dataclass(kw_only=True)
class ModelRetriedEvent(CapabilityEvent, namespace='retries', name='retried', dispatch='immediate'):
    """An attempt at a request failed, and another one follows.

    Listeners receive the event before the delay. An event stream contains it before the delay only if the failed
    attempt had emitted events; otherwise it precedes the first event of a later attempt, and is missing if there is
    none.
    """

    attempt: int
    """The number of the attempt that follows, where the first attempt is 1."""
    attempts: int
    """The maximum number of attempts."""
    reason: str
    """The reason for the failure, without any content of the conversation, such as `'rate limited (429)'`."""
    delay_seconds: float
    """The delay before the attempt, in seconds."""
    is_void: bool
    """Whether parts of the failed response were emitted before this event. A user interface must discard them: the
    response starts again at the index of its first part, and the final response has none of the old parts.
    """
