"""What agents remember across conversations."""

from __future__ import annotations

from typing import ClassVar

from pydantic import AwareDatetime, ConfigDict

from pydantic_deep._examples import EXAMPLE_ID, EXAMPLE_MOMENT, example_config

from ._base import View


class MemoryFileRevision(View):
    """A revision of a file of the memory."""

    model_config: ClassVar[ConfigDict] = example_config(
        {
            'file': 'MEMORY.md',
            'number': 1,
            'content': '- Drinks tea.\n',
            'is_deleted': False,
            'conversation_id': EXAMPLE_ID,
            'run_id': EXAMPLE_ID,
            'by': None,
            'written_at': EXAMPLE_MOMENT,
        }
    )

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
    written_at: AwareDatetime
    """When it was written."""
