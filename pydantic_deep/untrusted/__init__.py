"""Track content that others wrote, and require approval for calls that could send or change something because of it.

`UntrustedContent` is the capability. Which results are untrusted is in `_sources.py`, which calls need approval
afterwards in `_outward.py`. The approval itself is that of `Approvals`.
"""

from ._capability import UntrustedContent

__all__ = ('UntrustedContent',)
