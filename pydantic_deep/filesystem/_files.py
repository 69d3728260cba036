"""The files of one run as the tools see them: where a path leads, whole reads, and changes that lose nothing.

Large results of tools are in memory, and are read as files under `/offload` where the user's backend has none of that
name. Everything else is the user's backend, and every change is.
A change reads, decides and writes only if the file is still what was read. Where the backend has compare-and-swap
this holds against everybody. On any other backend it holds among the calls of one run; a change that another run or
another program makes between the last look and the write is lost there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeVar

import anyio
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.workspaces import WorkspaceError

from pydantic_deep._text.encodings import MAX_FILE_BYTES
from pydantic_deep_backends import StateBackend
from pydantic_deep_backends.errors import BackendError, FileChangedError
from pydantic_deep_backends.paths import display_path, is_within
from pydantic_deep_backends.protocol import (
    BackendProtocol,
    RefusesChanges,
    SupportsCommands,
    SupportsCompareAndSwap,
)
from pydantic_deep_backends.resolving import absolute_path
from pydantic_deep_backends.snapshots import digest_of

from ._render import render_size

OFFLOAD = '/offload'
"""Where large results are, for what the tools of this room read."""

MAX_READ_BYTES = 64 * 1024 * 1024
"""The largest file that is read whole to show or edit it, as in grep."""

MAX_ATTEMPTS = 50
"""How often a change is tried against other writers. Each failure means that one of them succeeded."""

MAX_NAMES = 500
"""How many names are compared with one that is missing: together some 40 ms for the longest that there can be."""

PlanT = TypeVar('PlanT')


@dataclass(kw_only=True)
class RunState:
    """What one run knows of its files. Never shared between runs."""

    offload: StateBackend
    """The large results."""
    offload_chars: int | None
    """The longest result that a tool may answer with before it is offloaded; `None` if nothing is."""
    digest_by_key: dict[tuple[bool, str], str] = field(default_factory=dict[tuple[bool, str], str])
    """What the model saw or wrote last, by canonical path."""
    lock_by_key: dict[tuple[bool, str], anyio.Lock] = field(default_factory=dict[tuple[bool, str], anyio.Lock])
    """One change of a file at a time, by canonical path."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a path leads."""

    backend: BackendProtocol
    """The backend that has it."""
    path: str
    """The absolute path there, without `..`."""
    is_offload: bool
    """Whether it is among the large results."""

    @property
    def shown(self) -> str:
        """The path as it is shown."""
        return display_path(self.path)


@dataclass(frozen=True, kw_only=True)
class Files:
    """What the tools of one run work on."""

    backend: BackendProtocol
    """The user's files."""
    commands: SupportsCommands | None
    """The same, if commands can be run there."""
    run: RunState
    """What this run knows."""

    async def place(self, path: str) -> Place:
        """Return where a path leads.

        Raises:
            InvalidPathError: The path is malformed.
            OSError: What is before a `..` is no directory.
        """
        return Place(backend=self.backend, path=await absolute_path(self.backend, path), is_offload=False)

    async def place_to_read(self, path: str) -> Place:
        """Return where a path leads: to a large result if there is one, and nothing of the user's in its place.

        Raises:
            InvalidPathError: The path is malformed.
            OSError: What is before a `..` is no directory.
        """
        place = await self.place(path)
        if not is_within(place.path, OFFLOAD) or not await self.run.offload.exists(place.path):
            return place
        if await self.is_taken(place.path):
            return place
        return Place(backend=self.run.offload, path=place.path, is_offload=True)

    async def is_taken(self, path: str) -> bool:
        """Return whether the user's backend has something at an absolute path; not if it cannot tell."""
        try:
            return await self.backend.exists(path)
        except (OSError, BackendError, WorkspaceError):
            return False

    async def read(self, place: Place) -> bytes:
        """Return the contents of a file, and remember what the model now knows.

        Raises:
            ModelRetry: There is a file of a similar name, or a directory.
            ToolFailed: There is none, or it is too large.
            OSError: It cannot be read.
        """
        try:
            entry = await place.backend.stat(place.path)
            if not entry.is_dir and entry.size is not None and entry.size > MAX_READ_BYTES:
                raise ToolFailed(
                    f'{place.shown} has {render_size(entry.size)}; at most {render_size(MAX_READ_BYTES)} can be read.'
                )
            data = await place.backend.read_bytes(place.path)
        except FileNotFoundError:
            await self.refuse_missing(place)
            raise
        self.run.digest_by_key[await self._key(place)] = digest_of(data)
        return data

    async def change(
        self, place: Place, decide: Callable[[bytes | None, str | None], tuple[bytes, PlanT]]
    ) -> tuple[PlanT, bytes | None, bytes]:
        """Read a file, decide what it becomes, and write that if nobody wrote in between; else do it all again.

        Args:
            place: The file.
            decide: Takes the contents (`None` for no file) and the digest that this run knows of (`None` for none);
                returns the new contents and what to say of them. Called once for each attempt.

        Returns:
            What to say of the new contents, the contents before (`None` for no file), and the new ones.

        Raises:
            ToolFailed: Others changed the file all the time, or it would be too large.
            OSError: It cannot be read or written; it is as it was.
        """
        key = await self._key(place)
        async with self.run.lock_by_key.setdefault(key, anyio.Lock()):
            for _ in range(MAX_ATTEMPTS):
                before = await _read_or_none(place)
                data, plan = decide(before, self.run.digest_by_key.get(key))
                _refuse_large(place, data)
                try:
                    await _swap(place, data, None if before is None else digest_of(before))
                except FileChangedError:
                    continue
                self.run.digest_by_key[key] = digest_of(data)
                return plan, before, data
        raise ToolFailed(f'{place.shown} was changed by others {MAX_ATTEMPTS} times meanwhile. Try again later.')

    async def edit(
        self, place: Place, decide: Callable[[bytes], tuple[bytes, PlanT]]
    ) -> tuple[PlanT, bytes | None, bytes]:
        """Change a file as `change` does, if there is one.

        Raises:
            ModelRetry: There is none, but one of a similar name.
            ToolFailed: It is a large result.
            FileNotFoundError: There is none.
        """

        def decide_on_file(before: bytes | None, known: str | None) -> tuple[bytes, PlanT]:
            if before is None:
                raise FileNotFoundError(place.path)
            return decide(before)

        try:
            return await self.change(place, decide_on_file)
        except FileNotFoundError:
            await self.refuse_missing(place)
            raise

    async def look(self, place: Place) -> tuple[str, bytes | None, str | None]:
        """Return what a change of a file would begin with, and remember nothing.

        Returns:
            The canonical path, the contents (`None` for no file) and the digest that this run knows of (`None` for
            none).

        Raises:
            OSError: It cannot be read.
        """
        key = await self._key(place)
        return key[1], await _read_or_none(place), self.run.digest_by_key.get(key)

    async def refuse_write(self, place: Place, data: bytes) -> None:
        """Raise what a write would raise, as far as it is known before, and write nothing.

        Raises:
            ToolFailed: The contents are too large.
            OSError: The place is read-only.
        """
        _refuse_large(place, data)
        if isinstance(place.backend, RefusesChanges):
            await place.backend.refuse_change(place.path)

    async def refuse_missing(self, place: Place) -> None:
        """Name files of similar names, if there are any; or say that a large result is not for changing."""
        if await self.run.offload.exists(place.path):
            raise ToolFailed(f'{place.shown} is the result of a tool, and only for reading.')
        parent, _, name = place.path.rpartition('/')
        try:
            entries = await place.backend.list_dir(parent or '/')
        except (OSError, BackendError, WorkspaceError):
            return
        similar = similar_names(name, [entry.name for entry in entries if entry.name != name])  # a dangling link has it
        if similar:
            named = ', '.join(display_path(f'{parent}/{found}') for found in similar)
            raise ModelRetry(f'{place.shown} does not exist. Similar: {named}')

    async def _key(self, place: Place) -> tuple[bool, str]:
        return place.is_offload, await place.backend.realpath(place.path)


def similar_names(name: str, names: Sequence[str]) -> list[str]:
    """Return at most three of the names that are most like `name`, the best first; case does not count."""
    by_folded = {known.casefold(): known for known in names[:MAX_NAMES]}
    return [by_folded[found] for found in get_close_matches(name.casefold(), by_folded, n=3)]


def _refuse_large(place: Place, data: bytes) -> None:
    """Refuse contents that no version would have."""
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
    """Write if the file still has the digest `expected`. Raises `FileChangedError`."""
    if isinstance(place.backend, SupportsCompareAndSwap):
        await place.backend.compare_and_swap(place.path, data, expected=expected)
        return
    now = await _read_or_none(place)
    actual = None if now is None else digest_of(now)
    if actual != expected:
        raise FileChangedError(place.path, expected=expected, actual=actual)
    await place.backend.write_bytes(place.path, data)
