"""`Memories`: what an agent remembers for one owner: the files, their revisions, and undo."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pydantic_ai import RunContext

from pydantic_deep.errors import DeepAgentError
from pydantic_deep.repository import InvalidQuestionError
from pydantic_deep.store import Store

from ._versioned_memory import MemoryRevision, RevisionNotFoundError, VersionedMemory

if TYPE_CHECKING:  # the harness is not a dependency
    from pydantic_ai_harness import Memory

MAIN_FILE: Final = 'MEMORY.md'
"""The notebook, which each turn begins with."""

MAX_FILES: Final = 1_000
"""Maximum number of files to list, as in a search by the model."""

MAX_REVISIONS: Final = 1_000
"""Maximum number of revisions to list."""

MAX_SEGMENT_CHARS: Final = 200
"""The longest segment of a path that pydantic-ai-harness accepts."""


class UnknownMemoryError(DeepAgentError, LookupError):
    """The memory has no such file or revision."""


@dataclass(frozen=True, kw_only=True)
class Memories:
    """The memory of an agent for one owner, in a store. No other owner's files have its paths."""

    files: VersionedMemory
    """The files of all owners."""
    owner: str
    """The name of the owner, which is recorded with what they undo."""
    agent: str = 'main'
    """The name of the agent."""

    @classmethod
    async def open(cls, store: Store, owner: str) -> Memories:
        """Return the memory of the main agent for an owner in a store, which stays open."""
        return cls(files=await VersionedMemory.open(store), owner=owner)

    @property
    def namespace(self) -> str:
        """The first segment of all paths."""
        return _segment(self.owner)

    def capability(self) -> Memory[object]:
        """Return the capability that gives an agent this memory, and records the conversation and run of each write.

        Raises:
            ModuleNotFoundError: pydantic-ai-harness is not installed.
        """
        from pydantic_ai_harness import Memory

        return Memory(
            store=self.files, namespace=self.namespace, agent_name=_segment(self.agent), write_metadata=_writer
        )

    async def current(self) -> list[MemoryRevision]:
        """Return the latest revision of each existing file, the notebook first."""
        found = await self.files.current(self._path(''), limit=MAX_FILES)
        return sorted(found, key=lambda revision: (self.name_of(revision) != MAIN_FILE, revision.path))

    async def at(self, moment: datetime) -> dict[str, str]:
        """Return the contents of the files that existed at a time, keyed by name."""
        found = await self.files.at(moment, self._path(''), limit=MAX_FILES)
        return {self.name_of(revision): revision.content for revision in found}

    async def fill(self, contents: Mapping[str, str]) -> None:
        """Fill an empty memory with files, keyed by name. Their time is 0, so that replays of all turns read them.

        Raises:
            MemoryConflictError: A file exists or existed. Of pydantic-ai-harness.
        """
        for name, content in contents.items():
            await self.files.create(self._path(name), content, written_at=datetime.fromtimestamp(0, UTC))

    async def history(self, name: str) -> list[MemoryRevision]:
        """Return the revisions of a file, newest first.

        Raises:
            UnknownMemoryError: There is no such file.
        """
        try:
            found = await self.files.history(self._path(name), limit=MAX_REVISIONS)
        except InvalidQuestionError:  # the name has NUL or half a character, so no file has it
            found = []
        if not found:
            known = ', '.join(map(self.name_of, await self.current()))
            raise UnknownMemoryError(f'There is no memory file {name!r}. Files: {known or "none yet"}.')
        return found

    async def undo(self, name: str, number: int | None = None) -> MemoryRevision:
        """Restore a revision of a file as the latest one, by default the one before the latest, and return it.

        Args:
            name: The name of the file.
            number: The number of the revision; 0 is the state before the first.

        Raises:
            UnknownMemoryError: There is no such file or revision.
        """
        [latest, *_] = await self.history(name)
        wanted = latest.number - 1 if number is None else number
        try:
            return await self.files.restore(latest.path, wanted, metadata={'by': self.owner})
        except (RevisionNotFoundError, InvalidQuestionError):  # the number does not fit into 64 bits
            raise UnknownMemoryError(
                f'The memory file {name!r} has no revision {wanted}. Use a number from 0 to {latest.number}.'
            ) from None

    def name_of(self, revision: MemoryRevision) -> str:
        """Return the name of a file, as the model sees it."""
        return revision.path.removeprefix(self._path(''))

    def _path(self, name: str) -> str:
        return f'{self.namespace}/{_segment(self.agent)}/{name}'


def _segment(name: str) -> str:
    """Return a name as a segment of a path, with other characters than letters, digits and `_` as hex codes.

    A long name ends with its digest, after two hyphens, which no other segment has.
    """
    data = name.encode(errors='surrogateescape')
    segment = re.sub(rb'\W', lambda match: b'-%02x' % match[0][0], data).decode()
    if len(segment) <= MAX_SEGMENT_CHARS:
        return segment
    return f'{segment[: MAX_SEGMENT_CHARS // 2]}--{hashlib.sha256(data).hexdigest()}'


def _writer(ctx: RunContext[object]) -> dict[str, str]:
    return {'conversation': ctx.conversation_id or '', 'run': ctx.run_id or ''}
