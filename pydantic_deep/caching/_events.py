"""The event of this capability: a request breaks the cached prefix."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic_ai import CapabilityEvent

Reason: TypeAlias = Literal['model', 'tools', 'settings', 'instructions', 'summarized', 'history']
"""The changed part: the model; tool schemas or their order; settings that affect the prompt; the instructions; earlier
messages, replaced by a summary (`summarized`), or changed or removed otherwise (`history`).
"""


@dataclass(kw_only=True)
class PrefixBrokenEvent(CapabilityEvent, namespace='caching', name='prefix_broken'):
    """A request did not start with the complete previous request, so its provider reads less of it from the cache.

    At most one event is emitted per request, with the first reason in the order in which providers read a request:
    everything after it is affected, too. Only `summarized` is intentional.
    """

    reason: Reason
    """The part of the request that changed."""
    detail: str
    """The names or indexes of the changed tools, settings or messages, without any content."""
