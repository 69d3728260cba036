"""A room: requests that failed for a reason that passes, and answers that were cut, are asked for again."""

from ._capability import Retries
from ._errors import CutAnswerError
from ._events import ModelRetriedEvent

__all__ = ('CutAnswerError', 'ModelRetriedEvent', 'Retries')
