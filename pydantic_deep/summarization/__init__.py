"""Summarization: replace the head of a long history by a summary, and keep the replaced messages searchable.

`_capability` decides when, `_cut` where, `_summarizer` requests the summary, and `_text` has its prompt. `_overflow`
retries a request that the provider rejected as too long. `_search` and `_toolset` search the replaced messages.
"""

from ._capability import Summarization
from ._events import HistorySummarizedEvent
from ._summarizer import Summarizer
from ._types import Fraction, Keep, Messages, Tokens, Trigger

__all__ = ('Fraction', 'HistorySummarizedEvent', 'Keep', 'Messages', 'Summarization', 'Summarizer', 'Tokens', 'Trigger')
