"""What the agents of a user remember: the files of their memory, revisions, and undo."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pydantic_deep.errors import DeepAgentError
from pydantic_deep.memory import MemoryRevision, RevisionNotFoundError, VersionedMemory
from pydantic_deep.store import Store

MAIN_FILE: Final = 'MEMORY.md'
"""The notebook, which each turn begins with."""

MAX_FILES: Final = 1_000
"""Maximum number of files to list, as in a search by the model."""

MAX_REVISIONS: Final = 1_000
"""Maximum number of revisions to list."""

_AGENT: Final = 'main'
"""The segment of paths that `Memory` uses for its only agent."""


class UnknownMemoryError(DeepAgentError, LookupError):
    """The memory has no such file or revision."""


@dataclass(frozen=True, kw_only=True)
class Memories:
    """The memory of one person in a store."""

    files: VersionedMemory
    person: str
    """The name of the person, as it is stored with answers."""

    @classmethod
    async def open(cls, store: Store, person: str) -> Memories:
        """Return the memory of a person in a store, which stays open."""
        return cls(files=await VersionedMemory.open(store), person=person)

    @property
    def namespace(self) -> str:
        """The first segment of all paths: the name, with other characters than letters, digits and `_` as hex codes."""
        person = self.person.encode(errors='surrogateescape')
        return re.sub(rb'\W', lambda match: b'-%02x' % match[0][0], person).decode()

    async def current(self) -> list[MemoryRevision]:
        """Return the latest revision of each existing file, the notebook first."""
        paths = await self.files.list_paths(f'{self.namespace}/{_AGENT}/', limit=MAX_FILES)
        found = [revision for path in paths for revision in await self.files.history(path, limit=1)]
        return sorted(found, key=lambda revision: (self.name_of(revision) != MAIN_FILE, revision.path))

    async def history(self, name: str) -> list[MemoryRevision]:
        """Return the revisions of a file, newest first.

        Raises:
            UnknownMemoryError: There is no such file.
        """
        found = await self.files.history(self._path(name), limit=MAX_REVISIONS)
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
            return await self.files.restore(latest.path, wanted, metadata={'by': self.person})
        except RevisionNotFoundError:
            raise UnknownMemoryError(
                f'The memory file {name!r} has no revision {wanted}. Use a number from 0 to {latest.number}.'
            ) from None

    def name_of(self, revision: MemoryRevision) -> str:
        """Return the name of a file, as the model sees it."""
        return revision.path.removeprefix(self._path(''))

    def _path(self, name: str) -> str:
        return f'{self.namespace}/{_AGENT}/{name}'
