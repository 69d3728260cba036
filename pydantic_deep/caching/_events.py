"""What the room tells the world: a request that breaks the prefix, and why."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic_ai import CapabilityEvent

Reason: TypeAlias = Literal['model', 'tools', 'settings', 'instructions', 'summarized', 'history']
"""What of a request is not as it was: the model; schemas of tools, in whatever order; settings that shape the prompt; the
instructions; earlier messages, which a summary has replaced (`summarized`), or which changed or went (`history`)."""


@dataclass(kw_only=True)
class PrefixBrokenEvent(CapabilityEvent, namespace='caching', name='prefix_broken'):
    """A request did not begin with all of the one before it, so that its provider reads less of it from the cache.

    There is one for a request, with the first reason in the order in which providers read: what comes after is broken
    with it. Only `summarized` is meant.
    """

    reason: Reason
    """What was not as before."""
    detail: str
    """Which tools, settings or messages, by names and numbers; nothing of what was said."""
