"""The event of this capability: a call is repeated."""

from dataclasses import dataclass

from pydantic_ai import CapabilityEvent


@dataclass(kw_only=True)
class RepeatedCallEvent(CapabilityEvent, namespace='loops', name='repeated_call'):
    """A call had the same result for the third or fourth time, without any new result in between."""

    tool: str
    """The name of the called tool."""
    count: int
    """The number of such calls. After the third, the model is informed; after the fourth, it is asked for its last
    answer.
    """
