"""What agents remember for an owner."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from pydantic_deep._examples import EXAMPLE_ID, EXAMPLE_MOMENT, example_config
from pydantic_deep.memory import Memories, MemoryRevision
from pydantic_deep.views import MemoryFileRevision

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


def show_revision(revision: MemoryRevision, memories: Memories) -> MemoryFileRevision:
    """Return what its owner sees of a revision."""
    found = revision.metadata
    return MemoryFileRevision.of(
        revision,
        file=memories.name_of(revision),
        conversation_id=found.get('conversation') or None,
        run_id=found.get('run') or None,
        by=found.get('by'),
    )


class MemoryFiles(BaseModel):
    """The memory of an agent for an owner."""

    model_config = example_config({'has_memory': True, 'items': [_EXAMPLE]})

    has_memory: bool
    """Whether agents of this server remember."""
    items: list[MemoryFileRevision]
    """The latest revision of each file that exists, the notebook first."""


class RevisionList(BaseModel):
    """The revisions of a file."""

    model_config = example_config({'items': [_EXAMPLE]})

    items: list[MemoryFileRevision]
    """The revisions, newest first."""


class Restore(BaseModel):
    """The revision of a file to restore."""

    model_config = example_config({'number': 0}, extra='forbid')

    number: Annotated[int, Field(ge=0)] | None = None
    """The number of the revision; 0 is the state before the first. Default: the one before the latest."""
