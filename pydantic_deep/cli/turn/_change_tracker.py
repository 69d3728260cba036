"""Backends that track changed files, in a turn and since the start, and count changed lines."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial
from pathlib import PurePosixPath
from typing import Protocol, TypeAlias

import anyio

from pydantic_deep._messages.result_metadata import MAX_COUNTED_BYTES, count_changed_lines
from pydantic_deep.streaming import FileEvent
from pydantic_deep_backends import (
    BackendUnavailableError,
    FileChangedError,
    LocalBackend,
    SandboxBackend,
    ScanLimitError,
    digest_of,
)
from pydantic_deep_backends.protocol import Command, CommandResult, CommandRunner
from pydantic_deep_backends.snapshots import Tree

SCAN_SECONDS = 3.0
"""Time limit of the scan before and after a command: enough for about 100,000 unchanged files."""

BOM = '\ufeff'
"""The byte order mark at the beginning of some texts."""

MAX_FILES = 1_000
"""Maximum number of changed files that are reported for one command."""


class Unknown(Enum):
    """Marks unknown contents."""

    contents = 'contents'
    """The file existed, and a command changed it before its contents were read."""


Contents: TypeAlias = bytes | Unknown | None
"""The contents of a file; `None` if the file does not exist."""


class OpenFiles(Protocol):
    """The files of an editor, which may have changes that are not saved. Paths are those of this computer."""

    async def read(self, path: str) -> str | None:
        """Return the text of a file, saved or not; `None` if the editor does not have it."""
        ...

    async def write(self, path: str, text: str) -> None:
        """Replace the text of a file, and save it. Raises `OSError` if the editor refuses."""
        ...


class ChangeTrackingBackend(LocalBackend):
    """A directory that remembers the contents of each file before its first change.

    Changes by other programs are not detected. Only files that change are read.

    With an editor, a text that is not saved there is read instead of the file, and a text is written there before the
    file. A path is resolved first, so the editor is asked about files in the directory only. Searches, captures for
    versions and files that are not UTF-8 do not involve the editor.
    """

    def __init__(self, root: str | os.PathLike[str], *, runner: CommandRunner | None = None) -> None:
        """Open a directory, as `LocalBackend` does.

        Args:
            root: The directory.
            runner: Runs commands, if there are any. Scans before and after each one find the files that it changed.
        """
        super().__init__(root, runner=None if runner is None else partial(self._run_tracked, runner))
        self._reset()

    editor: OpenFiles | None = None
    """The editor that shows the directory, if any."""
    has_all_changes: bool = True
    """Whether all changes were detected: no scan failed, and no command changed more than `MAX_FILES` files."""

    async def read_bytes(self, path: str) -> bytes:
        """Return the contents of a file: those in the editor, if they are not saved."""
        saved = await super().read_bytes(path)
        place = await self._place_in_editor(path, saved)
        text = None if place is None else await place[0].read(place[1])
        return saved if text is None else unsaved_contents(saved, text)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Write the file, and record its previous contents."""
        before = await self._read(path)
        async with self._lock:
            await self._write_in_editor(path, data)
            await super().write_bytes(path, data)
        await self._remember(path, before)

    async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        """Write the file, and record its previous contents."""
        before = await self._read(path)
        if self.editor is None:
            await super().compare_and_swap(path, data, expected=expected)
        else:
            async with self._lock:
                try:
                    actual = digest_of(await self.read_bytes(path))
                except FileNotFoundError:
                    actual = None
                    await self._check_unsaved(path)
                if actual != expected:
                    raise FileChangedError(path, expected=expected, actual=actual)
                await self._write_in_editor(path, data)
                await super().write_bytes(path, data)  # exactly these bytes, whatever the editor has saved
        await self._remember(path, before)

    def start_turn(self) -> None:
        """Start a turn: `turn_changes` compares with the files as they are now."""
        self._before_turn, self._unreported = {}, set()

    async def take_changes(self) -> list[FileEvent]:
        """Return the files that changed since the last call, sorted by path."""
        paths, self._unreported = self._unreported, set()
        return await self._describe({path: self._before_turn[path] for path in paths})

    async def turn_changes(self) -> list[FileEvent]:
        """Return the files that differ from their state at the start of the turn, sorted by path."""
        return await self._describe(self._before_turn)

    async def all_changes(self) -> list[FileEvent]:
        """Return the files that differ from their first recorded state, sorted by path."""
        return await self._describe(self._before)

    def leave_unversioned(self) -> None:
        """Exclude the files from versions."""
        # `isinstance(…, SupportsTracking)` checks the class, and other objects already refer to this instance.
        unversioned = UnversionedSandbox if isinstance(self, ChangeTrackingSandbox) else UnversionedBackend
        object.__setattr__(self, '__class__', unversioned)

    async def _place_in_editor(self, path: str, data: bytes) -> tuple[OpenFiles, str] | None:
        """Return the editor and the path of a text there; `None` for other data, and outside of the directory."""
        if self.editor is None or not _is_text(data):
            return None
        real, top = PurePosixPath(await self.realpath(path)), await self.working_dir()
        return (
            (self.editor, str(PurePosixPath(self.ref.id) / real.relative_to(top))) if real.is_relative_to(top) else None
        )

    async def _check_unsaved(self, path: str) -> None:
        """Check that the editor has no text for a file that does not exist yet.

        Raises:
            OSError: It has one, which the user would lose.
        """
        place = await self._place_in_editor(path, b'')
        if place is not None and await place[0].read(place[1]):  # some editors return an empty text for every new file
            raise OSError(errno.EBUSY, 'The editor has an unsaved text for this new file. Ask the user to save it')

    async def _write_in_editor(self, path: str, data: bytes) -> None:
        place = await self._place_in_editor(path, data)
        if place is not None and not (await self.exists(path) and (await self.stat(path)).is_dir):
            await place[0].write(place[1], data.decode().removeprefix(BOM))

    def _reset(self) -> None:
        self._lock = anyio.Lock()
        self._before: dict[str, Contents] = {}
        self._before_turn: dict[str, Contents] = {}
        self._unreported: set[str] = set()

    async def _remember(self, path: str, before: Contents) -> None:
        canonical = await self.realpath(path)
        self._record(canonical, before)

    async def _run_tracked(
        self,
        runner: CommandRunner,
        directory: str,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        timeout: float | None,
    ) -> CommandResult:
        async with self._recording_changes():
            return await runner(directory, arguments, env=env, timeout=timeout)

    @asynccontextmanager
    async def _recording_changes(self) -> AsyncGenerator[None]:
        """Record the files that a command changes, even if it is cancelled."""
        before = await self._scan_directory()
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self._record_difference(before)

    def _record(self, canonical: str, before: Contents) -> None:
        self._before.setdefault(canonical, before)
        self._before_turn.setdefault(canonical, before)
        self._unreported.add(canonical)

    async def _scan_directory(self) -> Tree | None:
        """Return the tree of the directory; `None` after a scan failed or exceeded `SCAN_SECONDS`."""
        if not self.has_all_changes:
            return None
        with anyio.move_on_after(SCAN_SECONDS):
            try:
                return await self.snapshot()
            except (OSError, BackendUnavailableError, ScanLimitError):
                pass
        self.has_all_changes = False
        return None

    async def _record_difference(self, before: Tree | None) -> None:
        after = None if before is None else await self._scan_directory()
        if before is None or after is None:
            return
        diff = before.diff(after)
        top = (await self.working_dir()).rstrip('/')  # paths in trees are relative to the directory
        changes: list[tuple[str, Contents]] = [(path, None) for path in diff.added]
        changes += [(path, Unknown.contents) for path in (*diff.changed, *diff.removed)]
        self.has_all_changes = len(changes) <= MAX_FILES
        for path, contents in changes[:MAX_FILES]:
            self._record(f'{top}{path}', contents)

    async def _describe(self, files: Mapping[str, Contents]) -> list[FileEvent]:
        changes = [describe_change(path, files[path], await self._read(path)) for path in sorted(files)]
        return [change for change in changes if change is not None]

    async def _read(self, path: str) -> Contents:
        try:
            return await super().read_bytes(path)
        except (OSError, BackendUnavailableError):
            return None


class ChangeTrackingSandbox(ChangeTrackingBackend, SandboxBackend):
    """A tracking backend with commands. Scans before and after each command find the files that it changed.

    The previous contents of such a file are unknown, unless a tool changed it before.
    """

    def __init__(self, root: str | os.PathLike[str], *, read_only: Mapping[str, str | os.PathLike[str]]) -> None:
        """Open a directory.

        Args:
            root: The directory.
            read_only: Other directories that commands can read, as for `SandboxBackend`.
        """
        SandboxBackend.__init__(self, root, read_only=read_only)
        self._reset()

    async def check(self) -> None:
        """Raise `SandboxUnavailableError` if commands cannot be isolated."""
        await super().run(['true'])

    async def run(
        self,
        command: Command,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run the command, and record the files that it changed, even if it is cancelled."""
        async with self._recording_changes():
            return await super().run(command, shell=shell, env=env, timeout=timeout)

    async def _read(self, path: str) -> Contents:
        try:
            size_bytes = (await self.stat(path)).size
        except (OSError, BackendUnavailableError):
            return None
        if size_bytes is not None and size_bytes > MAX_COUNTED_BYTES:
            return Unknown.contents
        return await super()._read(path)


class UnversionedBackend(ChangeTrackingBackend):
    """A `ChangeTrackingBackend` without `SupportsTracking`, so that versions have no files."""

    track = None  # pyright: ignore[reportAssignmentType] - marks the method as unsupported


class UnversionedSandbox(ChangeTrackingSandbox):
    """A `ChangeTrackingSandbox` without `SupportsTracking`, so that versions have no files."""

    track = None  # pyright: ignore[reportAssignmentType] - marks the method as unsupported


def unsaved_contents(saved: bytes, text: str) -> bytes:
    """Return the contents of a file with the text of an editor, or its saved contents if the text is the same.

    Editors hold texts with line feeds and without a byte order mark, and some omit the last line feed.

    Args:
        saved: The contents on disk, in UTF-8.
        text: The text in the editor.
    """
    shown = saved.decode()
    bare = shown.removeprefix(BOM).replace('\r\n', '\n')
    unsaved = text.removeprefix(BOM).replace('\r\n', '\n')
    if bare.rstrip('\n') == unsaved.rstrip('\n'):
        return saved
    if bare.endswith('\n') and unsaved and not unsaved.endswith('\n'):
        unsaved += '\n'
    lines = unsaved.replace('\n', '\r\n') if '\r\n' in shown else unsaved
    return f'{BOM if shown.startswith(BOM) else ""}{lines}'.encode()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def describe_change(path: str, before: Contents, after: Contents) -> FileEvent | None:
    """Return the change between two contents of a file; `None` if they are equal."""
    if before == after and not isinstance(before, Unknown):
        return None
    change = 'created' if before is None else 'removed' if after is None else 'changed'
    if isinstance(before, Unknown) or isinstance(after, Unknown):
        return FileEvent(path=path, change=change)
    added, removed = count_changed_lines(before, after)
    return FileEvent(path=path, change=change, added_lines=added, removed_lines=removed)
