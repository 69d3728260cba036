"""Versions of files, step by step: what a backend can do for whoever keeps a tree after each change.

`SupportsTracking` is a backend that notes what its own operations touch, so that the next tree costs what was written
since; `SupportsPatch` is one that can make single files what a tree has there. All paths here are those of trees: they
begin at the root of the files, wherever that appears.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from .trees._tree import Tree

IGNORE_FILE = '.gitignore'
"""The name of the files that say what is left out: gitignore(5)."""


@dataclass(frozen=True, kw_only=True)
class OmittedFile:
    """A file, or a directory with all that is in it, that no version has."""

    path: str
    """Its path in trees; one that no backend accepts is as `display_path` shows it."""
    reason: Literal['too large', 'unreadable', 'invalid path']
    """Files that `.gitignore` names are left out without being listed."""
    size_bytes: int | None
    """Its size, if it is a file and that could be told."""


@dataclass(frozen=True, kw_only=True)
class Captured:
    """The files at one moment."""

    tree: Tree
    """All of them that are versioned. Its paths begin at the root of the files, wherever that appears."""
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Contents, by digest, of files that were not in the tree before or had others there."""
    omitted: Sequence[OmittedFile] = ()
    """What is too large, could not be read, or has a path that no backend accepts, sorted by path: all of it, as far as
    it has been looked at."""


@dataclass(frozen=True, kw_only=True)
class Occupant:
    """Something that is not a directory."""

    path: str
    """Its path in trees."""
    is_file: bool
    """Whether it is a regular file, and no link, FIFO, socket or device."""


class DirectoryRules(Protocol):
    """What of one directory is left out, by its name. Immutable and pure: contents are passed in."""

    def with_ignore_file(self, data: bytes) -> DirectoryRules:
        """Return the rules of the directory when it has an `IGNORE_FILE` with these contents."""
        ...

    def below(self, name: str) -> DirectoryRules:
        """Return the rules of a directory in this one, as long as nothing is known of its `IGNORE_FILE`."""
        ...

    def leaves_out(self, name: str, *, is_dir: bool) -> bool:
        """Return whether a file, or a directory with all that is in it, is left out."""
        ...


class FileTracker(Protocol):
    """Notes what is touched, from when it is made until it is closed."""

    async def capture(self, before: Tree, *, is_full: bool = False, also: Collection[str] = ()) -> Captured:
        """Return the files now.

        Only what was touched is looked at if `before` is the tree that the last capture returned (or the one that the
        tracker was made with) and no command has run since; otherwise everything is.

        Args:
            before: The tree that the caller has the contents of.
            is_full: Look at everything, also at what others may have changed.
            also: Files that are captured although the rules leave them out; those that are too large, and what is no
                file, are not.

        Raises:
            BackendUnavailableError: The files are gone.
        """
        ...

    def close(self) -> None:
        """Note nothing any more."""
        ...


@runtime_checkable
class SupportsTracking(Protocol):
    """A backend that notes which files its operations touch."""

    def track(self, rules: DirectoryRules, *, max_file_bytes: int, tree: Tree | None = None) -> FileTracker:
        """Begin to note.

        Args:
            rules: What is left out, from the root on. It is asked for every directory that is looked at.
            max_file_bytes: Larger files are left out too.
            tree: The files as they are now, if the caller knows; without it the first capture looks at everything.
        """
        ...


@runtime_checkable
class SupportsPatch(Protocol):
    """A backend that can make single files what a tree has there."""

    async def patch(
        self, tree: Tree, paths: Iterable[str], contents: Mapping[str, bytes], *, is_durable: bool = True
    ) -> None:
        """Write the files of `tree` at `paths`, and remove those that it does not have; nothing else is looked at.

        First files are removed, then others written. Each changes atomically, the whole does not: an interrupted patch
        is repeated. What stands in the way of a file, such as a link or a directory, is removed.

        Args:
            tree: The files wanted.
            paths: Where they are wanted.
            contents: By digest, for all that is to be written.
            is_durable: Whether the files must survive a loss of power, which costs time.

        Raises:
            InvalidPathError: A path is one that no backend accepts; nothing was changed.
            KeyError: BlobStore are missing; nothing was changed.
        """
        ...

    async def occupants(self, paths: Iterable[str]) -> Sequence[Occupant]:
        """Return what is at these paths, or above or below them, and is not a directory, sorted by path.

        It is what files at these paths would replace.
        """
        ...
