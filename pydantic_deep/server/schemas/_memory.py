"""What agents remember for an owner."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from pydantic_deep._examples import EXAMPLE_ID, EXAMPLE_MOMENT, example_config
from pydantic_deep.memory import Memories, MemoryRevision

_EXAMPLE = {
    'file': 'MEMORY.md',
    'number': 1,
    'content': '- Drinks tea.\n',
    'is_deleted': False,
    'conversation_id': EXAMPLE_ID,
    'run_id': EXAMPLE_ID,
    'by': None,
    'written_at': EXAMPLE_MOMENT,
}


class RevisionInfo(BaseModel):
    """A revision of a file of the memory."""

    model_config = example_config(_EXAMPLE)

    file: str
    """The name of the file, as the model sees it."""
    number: int
    """The position among the revisions of the file, from 1."""
    content: str
    """The content; empty if this revision deleted the file."""
    is_deleted: bool
    """Whether this revision deleted the file."""
    conversation_id: str | None
    """The conversation in which the agent wrote it; null if a person restored it."""
    run_id: str | None
    """The run in which the agent wrote it; null if a person restored it."""
    by: str | None
    """Who restored it; null if the agent wrote it."""
    written_at: datetime
    """When it was written."""

    @classmethod
    def of(cls, revision: MemoryRevision, memories: Memories) -> RevisionInfo:
        """Return what its owner sees of a revision."""
        found = revision.metadata
        return cls(
            file=memories.name_of(revision),
            number=revision.number,
            content=revision.content,
            is_deleted=revision.is_deleted,
            conversation_id=found.get('conversation') or None,
            run_id=found.get('run') or None,
            by=found.get('by'),
            written_at=revision.written_at,
        )


class MemoryFiles(BaseModel):
    """The memory of an agent for an owner."""

    model_config = example_config({'has_memory': True, 'items': [_EXAMPLE]})

    has_memory: bool
    """Whether agents of this server remember."""
    items: list[RevisionInfo]
    """The latest revision of each file that exists, the notebook first."""


class RevisionList(BaseModel):
    """The revisions of a file."""

    model_config = example_config({'items': [_EXAMPLE]})

    items: list[RevisionInfo]
    """The revisions, newest first."""


class Restore(BaseModel):
    """The revision of a file to restore."""

    model_config = example_config({'number': 0}, extra='forbid')

    number: Annotated[int, Field(ge=0)] | None = None
    """The number of the revision; 0 is the state before the first. Default: the one before the latest."""
