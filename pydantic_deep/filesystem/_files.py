"""The files of one run as the tools see them: path resolution, complete reads, and changes without lost updates.

Large tool results are in memory and can be read under `/offload`, unless the user's backend has a file of the same
path. Listing or searching `/offload` covers both. All other files, and all changes, are those of the user's backend.

A change reads the file, decides, and writes only if the file is unchanged. With a compare-and-swap backend this holds
against all writers. With any other backend it holds between the calls of one run; a change that another run or program
makes between the last check and the write is lost.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import NoReturn, TypeVar

import anyio
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.workspaces import WorkspaceError

from pydantic_deep._text.encodings import MAX_FILE_BYTES
from pydantic_deep_backends import StateBackend
from pydantic_deep_backends.errors import BackendError, FileChangedError
from pydantic_deep_backends.paths import display_path, is_within, path_parts
from pydantic_deep_backends.protocol import BackendProtocol, RefusesChanges, SupportsCommands, SupportsCompareAndSwap
from pydantic_deep_backends.resolving import absolute_path
from pydantic_deep_backends.snapshots import digest_of

from ._listing import render_listing
from ._render import render_size
from ._stored_results import FilesAndResults

OFFLOAD = '/offload'
"""The directory of large results, as the tools of this capability see it."""

MAX_READ_BYTES = 64 * 1024 * 1024
"""Maximum size of a file that is read to show or edit it, as in grep."""

MAX_ATTEMPTS = 50
"""Maximum number of attempts at a change when other writers interfere. Each failure means that one of them succeeded.
"""

MAX_NAMES = 500
"""Maximum number of names to compare with a missing one. For the longest possible names this takes about 40 ms."""

PlanT = TypeVar('PlanT')


@dataclass(kw_only=True)
class RunState:
    """The file state of one run. It is never shared between runs."""

    offload: StateBackend
    """The backend of large results."""
    offload_chars: int | None
    """Maximum length of a tool result in characters before it is offloaded; `None` if results are not offloaded."""
    digest_by_key: dict[tuple[bool, str], str] = field(default_factory=dict[tuple[bool, str], str])
    """The digest of the contents that the model last read or wrote, keyed by canonical path."""
    lock_by_key: dict[tuple[bool, str], anyio.Lock] = field(default_factory=dict[tuple[bool, str], anyio.Lock])
    """Locks that serialize changes of a file, keyed by canonical path."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The target of a path."""

    backend: BackendProtocol
    """The backend that contains it."""
    path: str
    """The absolute path in the backend, without `..`."""
    is_offload: bool
    """Whether it is a large result under `/offload`."""

    @property
    def shown(self) -> str:
        """The path as it is shown to the model."""
        return display_path(self.path)


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files and state that the tools of one run use."""

    backend: BackendProtocol
    """The backend with the user's files."""
    commands: SupportsCommands | None
    """The same backend if it can run commands."""
    run: RunState
    """The file state of this run."""

    async def place(self, path: str) -> Place:
        """Resolve a path.

        Raises:
            InvalidPathError: The path is malformed.
            OSError: A component before `..` is not a directory.
        """
        return Place(backend=self.backend, path=await absolute_path(self.backend, path), is_offload=False)

    async def place_to_read(self, path: str) -> Place:
        """Resolve a path for reading: to a large result if there is one, unless the user's backend has a file of that
        path. The directory of large results has those of the user's backend too.

        Raises:
            InvalidPathError: The path is malformed.
            OSError: A component before `..` is not a directory.
        """
        place = await self.place(path)
        if await self.is_result(place.path):
            return Place(backend=self.run.offload, path=place.path, is_offload=True)
        if place.path == OFFLOAD and await self.run.offload.exists(OFFLOAD):
            return replace(place, backend=FilesAndResults(self.backend, self.run.offload, OFFLOAD, self.is_result))
        return place

    async def is_result(self, path: str) -> bool:
        """Return whether an absolute path is a large result, or their directory, and not in the user's backend."""
        return is_within(path, OFFLOAD) and await self.run.offload.exists(path) and not await self.is_taken(path)

    async def is_taken(self, path: str) -> bool:
        """Return whether the user's backend has an entry at an absolute path; `False` if it is unknown."""
        try:
            return await self.backend.exists(path)
        except (OSError, BackendError, WorkspaceError):
            return False

    async def read(self, place: Place) -> bytes:
        """Return the contents of a file, and record their digest as known to the model.

        Raises:
            ModelRetry: A file with a similar name exists, or the path is a directory.
            ToolFailed: The file does not exist or is too large.
            OSError: The file cannot be read.
        """
        async with self.naming_others(place):
            entry = await place.backend.stat(place.path)
            if not entry.is_dir and entry.size is not None and entry.size > MAX_READ_BYTES:
                raise ToolFailed(
                    f'{place.shown} has {render_size(entry.size)}; at most {render_size(MAX_READ_BYTES)} can be read.'
                )
            data = await place.backend.read_bytes(place.path)
        self.run.digest_by_key[await self._key(place)] = digest_of(data)
        return data

    async def change(
        self,
        place: Place,
        decide: Callable[[bytes | None, str | None], tuple[bytes, PlanT]],
        *,
        approved: Mapping[str, str | None],
    ) -> tuple[PlanT, bytes | None, bytes]:
        """Read a file, decide its new contents, and write them if nobody wrote in between; otherwise start over.

        Args:
            place: The file.
            decide: Takes the contents (`None` if the file does not exist) and the digest that this run knows (`None` if
                none), and returns the new contents and a result. Called once for each attempt.
            approved: The digests of the files with which a person approved the change, by canonical path; `None` if
                there was no file. Other files may have any contents.

        Returns:
            The result of `decide`, the earlier contents (`None` if the file did not exist), and the new contents.

        Raises:
            ModelRetry: The file has changed since a person approved the change.
            ToolFailed: Other writers interfered in every attempt, the new contents are too large, or the path is a large
                result.
            OSError: The file cannot be read or written. It is unchanged.
        """
        await self.refuse_result(place)
        key = await self._key(place)
        async with self.run.lock_by_key.setdefault(key, anyio.Lock()):
            for _ in range(MAX_ATTEMPTS):
                before = await _read_or_none(place)
                digest = None if before is None else digest_of(before)
                if approved.get(key[1], digest) != digest:
                    raise ModelRetry(f'{place.shown} changed after the approval. Read it again, then write.')
                data, plan = decide(before, self.run.digest_by_key.get(key))
                _refuse_large(place, data)
                try:
                    await _swap(place, data, digest)
                except FileChangedError:
                    continue
                self.run.digest_by_key[key] = digest_of(data)
                return plan, before, data
        raise ToolFailed(f'{place.shown} was changed by others {MAX_ATTEMPTS} times meanwhile. Try again later.')

    async def edit(
        self, place: Place, decide: Callable[[bytes], tuple[bytes, PlanT]], *, approved: Mapping[str, str | None]
    ) -> tuple[PlanT, bytes | None, bytes]:
        """Change an existing file like `change`.

        Raises:
            ModelRetry: The file does not exist, but one with a similar name does; or it has changed since a person
                approved the change.
            ToolFailed: The file does not exist, or the path is a large result.
        """

        def decide_on_file(before: bytes | None, known: str | None) -> tuple[bytes, PlanT]:
            if before is None:
                raise FileNotFoundError(place.path)
            return decide(before)

        try:
            return await self.change(place, decide_on_file, approved=approved)
        except FileNotFoundError:
            await self.refuse_edit(place)

    async def look(self, place: Place) -> tuple[str, bytes | None, str | None]:
        """Return the input of a change, without recording it as known to the model.

        Returns:
            The canonical path, the contents (`None` if the file does not exist) and the digest that this run knows
            (`None` if none).

        Raises:
            OSError: The file cannot be read.
        """
        key = await self._key(place)
        return key[1], await _read_or_none(place), self.run.digest_by_key.get(key)

    async def refuse_write(self, place: Place, data: bytes) -> None:
        """Raise the errors of a write that can be predicted, without writing.

        Raises:
            ToolFailed: The contents are too large, or the path is a large result.
            OSError: The path is read-only, or cannot be that of a file.
        """
        await self.refuse_result(place)
        _refuse_large(place, data)
        if isinstance(place.backend, RefusesChanges):
            await place.backend.refuse_change(place.path)

    async def refuse_result(self, place: Place) -> None:
        """Raise the error of a change that would hide a large result.

        Raises:
            ToolFailed: The path is a large result.
            IsADirectoryError: It is the directory of large results.
            NotADirectoryError: A parent of it is a large result.
        """
        result = '/'.join(('', *path_parts(place.path)[:2]))  # the directory has no subdirectories
        if not await self.is_result(result):
            return
        if result == OFFLOAD:
            raise IsADirectoryError(place.path)
        if result != place.path:
            raise NotADirectoryError(place.path)
        raise ToolFailed(f'{place.shown} is the result of a tool, and read-only.')

    async def refuse_edit(self, place: Place) -> NoReturn:
        """Raise the error of an edit of a file that does not exist.

        Raises:
            ModelRetry: There are files with similar names.
            ToolFailed: There are none, or the path is a large result.
            OSError: The path cannot be that of a file.
        """
        await self.refuse_missing(place, advice=' Create it with write_file, or name another.')
        raise ToolFailed(f'{place.shown} does not exist. Find it with ls or glob, or create it with write_file.')

    @asynccontextmanager
    async def naming_others(self, place: Place) -> AsyncGenerator[None]:
        """Convert the error of a missing file or directory like `refuse_missing`."""
        try:
            yield
        except FileNotFoundError:
            await self.refuse_missing(place)
            raise

    async def refuse_missing(self, place: Place, *, advice: str = '') -> None:
        """Raise the error of a missing file or directory, unless nothing is known about its place.

        Args:
            place: The file or directory.
            advice: The end of the error if no name is similar.

        Raises:
            ModelRetry: There are similar names.
            ToolFailed: There are only others, or the path is a large result.
            OSError: The path cannot be that of a file.
        """
        await self.refuse_result(place)
        parent, _, name = place.path.rpartition('/')
        try:
            directory = await self.place_to_read(parent or '/')
            entries = await directory.backend.list_dir(directory.path)
        except (OSError, BackendError, WorkspaceError):
            return
        # A dangling link is listed under its own name.
        similar = similar_names(name, [entry.name for entry in entries if entry.name != name])
        if similar:
            named = ', '.join(display_path(f'{parent}/{similar_name}') for similar_name in similar)
            raise ModelRetry(f'{place.shown} does not exist. Similar: {named}')
        names = render_listing(entries, without=(name,))
        if names:
            raise ToolFailed(f'{place.shown} does not exist. {display_path(parent or "/")} has {names}.{advice}')

    async def _key(self, place: Place) -> tuple[bool, str]:
        return place.is_offload, await place.backend.realpath(place.path)


def similar_names(name: str, names: Sequence[str]) -> list[str]:
    """Return up to three names that are most similar to `name`, best match first, ignoring case."""
    by_folded = {known.casefold(): known for known in names[:MAX_NAMES]}
    return [by_folded[match] for match in get_close_matches(name.casefold(), by_folded, n=3)]


def _refuse_large(place: Place, data: bytes) -> None:
    """Raise for contents that exceed the size limit of stored versions."""
    if len(data) > MAX_FILE_BYTES:
        raise ToolFailed(
            f'{place.shown} would have {render_size(len(data))}; at most {render_size(MAX_FILE_BYTES)} can be written.'
        )


async def _read_or_none(place: Place) -> bytes | None:
    try:
        return await place.backend.read_bytes(place.path)
    except FileNotFoundError:
        return None


async def _swap(place: Place, data: bytes, expected: str | None) -> None:
    """Write if the file still has the digest `expected`.

    Raises:
        FileChangedError: The file has different contents.
    """
    if isinstance(place.backend, SupportsCompareAndSwap):
        await place.backend.compare_and_swap(place.path, data, expected=expected)
        return
    current = await _read_or_none(place)
    actual = None if current is None else digest_of(current)
    if actual != expected:
        raise FileChangedError(place.path, expected=expected, actual=actual)
    await place.backend.write_bytes(place.path, data)
