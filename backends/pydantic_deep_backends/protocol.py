"""The protocols that a backend implements, and the values they exchange.

A backend stores files under virtual, absolute POSIX paths. `BackendProtocol` has the member names and semantics of
pydantic-ai's workspace contract: a thin adapter turns any backend into a workspace, and any third-party workspace with
file operations is a backend without changes. Optional features are separate protocols, detected with `isinstance`.
The protocols are frozen; a new feature is a new protocol.

Not here: path parsing (`paths`), search semantics (`search`), trees and their merge (`snapshots`).
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
"""Fetches contents by digest; raises `KeyError` for an unknown digest."""


@dataclass(frozen=True, kw_only=True)
class BackendRef:
    """Identifies the files of a backend: serializable, without credentials. Equal refs mean shared files."""

    provider: str
    """The kind of backend: `state`, `local`, …"""
    id: str
    """Locates the files for this kind of backend; for `local`, the directory."""


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """Metadata of a file or directory."""

    name: str
    """The last component of the path."""
    path: str
    """The absolute virtual path."""
    is_dir: bool
    """Whether it is a directory; a symbolic link counts as its target."""
    size: int | None
    """Size in bytes; `None` for directories and anything else that is not a regular file."""


class FileEntryLike(Protocol):
    """Metadata that a backend may return: a `FileEntry`, or pydantic-ai's equivalent value."""

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
        """Whether it is a directory; a symbolic link counts as its target."""
        ...

    @property
    def size(self) -> int | None:
        """Size in bytes; `None` if unknown."""
        ...


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """The result of a finished command. A non-zero exit code is a result, not an error."""

    exit_code: int
    """The exit code of the process; negative for the signal that terminated it, 127 for a missing program."""
    stdout: str
    """Standard output; undecodable bytes are replaced with U+FFFD."""
    stderr: str
    """Standard error; undecodable bytes are replaced with U+FFFD."""


@runtime_checkable
class BackendProtocol(Protocol):
    """File storage. Every path is absolute; a malformed path raises `InvalidPathError` before any other effect."""

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
            FileNotFoundError: The path does not exist.
            IsADirectoryError: The path is a directory.
            OSError: The path is not a regular file, or cannot be read. An unreadable file is never returned as empty.
        """
        ...

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace or create a file atomically: readers see the old contents or the new, even after a crash.

        Missing parent directories are created, an existing symbolic link is written through, and the mode is preserved.

        Raises:
            IsADirectoryError: The path is a directory.
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
        """Create a directory and its parents. An existing directory is fine; a file raises `FileExistsError`."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it. A symbolic link is removed itself, not its target.

        Raises:
            FileNotFoundError: The path does not exist.
            ValueError: The path is the working directory or one of its ancestors.
        """
        ...

    async def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        ...

    async def realpath(self, path: str) -> str:
        """Return the path with symbolic links resolved; components that do not exist are left unchanged."""
        ...


@runtime_checkable
class SupportsCommands(Protocol):
    """A backend that runs commands on its files."""

    async def run(
        self,
        command: Command,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a command in the working directory, with an empty standard input.

        Args:
            command: An argument list, or a shell string with `shell=True`; a mismatch raises `TypeError`.
            shell: Whether a shell interprets `command`.
            env: Environment variables to add to those of the backend.
            timeout: Seconds, positive and finite; `None` for no limit.

        Raises:
            CommandTimeoutError: The command exceeded the timeout; its whole process tree has been killed.
        """
        ...


class CommandRunner(Protocol):
    """Runs the commands of a `LocalBackend` elsewhere than in this process, such as in a terminal of an editor."""

    async def __call__(
        self, directory: str, arguments: Sequence[str], *, env: Mapping[str, str], timeout: float | None
    ) -> CommandResult:
        """Run a command, with an empty standard input, and end all its processes.

        Args:
            directory: The real path of its working directory.
            arguments: The program and its arguments.
            env: Environment variables to add to those of the runner.
            timeout: Seconds; `None` for no limit.

        Raises:
            CommandTimeoutError: The command exceeded the timeout, and was killed.
            BackendUnavailableError: The command cannot be run there.
        """
        ...


@runtime_checkable
class SandboxProtocol(BackendProtocol, SupportsCommands, Protocol):
    """A backend that also runs commands."""


@runtime_checkable
class SupportsSearch(Protocol):
    """A backend with its own search, in the one dialect that `search` defines."""

    async def glob(self, pattern: str, path: str = '/') -> GlobResult:
        """Return the files under `path` that match `pattern`, relative to `path`.

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
            limit: Maximum number of lines to return; the counts per file are always complete.

        Raises:
            InvalidPatternError: The pattern cannot be used.
            FileNotFoundError: `path` does not exist.
        """
        ...


@runtime_checkable
class SupportsCompareAndSwap(Protocol):
    """A backend that prevents lost updates when two writers change the same file."""

    async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        """Write `data` if the file still has the digest `expected`. As atomic as `write_bytes`.

        The check applies to the canonical path, so every spelling of a path, through links too, is checked alike.

        Args:
            path: The file.
            data: Its new contents.
            expected: `digest_of` the contents that the caller read; `None` if no file may exist yet.

        Raises:
            FileChangedError: The file has another digest, exists unexpectedly, or no longer exists.
            IsADirectoryError: The path is a directory, regardless of `expected`.
            NotADirectoryError: A parent is a file.
        """
        ...


@runtime_checkable
class SupportsSnapshots(Protocol):
    """A backend that can capture its files as a `Tree` and restore them."""

    async def snapshot(self) -> Tree:
        """Return a tree of all current files."""
        ...

    async def restore(self, tree: Tree, read_blob: ReadBlob | None = None) -> None:
        """Make the files equal to `tree`: write files that differ and remove files that are not in it.

        All contents are fetched before the first change. Repeat a restore that was interrupted.

        Args:
            tree: The desired files.
            read_blob: Fetches contents that the backend does not have.

        Raises:
            MissingBlobError: Some contents are unavailable; nothing was changed.
            InvalidPathError: The tree has a path that no backend accepts; nothing was changed.
        """
        ...

    async def changes(self, tree: Tree) -> TreeDiff:
        """Return the changes from `tree` to the current files."""
        ...


@runtime_checkable
class RefusesChanges(Protocol):
    """A backend that can report, without writing, that it refuses to change a file."""

    async def refuse_change(self, path: str) -> None:
        """Raise the error that any change of this file would raise, such as `ReadOnlyError`. Changes nothing.

        Returning means only that no refusal is known.
        """
        ...


@runtime_checkable
class SupportsIdentity(Protocol):
    """A backend that can identify the location behind its `ref`, as one `ref` may lead to other files on another
    machine.

    The identity distinguishes files that are missing from files that never existed.
    """

    async def identity(self) -> str | None:
        """Return a storable text that identifies the location now; `None` if the location does not exist.

        It stays valid when files change and when the machine restarts. It is not valid for a copy of the location, or
        for a location that is created again under the same `ref`. Store a new one after changes, so that the location
        is recognized from then on.
        """
        ...

    async def has_identity(self, identity: str) -> bool | None:
        """Return whether this is the location that was identified; `None` if that cannot be determined.

        Args:
            identity: A value that `identity` returned, possibly on another backend, for which the answer is `None`.
        """
        ...

    async def make_root(self) -> None:
        """Create the location, without files, if it is missing."""
        ...
