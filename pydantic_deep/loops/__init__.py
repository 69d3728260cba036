"""Detect calls that are repeated with the same result, and end runs that do nothing else, for any pydantic-ai agent."""

from ._capability import LoopDetection
from ._errors import RepeatedCallsError
from ._events import RepeatedCallEvent

__all__ = ('LoopDetection', 'RepeatedCallEvent', 'RepeatedCallsError')
