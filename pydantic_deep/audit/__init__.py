"""One record for each run: what was asked, what was done and said, what it cost, how it ended."""

from ._redact import Redact, Redactor, redact

__all__ = ('Redact', 'Redactor', 'redact')
