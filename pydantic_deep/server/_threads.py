"""`Thread`: the stored link from a client's dialogue or thread to a version.

Clients of other APIs (`compat`) and of user interfaces (`ui`) have their own ids; each computes the keys of its rows.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

THREAD_FIELDS = ('owner', 'created_at')
"""The indexed fields of threads."""


class Thread(BaseModel):
    """A dialogue as a client has seen it, and the version that contains it."""

    id: str
    """The digest of the owner, the agent, and the dialogue or the client's id of the thread."""
    owner: str
    """The owner of the conversation."""
    version_id: str
    """The version that the dialogue ends with; for a thread, the root of its conversation."""
    created_at: datetime
    """When the row was stored."""
    system: str = ''
    """The SHA-256 of the client's last system prompt."""
