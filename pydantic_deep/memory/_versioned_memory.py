"""`VersionedMemory`: the files of a memory as rows that are added and never change, except for which is the latest."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pydantic import AwareDatetime, BaseModel

from pydantic_deep._capabilities.replay_time import current_replay_time
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.repository import Create, Prefix, RowExistsError, SqlRepository, Upsert, Where
from pydantic_deep.repository.sql import SupportsEngine
from pydantic_deep.store import Store

if TYPE_CHECKING:  # the harness is not a dependency: whoever uses its `Memory` has it
    from pydantic_ai_harness.memory import MemoryFile, MemoryMutation, MemoryOperation

_FIELDS: Final = ('path', 'number', 'is_latest', 'is_deleted', 'operation_id')


class RevisionNotFoundError(DeepAgentError, LookupError):
    """A file of a memory has no such revision.

    Attributes:
        path: The path of the file.
        number: The number of the revision.
    """

    def __init__(self, path: str, number: int) -> None:
        self.path = path
        self.number = number
        super().__init__(f'The memory file {path!r} has no revision {number}. `history({path!r})` lists its revisions.')


class MemoryRevision(BaseModel):
    """One revision of a file."""

    id: str
    """The path and the number. It is unique, so that of two writes from one revision the second one fails."""
    path: str
    """The path of the file: the namespace and the agent of its `Memory`, then its name."""
    number: int
    """The position among the revisions of the file, from 1."""
    content: str
    """The content; empty if the file was deleted."""
    is_deleted: bool
    """Whether this revision deleted the file."""
    is_latest: bool
    """Whether no later revision of the file exists."""
    metadata: dict[str, str]
    """What the writer recorded, such as its run and conversation."""
    operation_id: str | None
    """Identifies the call that wrote the revision, so that a repeated call writes once."""
    fingerprint: str | None
    """A digest of the arguments of that call."""
    written_at: AwareDatetime
    """When the revision was written."""


class VersionedMemory:
    """A store for `Memory` of pydantic-ai-harness that retains every revision, with who wrote it.

    ```text
    memories = await VersionedMemory.open(store)
    agent = create_deep_agent(capabilities=[Memory(store=memories, namespace='ada')])
    ```

    Args:
        rows: The revisions, as `open` creates them.
    """

    def __init__(self, rows: SqlRepository[MemoryRevision]) -> None:
        self._rows = rows

    @classmethod
    async def open(cls, store: Store | SupportsEngine) -> VersionedMemory:
        """Open the memory in the database of a store, which stays open.

        Raises:
            TypeError: The store is not in a SQL database.
        """
        return cls(await SqlRepository[MemoryRevision].open(store, MemoryRevision, fields=_FIELDS, name='memory'))

    async def history(self, path: str, *, limit: int = 100) -> list[MemoryRevision]:
        """Return the revisions of a file, newest first; an empty list if it never existed.

        Args:
            path: The path of the file, as `list_paths` returns it.
            limit: Maximum number of revisions, from 1 to 1,000.
        """
        return (await self._rows.list({'path': path}, order_by='-number', limit=limit)).items

    async def restore(self, path: str, number: int, *, metadata: Mapping[str, str] | None = None) -> MemoryRevision:
        """Write the content of an earlier revision as a new one, or delete the file if that revision had deleted it.

        Number 0 is the state before the first revision. Agents see the content with their next turn.

        Args:
            path: The path of the file.
            number: The number of the revision.
            metadata: What to record with the new revision, such as `{'author': 'ada'}`.

        Raises:
            RevisionNotFoundError: The file has no such revision.
            MemoryConflictError: The file was written in the meantime. Of pydantic-ai-harness.
        """
        latest = await self._latest(path)
        page = await self._rows.list({'path': path, 'number': number}, limit=1)
        if latest is None or (not page.items and number != 0):
            raise RevisionNotFoundError(path, number)
        wanted = page.items[0] if page.items else None
        is_deleted = wanted is None or wanted.is_deleted
        return await self._add(
            path, '' if wanted is None else wanted.content, latest, metadata, None, is_deleted=is_deleted
        )

    async def read(self, path: str, *, max_chars: int) -> MemoryFile | None:
        """Return a file; `None` if it does not exist. Called by `Memory`.

        A replay reads the file as it was when the recorded run began.
        """
        from pydantic_ai_harness.memory import MemoryFile

        latest, moment = await self._latest(path), current_replay_time()
        if latest is not None and moment is not None:
            latest = await self._revision_at(latest, moment)
        if latest is None or latest.is_deleted:
            return None
        return MemoryFile(
            content=latest.content[:max_chars],
            version=str(latest.number),
            operation_id=latest.operation_id,
            truncated=len(latest.content) > max_chars,
            metadata=latest.metadata or None,
        )

    async def get_operation(self, operation: MemoryOperation) -> MemoryMutation | None:
        """Return the result of a call that was made before; `None` for a new one. Called by `Memory`.

        Raises:
            MemoryOperationConflictError: The call was made with other arguments.
        """
        from pydantic_ai_harness.memory import MemoryMutation, MemoryOperationConflictError

        page = await self._rows.list({'operation_id': operation.id}, limit=1)
        if not page.items:
            return None
        [made] = page.items
        if made.fingerprint != operation.fingerprint:
            raise MemoryOperationConflictError(
                f'The memory operation {operation.id!r} was made before with other arguments.'
            )
        before = await self._rows.list({'path': made.path, 'number': made.number - 1}, limit=1)
        existed = any(not revision.is_deleted for revision in before.items)
        return MemoryMutation(version=None if made.is_deleted else str(made.number), replayed=True, existed=existed)

    async def write(
        self, path: str, content: str, *, expected_version: str | None, operation: MemoryOperation | None = None
    ) -> MemoryMutation:
        """Write a file without metadata. Called by `Memory`.

        Raises:
            MemoryConflictError: The file has another version.
        """
        return await self.write_with_metadata(
            path, content, expected_version=expected_version, metadata=None, operation=operation
        )

    async def write_with_metadata(
        self,
        path: str,
        content: str,
        *,
        expected_version: str | None,
        metadata: Mapping[str, str] | None,
        operation: MemoryOperation | None = None,
    ) -> MemoryMutation:
        """Write a file. Called by `Memory`.

        Raises:
            MemoryConflictError: The file has another version.
        """
        return await self._mutate(path, content, expected_version, metadata, operation)

    async def delete(
        self, path: str, *, expected_version: str | None, operation: MemoryOperation | None = None
    ) -> MemoryMutation:
        """Delete a file. Its revisions remain. Called by `Memory`.

        Raises:
            MemoryConflictError: The file has another version.
        """
        return await self._mutate(path, None, expected_version, None, operation)

    async def create(self, path: str, content: str, *, written_at: datetime) -> MemoryRevision:
        """Write the first revision of a file with the time of another store, for a copy.

        Raises:
            MemoryConflictError: The file exists or existed. Of pydantic-ai-harness.
        """
        return await self._add(path, content, None, None, None, is_deleted=False, written_at=written_at)

    async def current(self, prefix: str = '', *, limit: int) -> list[MemoryRevision]:
        """Return the latest revisions of existing files whose paths have this prefix, in the order of their paths."""
        where: Where = {'path': Prefix(prefix), 'is_latest': True, 'is_deleted': False}
        return [revision async for revision in self._list(where, 'path', limit)]

    async def at(self, moment: datetime, prefix: str = '', *, limit: int) -> list[MemoryRevision]:
        """Return what `current` returned at a time.

        Args:
            moment: The time, with a time zone.
            prefix: The beginning of the paths.
            limit: Maximum number of files.
        """
        found: list[MemoryRevision] = []
        async for latest in self._list({'path': Prefix(prefix), 'is_latest': True}, 'path'):
            revision = await self._revision_at(latest, moment)
            if revision is not None and not revision.is_deleted:
                found.append(revision)
                if len(found) == limit:
                    break
        return found

    async def list_paths(self, prefix: str = '', *, limit: int) -> list[str]:
        """Return the paths of existing files with this prefix, in order. Called by `Memory`.

        A replay lists the files that existed when the recorded run began.
        """
        moment = current_replay_time()
        found = await (self.current(prefix, limit=limit) if moment is None else self.at(moment, prefix, limit=limit))
        return [revision.path for revision in found]

    async def _latest(self, path: str) -> MemoryRevision | None:
        page = await self._rows.list({'path': path, 'is_latest': True}, limit=1)
        return page.items[0] if page.items else None

    async def _list(self, where: Where, order_by: str, limit: float = math.inf) -> AsyncGenerator[MemoryRevision]:
        """Yield the revisions that match, page by page, at most `limit`."""
        cursor: str | None = None
        while limit > 0:
            page = await self._rows.list(where, order_by=order_by, limit=int(min(limit, 1000)), cursor=cursor)
            for revision in page.items:
                yield revision
            limit -= len(page.items)
            cursor = page.cursor
            if cursor is None:
                return

    async def _revision_at(self, latest: MemoryRevision, moment: datetime) -> MemoryRevision | None:
        """Return the revision of a file at a time; `None` if it had none yet."""
        if latest.written_at <= moment:
            return latest
        async for revision in self._list({'path': latest.path}, '-number'):
            if revision.written_at <= moment:
                return revision
        return None

    async def _mutate(
        self,
        path: str,
        content: str | None,
        expected_version: str | None,
        metadata: Mapping[str, str] | None,
        operation: MemoryOperation | None,
    ) -> MemoryMutation:
        """Add a revision with new content, or with `None` one that deletes the file."""
        from pydantic_ai_harness.memory import MemoryConflictError, MemoryMutation

        if operation is not None and (made := await self.get_operation(operation)) is not None:
            return made
        latest = await self._latest(path)
        existed = latest is not None and not latest.is_deleted
        version = str(latest.number) if latest is not None and existed else None
        if version != expected_version:
            raise MemoryConflictError(
                f'The memory file {path!r} has the version {version}, and not {expected_version}.'
            )
        if content is None and not existed:
            return MemoryMutation(version=None, replayed=False, existed=False)
        added = await self._add(path, content or '', latest, metadata, operation, is_deleted=content is None)
        return MemoryMutation(version=None if content is None else str(added.number), replayed=False, existed=existed)

    async def _add(
        self,
        path: str,
        content: str,
        latest: MemoryRevision | None,
        metadata: Mapping[str, str] | None,
        operation: MemoryOperation | None,
        *,
        is_deleted: bool,
        written_at: datetime | None = None,
    ) -> MemoryRevision:
        from pydantic_ai_harness.memory import MemoryConflictError

        number = 1 if latest is None else latest.number + 1
        added = MemoryRevision(
            id=f'{path}@{number}',
            path=path,
            number=number,
            content=content,
            is_deleted=is_deleted,
            is_latest=True,
            metadata=dict(metadata or {}),
            operation_id=None if operation is None else operation.id,
            fingerprint=None if operation is None else operation.fingerprint,
            written_at=written_at or datetime.now(UTC),
        )
        replaced = [] if latest is None else [Upsert(latest.model_copy(update={'is_latest': False}))]
        try:
            await self._rows.apply([Create(added), *replaced])
        except RowExistsError as error:
            raise MemoryConflictError(
                f'The memory file {path!r} was written in the meantime. Read it again.'
            ) from error
        return added
