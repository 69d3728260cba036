"""Detect requests that break the prefix which a provider has cached, and report the reason."""

from ._capability import CacheWatch
from ._events import PrefixBrokenEvent, Reason

__all__ = ('CacheWatch', 'PrefixBrokenEvent', 'Reason')
