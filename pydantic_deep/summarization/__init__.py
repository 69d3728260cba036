"""A room: a history that grows too long is replaced by a summary, and can still be searched."""

from ._capability import Summarization
from ._events import HistorySummarizedEvent
from ._summarizer import Summarizer
from ._types import Fraction, Keep, Messages, Tokens, Trigger

__all__ = ('Fraction', 'HistorySummarizedEvent', 'Keep', 'Messages', 'Summarization', 'Summarizer', 'Tokens', 'Trigger')
