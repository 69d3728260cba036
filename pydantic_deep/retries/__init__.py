"""Retry model requests after transient errors and incomplete responses."""

from ._capability import Retries
from ._errors import CutAnswerError
from ._events import ModelRetriedEvent

__all__ = ('CutAnswerError', 'ModelRetriedEvent', 'Retries')
