"""What a backend is: the protocols that strangers implement, and the values that they exchange.

A backend holds files under virtual, absolute, POSIX paths. `BackendProtocol` has the member names and the
semantics of pydantic-ai's workspace contract, so that one thin adapter makes any backend a workspace and
any third party's workspace with file operations is a backend as it stands. What only some backends can do
is a protocol of its own, found by `isinstance`; the protocols are frozen, growth is another protocol.

Not here: how paths are parsed (`paths`), what search means (`search`), trees and their merge (`snapshots`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from ._search_results import GlobResult, GrepResult
from .trees._tree import Tree, TreeDiff

Command: TypeAlias = str | Sequence[str]
"""An argument list (`['python', '-V']`), or one shell string together with `shell=True`."""

ReadBlob: TypeAlias = Callable[[str], Awaitable[bytes]]
"""Fetches contents by digest; raises `KeyError` for a digest that it does not have."""


@dataclass(frozen=True, kw_only=True)
class BackendRef:
    """Which files a backend holds: serializable, without credentials. Two backends with equal refs share files."""

    provider: str
    """The kind of backend: `state`, `local`, …"""
    id: str
    """What the kind needs to find the files again; for `local` the directory."""


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """Metadata of a file or directory."""

    name: str
    """The last component of the path."""
    path: str
    """The absolute virtual path."""
    is_dir: bool
    """Whether it is a directory; a link counts as what it leads to."""
    size: int | None
    """Size in bytes; `None` for directories and for what is not a regular file."""


class FileEntryLike(Protocol):
    """What a backend may return for a file or directory: a `FileEntry`, or pydantic-ai's value of the same form."""

    @property
    def name(self) -> str:
        """The last component of the path."""
        ...

    @property
    def path(self) -> str:
        """The absolute virtual path."""
        ...

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory; a link counts as what it leads to."""
        ...

    @property
    def size(self) -> int | None:
        """Size in bytes; `None` where it is not known."""
        ...


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """What a finished command left behind. A non-zero exit code is a result, not an error."""

    exit_code: int
    """The exit code as the process gave it; negative for the signal that ended it, 127 for a missing program."""
    stdout: str
    """Standard output; undecodable bytes are U+FFFD."""
    stderr: str
    """Standard error; undecodable bytes are U+FFFD."""


@runtime_checkable
class BackendProtocol(Protocol):
    """Where files live. Every path is absolute; a malformed one raises `InvalidPathError` before anything happens."""

    @property
    def ref(self) -> object:
        """The identity of the files: a `BackendRef`, or the `WorkspaceRef` of a pydantic-ai workspace, or `None`."""
        ...

    async def working_dir(self) -> str:
        """Return the directory that relative paths start from: absolute and canonical."""
        ...

    async def read_bytes(self, path: str) -> bytes:
        """Return the contents of a regular file.

        Raises:
            FileNotFoundError: Nothing is there.
            IsADirectoryError: A directory is there.
            OSError: What is there is not a regular file, or cannot be read. Never an empty result instead.
        """
        ...

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace or create a file, atomically: others see the old contents or the new, also after a crash.

        Missing parents are created, an existing symbolic link is written through, the mode is kept.

        Raises:
            IsADirectoryError: A directory is there.
            NotADirectoryError: A parent is a file.
        """
        ...

    async def stat(self, path: str) -> FileEntryLike:
        """Return the metadata of a file or directory. Raises `FileNotFoundError`."""
        ...

    async def list_dir(self, path: str) -> Sequence[FileEntryLike]:
        """Return the entries of one directory, sorted by name. Raises `FileNotFoundError`, `NotADirectoryError`."""
        ...

    async def make_dir(self, path: str) -> None:
        """Create a directory and its parents; an existing directory is fine, a file there is `FileExistsError`."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it; of a symbolic link, the link.

        Raises:
            FileNotFoundError: Nothing is there.
            ValueError: It is the working directory or an ancestor of it.
        """
        ...

    async def exists(self, path: str) -> bool:
        """Return whether a file or directory is there."""
        ...

    async def realpath(self, path: str) -> str:
        """Return the path with symbolic links resolved; components that do not exist are kept as written."""
        ...


@runtime_checkable
class SupportsCommands(Protocol):
    """A backend that runs commands among its files."""

    async def run(
        self,
        command: Command,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a command in the working directory, with standard input at its end.

        Args:
            command: An argument list, or a shell string with `shell=True`; a mismatch is a `TypeError`.
            shell: Whether `command` is for the shell.
            env: Variables on top of the backend's own.
            timeout: Seconds, positive and finite; `None` for no limit.

        Raises:
            CommandTimeoutError: It took longer; the whole process tree is gone.
        """
        ...


@runtime_checkable
class SandboxProtocol(BackendProtocol, SupportsCommands, Protocol):
    """A backend that also runs commands."""


@runtime_checkable
class SupportsSearch(Protocol):
    """A backend that searches by itself, with the one dialect of `search`."""

    async def glob(self, pattern: str, path: str = '/') -> GlobResult:
        """Return the files under `path` whose path relative to it matches `pattern`.

        Raises:
            InvalidPatternError: The pattern cannot be used.
            FileNotFoundError: `path` does not exist.
            NotADirectoryError: `path` is a file.
        """
        ...

    async def grep(self, pattern: str, path: str = '/', *, glob: str | None = None, limit: int = 1000) -> GrepResult:
        """Return the lines that match a regular expression (RE2), in the file `path` or the files under it.

        Args:
            pattern: An RE2 regular expression.
            path: A file or a directory.
            glob: Search only files that match, relative to `path`.
            limit: How many lines to keep; the counts per file stay complete.

        Raises:
            InvalidPatternError: The pattern cannot be used.
            FileNotFoundError: `path` does not exist.
        """
        ...


@runtime_checkable
class SupportsCompareAndSwap(Protocol):
    """A backend on which two writers of one file cannot lose an update."""

    async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        """Write `data` if the file still has the digest `expected`; as atomic as `write_bytes`.

        The canonical path is the key: every spelling of a path, links included, meets the same check.

        Args:
            path: The file.
            data: Its new contents.
            expected: `digest_of` the contents that were read; `None` if there must be no file yet.

        Raises:
            FileChangedError: It has another digest, or exists, or is gone.
            IsADirectoryError: A directory is there, whatever is expected.
            NotADirectoryError: A parent is a file.
        """
        ...


@runtime_checkable
class SupportsSnapshots(Protocol):
    """A backend whose files can be captured as a `Tree` and put back."""

    async def snapshot(self) -> Tree:
        """Return the tree of all files now."""
        ...

    async def restore(self, tree: Tree, read_blob: ReadBlob | None = None) -> None:
        """Make the files equal to `tree`: write what differs, remove what it does not have.

        Everything that must be fetched is fetched before the first change; an interrupted restore is repeated.

        Args:
            tree: The files wanted.
            read_blob: Fetches contents that the backend does not have itself.

        Raises:
            MissingBlobError: BlobStore are not to be had; nothing was changed.
            InvalidPathError: The tree has a path that no backend accepts; nothing was changed.
        """
        ...

    async def changes(self, tree: Tree) -> TreeDiff:
        """Return what changed from `tree` to the files now."""
        ...


@runtime_checkable
class RefusesChanges(Protocol):
    """A backend that knows of files which it will not change, whatever is written."""

    async def refuse_change(self, path: str) -> None:
        """Raise what any change of a file would raise, such as `ReadOnlyError`; return if nothing is known against it.
        It changes nothing.
        """
        ...


@runtime_checkable
class SupportsIdentity(Protocol):
    """A backend whose `ref` may lead to other files another time, as a path does on another machine.

    It identifies the place of its files, so that files which are missing are told from files which were never there.
    """

    async def identity(self) -> str | None:
        """Return what identifies the place now, as a text to be kept; `None` if there is no such place.

        It stays valid when files change and when the machine restarts, and not for a copy of the place, nor for another
        one that is made under the same `ref`. Take it again after changes: a place is recognized from then on.
        """
        ...

    async def has_identity(self, identity: str) -> bool | None:
        """Return whether the place is the one that was identified; `None` if that cannot be told.

        Args:
            identity: What `identity` returned. It may come from another backend, and cannot be told then.
        """
        ...

    async def make_root(self) -> None:
        """Make the place if it is missing, without files."""
        ...
