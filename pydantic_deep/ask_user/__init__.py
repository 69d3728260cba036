"""Questions to the user: the model asks with the tool `ask_user`, the run pauses, and the answer is the tool's result.

A question is a pending call like those that need approval, so every interface shows it, a store keeps it, and it can be
answered in another process. `_capability.py` has the capability and its tool.
"""

from ._capability import AskUser

__all__ = ('AskUser',)
