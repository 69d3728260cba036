"""A room: says when a request breaks the prefix that a provider has cached, and why."""

from ._capability import CacheWatch
from ._events import PrefixBrokenEvent, Reason

__all__ = ('CacheWatch', 'PrefixBrokenEvent', 'Reason')
