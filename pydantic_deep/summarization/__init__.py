"""Summarization: replace the head of a long history by a summary, and keep the replaced messages searchable."""

from ._capability import Summarization
from ._events import HistorySummarizedEvent
from ._summarizer import Summarizer
from ._types import Fraction, Keep, Messages, Tokens, Trigger

__all__ = ('Fraction', 'HistorySummarizedEvent', 'Keep', 'Messages', 'Summarization', 'Summarizer', 'Tokens', 'Trigger')
