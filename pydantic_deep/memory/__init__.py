"""Memory across conversations, in the database of a store, with every revision and its author.

`VersionedMemory` is a store for the `Memory` capability of pydantic-ai-harness, which has the tools and the text for the
model. What is here is only what the harness's own stores do not have: the history of each file, and undo. `Memories` is
the memory of one owner.
"""

from ._memories import MAIN_FILE, Memories, UnknownMemoryError
from ._versioned_memory import MemoryRevision, RevisionNotFoundError, VersionedMemory

__all__ = (
    'MAIN_FILE',
    'Memories',
    'MemoryRevision',
    'RevisionNotFoundError',
    'UnknownMemoryError',
    'VersionedMemory',
)
