"""Incremental versions of files: protocols for callers that store a tree after each change.

A `SupportsTracking` backend records which files its own operations touch, so that the cost of the next tree depends on
the writes since the last one. A `SupportsPatch` backend can set single files to their state in a tree. All paths here
are paths of trees: they start at the root of the files, wherever that is mounted.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from .trees._tree import Tree

IGNORE_FILE = '.gitignore'
"""The name of the files that list ignored files, in the format of gitignore(5)."""

IN_USE_SUFFIX = '.owners'
"""The suffix of a directory that marks the regular file beside it as a database that programs have open:
`agents.db.owners`. The directory, the database and the files that SQLite keeps beside it are ignored, as they must not be
replaced.
"""


MAX_WHOLE_BYTES: Final = 50 * 2**20
"""Maximum size of a file in `Captured.blobs`. A tracker that allows larger files returns streams."""

STREAMED_BYTES: Final = 4 * 2**20
"""Size above which such a tracker returns streams. Below it, chunks would not save much memory."""

OpenStream: TypeAlias = Callable[[], AsyncIterator[bytes]]
"""Opens the contents of a file, in chunks."""


@dataclass(frozen=True, kw_only=True)
class OmittedFile:
    """A file, or a directory with everything in it, that is not versioned."""

    path: str
    """The path in trees; escaped by `display_path` if no backend accepts it."""
    reason: Literal['too large', 'unreadable', 'invalid path']
    """Why it was omitted. Files that a `.gitignore` excludes are not listed."""
    size_bytes: int | None
    """Size of the file; `None` for directories and files of unknown size."""


@dataclass(frozen=True, kw_only=True)
class Captured:
    """The files at one point in time."""

    tree: Tree
    """All versioned files. Paths start at the root of the files, wherever that is mounted."""
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Contents, by digest, of files that are new or changed since the previous tree."""
    streams: Mapping[str, OpenStream] = field(default_factory=dict[str, OpenStream])
    """Contents, by digest, that `blobs` lacks because they are large. A file that changes before its stream is read
    yields contents with another digest, or an `OSError`."""
    omitted: Sequence[OmittedFile] = ()
    """Files that are too large, could not be read, or have a path that no backend accepts, sorted by path. Covers
    everything that was scanned."""
    in_use: Collection[str] = ()
    """The paths of databases that programs have open, and of what belongs to them, whether it exists or not. The tree
    has none of them. Covers what this capture has scanned."""


@dataclass(frozen=True, kw_only=True)
class Occupant:
    """A file system object that is not a directory."""

    path: str
    """The path in trees."""
    is_file: bool
    """Whether it is a regular file rather than a link, FIFO, socket or device."""


class DirectoryRules(Protocol):
    """Ignore rules for one directory. Immutable and pure: contents are passed in."""

    def with_ignore_file(self, data: bytes) -> DirectoryRules:
        """Return the rules of the directory with an `IGNORE_FILE` of these contents."""
        ...

    def below(self, name: str) -> DirectoryRules:
        """Return the rules of a subdirectory, before its own `IGNORE_FILE` is applied."""
        ...

    def leaves_out(self, name: str, *, is_dir: bool) -> bool:
        """Return whether a file, or a directory with everything in it, is ignored."""
        ...


class FileTracker(Protocol):
    """Records touched paths, from its creation until it is closed."""

    async def capture(self, before: Tree, *, is_full: bool = False, also: Collection[str] = ()) -> Captured:
        """Return the current files.

        Only touched paths are scanned if `before` is the tree of the last capture (or the one that the tracker was
        created with) and no command has run since. Otherwise everything is scanned.

        Args:
            before: A tree for which the caller has all contents.
            is_full: Scan everything, including files that other programs may have changed.
            also: Files to capture even if the rules ignore them, unless they are too large or not regular files.

        Raises:
            BackendUnavailableError: The files are gone.
        """
        ...

    def close(self) -> None:
        """Stop recording."""
        ...


@runtime_checkable
class SupportsTracking(Protocol):
    """A backend that records which files its operations touch."""

    def track(self, rules: DirectoryRules, *, max_file_bytes: int, tree: Tree | None = None) -> FileTracker:
        """Start recording.

        Args:
            rules: The ignore rules of the root directory. They are consulted for every scanned directory.
            max_file_bytes: Larger files are omitted too. Above `MAX_WHOLE_BYTES`, captures may return contents of more
                than `STREAMED_BYTES` in `Captured.streams`.
            tree: The current files, if known. Without it, the first capture scans everything.
        """
        ...


@runtime_checkable
class SupportsPatch(Protocol):
    """A backend that can set single files to their state in a tree."""

    async def patch(
        self, tree: Tree, paths: Iterable[str], contents: Mapping[str, bytes], *, is_durable: bool = True
    ) -> None:
        """Write the files of `tree` at `paths`, and remove those that are not in `tree`. Nothing else changes.

        Files are removed first, then written. Each change is atomic, the whole is not: repeat an interrupted patch.
        Anything that blocks a file, such as a link or a directory, is removed.

        Args:
            tree: The desired files.
            paths: The paths to change.
            contents: The contents of all files to write, by digest.
            is_durable: Whether the files must survive a power loss, which takes longer.

        Raises:
            InvalidPathError: No backend accepts one of the paths; nothing was changed.
            KeyError: Some contents are missing; nothing was changed.
        """
        ...

    async def occupants(self, paths: Iterable[str]) -> Sequence[Occupant]:
        """Return everything at, above or below these paths that is not a directory, sorted by path.

        These are the objects that files at these paths would replace.
        """
        ...


@runtime_checkable
class SupportsStreamedPatch(Protocol):
    """A backend that can write a file of a tree from chunks."""

    async def patch_stream(
        self, tree: Tree, path: str, chunks: AsyncIterable[bytes], *, is_durable: bool = True
    ) -> None:
        """Write the file of `tree` at `path`, like `SupportsPatch.patch`.

        Args:
            tree: The desired files.
            path: A file of the tree.
            chunks: Its contents.
            is_durable: Whether the file must survive a power loss.

        Raises:
            InvalidPathError: No backend accepts the path; nothing was changed.
            KeyError: The tree has no such file; nothing was changed.
            MissingBlobError: The chunks have another digest; the old file is intact.
        """
        ...


def names_in_use(entries: Collection[os.DirEntry[str]]) -> list[str]:
    """Return the names of the databases in a directory that programs have open, and of what belongs to them."""
    owners = [entry.name for entry in entries if entry.name.endswith(IN_USE_SUFFIX)]
    if not owners:
        return []
    marks = {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}.intersection(owners)
    files = {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
    found = [name for mark in marks if (name := mark.removesuffix(IN_USE_SUFFIX)) in files and '\n' not in name]
    return [f'{name}{suffix}' for name in found for suffix in ('', '-wal', '-shm', '-journal', IN_USE_SUFFIX)]
