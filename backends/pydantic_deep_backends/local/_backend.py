"""`LocalBackend`: the files of one directory, which it cannot leave.

What it promises, and how:
- **Confined.** Every operation walks from the directory by descriptors and follows links itself
  (`files._confined_root`), so that no link, whenever it is put there, leads outside.
- **Atomic.** A write is a new file that takes the name of the old one (`files._operations`). Another hard link of the
  old file keeps the old contents; the new file belongs to the user of this process.
- **One writer at a time** in a directory, among tasks, threads, instances and processes: `flock` on the directory.
- **Regular files only.** A FIFO, socket or device is listed and can be removed, and is never opened to wait.
- **Never on the event loop.** All that touches the disk runs in a worker thread.

POSIX only (Linux, macOS): it needs `dir_fd` and `flock`. Commands run without any isolation, and only where that
is asked for (`commands`); `sandbox` isolates them.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio

from pydantic_deep_backends._fetch import contents_of, fetch_contents, files_to_write
from pydantic_deep_backends._scan_budget import check_size, scan_budget
from pydantic_deep_backends._threads import check_cancelled, run_to_completion
from pydantic_deep_backends.commands._local_process import check_commands_possible, run_locally
from pydantic_deep_backends.errors import BackendUnavailableError, FileChangedError
from pydantic_deep_backends.files._confined_root import (
    Components,
    Location,
    OpenRoot,
    make_directory,
)
from pydantic_deep_backends.files._directories import stat_location
from pydantic_deep_backends.files._mount_point import (
    directory_entry,
    path_from,
)
from pydantic_deep_backends.files._open_flags import check_platform
from pydantic_deep_backends.files._operations import (
    locked,
    remove_entry,
    replace_file,
    writable_mode,
)
from pydantic_deep_backends.paths import parse_path
from pydantic_deep_backends.protection import PROTECTED_FILES, check_patterns
from pydantic_deep_backends.protection._patterns import compile_patterns
from pydantic_deep_backends.protocol import BackendRef, Command, CommandResult, FileEntry, ReadBlob
from pydantic_deep_backends.search import GlobResult, GrepResult, glob_tree, grep_file, grep_tree
from pydantic_deep_backends.snapshots import Tree, TreeDiff, digest_of
from pydantic_deep_backends.tracking import DirectoryRules, Occupant
from pydantic_deep_backends.trees._tree import versions_at

from ._capture import CaptureCache
from ._directory import LocalDirectory, file_entry, read_at
from ._identity import identify, recognize
from ._index import Reading, SnapshotIndex
from ._patch import Chunk, batches_of, by_directory, discard, find_occupants, prune, remove_files, settle, stage
from ._protected_scan import ProtectedIndex, ProtectedScan
from ._tracker import LocalTracker

T = TypeVar('T')


class LocalBackend(LocalDirectory):
    """The files of one directory, which cannot be left. It appears as `/`, with commands as its real path.

    The directory must exist, unless `make_root` makes it; it is looked up at the first use and kept by its real path.
    Nothing stays open between two operations. A directory that is removed and made again is the same backend, and has
    another `identity`.

    Symbolic links are followed inside the directory, absolute ones too if they point into it. A file that has another
    name outside, by a hard link, is not read. Snapshots leave out links, such files, special files, empty directories, and names that cannot be asked for (control characters, not UTF-8);
    `restore` leaves those alone, unless they stand where a file must go.

    With `allow_commands` there is also `run`, and **nothing is isolated**: a command has all the rights of this
    process, the whole disk and the network, and none of the promises above hold for it. So that a path means the same
    to commands and to file operations, the directory appears as its real path then, and `working_dir` returns that;
    beside it there are no files. Use `SandboxBackend` for commands that a model writes. A command inherits `PATH`,
    `HOME` and the locale of this process and no other variable; `run` says what happens to its children.

    Args:
        root: The directory; a relative one is relative to the working directory of the process now.
        allow_commands: Whether there is `run`. Linux only.
        protected: The files that are protected, as in `PROTECTED_FILES`; `()` for none. The operations of this object
            write them like others: who asks a person before that are the tools of an agent.
        allow_hard_links: Whether files are read that have another name outside of the directory, as installers that
            share one store of packages leave them.

    Raises:
        ValueError: A pattern in `protected` is malformed.
        BackendUnavailableError: At construction, on Windows, and if commands are asked for and the system is not
            Linux; by every operation, if the directory does not exist.
        TimeoutError: By every change, if somebody else keeps the directory of the file locked for 30 seconds.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        allow_commands: bool = False,
        protected: Sequence[str] = PROTECTED_FILES,
        allow_hard_links: bool = False,
    ) -> None:
        check_platform()
        super().__init__(root, allow_commands=allow_commands, allow_hard_links=allow_hard_links)
        self._protected = check_patterns(protected)
        self._protected_index = ProtectedIndex()
        self._protected_lock = threading.Lock()
        self._index = SnapshotIndex()
        self._readings: dict[str, Reading] = {}
        if allow_commands:
            check_commands_possible()
            vars(self).update(run=self._run_command)  # on the instance: `isinstance` looks for it by name

    def __repr__(self) -> str:
        commands = ', allow_commands=True' if self._allow_commands else ''
        return f'LocalBackend({self._given!r}{commands})'

    @property
    def allows_commands(self) -> bool:
        """Whether commands run here without isolation."""
        return self._allow_commands

    @property
    def protected(self) -> tuple[str, ...]:
        """The patterns of protected files."""
        return self._protected

    @property
    def ref(self) -> BackendRef:
        """The real path of the directory: equal for all backends of one directory, whatever links led to it."""
        return BackendRef(provider='local', id=self._root().path)

    async def working_dir(self) -> str:
        """Return where the directory appears: `/`, with commands its real path. Raises `BackendUnavailableError`."""
        return await self._run_at_root(lambda root: self._virtual(()))

    async def read_bytes(self, path: str) -> bytes:
        """Return the contents of a regular file.

        Raises:
            FileNotFoundError: Nothing is there.
            IsADirectoryError: A directory is there.
            OutsideRootError: A link leads outside.
            OSError: What is there is not a regular file, cannot be read, or is larger than 1 GiB.
        """
        return await self._run(path, lambda root, parts: root.visit(parts, partial(read_at, root)))

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace or create a file, atomically; parents are made, links are written through, the mode is kept.

        Raises:
            IsADirectoryError: A directory is there.
            NotADirectoryError: A parent is a file.
            OutsideRootError: A link leads outside.
            OSError: The write failed; the old file is whole.
        """

        def write(place: Location) -> None:
            with locked(place.directory), self._noting(place):
                _replace(place, data)

        await self._run_locked(path, lambda root, parts: root.visit(parts, write, make_dirs=True))

    async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        """Write `data` if the file still has the digest `expected`, and nobody else can write in between.

        Args:
            path: The file.
            data: Its new contents.
            expected: `digest_of` the contents that were read; `None` if there must be no file yet.

        Raises:
            FileChangedError: It has another digest, or exists, or is gone.
            OSError: As for `write_bytes`.
        """

        def swap(root: OpenRoot, place: Location) -> None:
            with locked(place.directory):
                actual = _digest_or_none(root, place)
                if actual != expected:
                    raise FileChangedError(path, expected=expected, actual=actual)
                with self._noting(place):
                    _replace(place, data)

        gone = () if expected is None else FileNotFoundError
        try:
            await self._run_locked(
                path, lambda root, parts: root.visit(parts, partial(swap, root), make_dirs=expected is None)
            )
        except gone:
            raise FileChangedError(path, expected=expected, actual=None) from None

    async def stat(self, path: str) -> FileEntry:
        """Return the metadata of a file or directory, of a link that of what it leads to."""

        def look(root: OpenRoot, parts: Components) -> FileEntry:
            return file_entry(self._virtual(parts), root.visit(parts, stat_location))

        return await self._run(path, look, above=lambda root, names: directory_entry(names))

    async def list_dir(self, path: str) -> list[FileEntry]:
        """Return the entries of one directory, sorted by name.

        Names are the real ones, also those that cannot be asked for: with control characters, or not UTF-8 (with
        `surrogateescape`). A link that leads nowhere or outside is neither a directory nor has it a size.
        """

        def list_above(root: OpenRoot, names: Components) -> list[FileEntry]:
            return [directory_entry(self._shown()[: len(names) + 1])]

        return await self._run(path, self._list, above=list_above)

    async def make_dir(self, path: str) -> None:
        """Create a directory and its parents; an existing directory is fine, a file there is `FileExistsError`."""

        def make(root: OpenRoot, parts: Components) -> None:
            root.visit(parts, _make, make_dirs=True)

        await self._run(path, make, above=lambda root, names: None, is_change=True)

    async def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it; of a symbolic link, the link.

        Raises:
            FileNotFoundError: Nothing is there.
            ValueError: It is the directory itself, or above it.
        """

        def remove_place(place: Location) -> None:
            with locked(place.directory), self._noting(place):
                remove_entry(place.directory, place.name)

        def refuse(root: OpenRoot, names: Components) -> None:
            raise ValueError(
                f'{path_from(names)!r} is the root of the backend or above it, and stays. Remove what is in it.'
            )

        def remove(root: OpenRoot, parts: Components) -> None:
            if not parts:
                refuse(root, self._shown())
            root.visit(parts, remove_place, follow='parents')

        await self._run_locked(path, remove, above=refuse)

    async def exists(self, path: str) -> bool:
        """Return whether a file or directory is there; not so where a link leads nowhere or in a circle.

        Raises:
            OutsideRootError: A link leads outside.
        """
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno == errno.ELOOP:
                return False
            raise
        return True

    async def realpath(self, path: str) -> str:
        """Return the path with symbolic links resolved; components that do not exist are kept as written."""

        def resolve(root: OpenRoot, parts: Components) -> str:
            return self._virtual(root.resolve(parts))

        return await self._run(
            path, resolve, above=lambda root, names: path_from(names), resolve_parent=OpenRoot.resolve
        )

    async def glob(self, pattern: str, path: str = '/') -> GlobResult:
        """Return the files under `path` whose path relative to it matches `pattern`; links to directories are not entered.

        Raises:
            InvalidPatternError: The pattern cannot be used.
            FileNotFoundError: `path` does not exist.
            NotADirectoryError: `path` is a file.
        """

        def find(root: OpenRoot, parts: Components) -> GlobResult:
            with self._searched(root, parts) as tree:
                return glob_tree(tree, pattern, self._virtual(parts))

        def find_above(root: OpenRoot, names: Components) -> GlobResult:
            with self._searched_above(root, names) as tree:
                return glob_tree(tree, pattern, path_from(names))

        return await self._run(path, find, above=find_above)

    async def grep(self, pattern: str, path: str = '/', *, glob: str | None = None, limit: int = 1000) -> GrepResult:
        """Return the lines that match a regular expression (RE2), in the file `path` or the files under it.

        Args:
            pattern: An RE2 regular expression.
            path: A file, or a directory; links to directories below it are not entered.
            glob: Search only files that match, relative to `path`.
            limit: How many lines to keep; the counts per file stay complete.

        Raises:
            InvalidPatternError: The pattern cannot be used.
            FileNotFoundError: `path` does not exist.
        """

        def search(root: OpenRoot, parts: Components) -> GrepResult:
            if stat.S_ISDIR(root.visit(parts, stat_location).st_mode):
                with self._searched(root, parts) as tree:
                    return grep_tree(tree, pattern, self._virtual(parts), glob=glob, limit=limit)
            return grep_file(self._virtual(parts), root.visit(parts, partial(read_at, root)), pattern, limit=limit)

        def search_above(root: OpenRoot, names: Components) -> GrepResult:
            with self._searched_above(root, names) as tree:
                return grep_tree(tree, pattern, path_from(names), glob=glob, limit=limit)

        return await self._run(path, search, above=search_above)

    async def snapshot(self) -> Tree:
        """Return the tree of all files now; files that did not change since the last snapshot are not read again.

        Paths in it begin at the directory, wherever that appears: equal files make equal trees.

        Raises:
            OSError: A file or directory cannot be read, or a file is larger than 1 GiB. A tree without it would say
                that it was removed.
            ScanLimitError: There are more than 2,000,000 files and directories, one lies deeper than a path can lead, or
                this takes more than 10 minutes.
        """
        return (await self._scan()).tree

    async def changes(self, tree: Tree) -> TreeDiff:
        """Return what changed from `tree` to the files now. Raises as `snapshot`."""
        return tree.diff(await self.snapshot())

    async def restore(self, tree: Tree, read_blob: ReadBlob | None = None) -> None:
        """Make the files equal to `tree`: write what differs, remove what it does not have.

        All contents to be written are in memory before the first change. Directories that become empty are removed.
        The owner's right to execute is restored, other permissions stay as they are. Each file changes atomically,
        the whole does not: an interrupted restore is repeated.

        Args:
            tree: The files wanted.
            read_blob: Fetches contents that neither the tree nor any file has now.

        Raises:
            MissingBlobError: BlobStore are not to be had; nothing was changed.
            InvalidPathError: The tree has a path that no backend accepts; nothing was changed.
            ScanLimitError: As for `snapshot`, or the tree has too many files; nothing was changed.
        """
        with scan_budget():
            check_size(tree)
            before = (await self._scan()).tree
            diff = before.diff(tree)
            wanted = files_to_write(tree, diff)
            contents = await fetch_contents(wanted, contents_of(before, self._read_from_root), read_blob)
        await self.patch(tree, (*diff.removed, *wanted), contents)

    def track(self, rules: DirectoryRules, *, max_file_bytes: int, tree: Tree | None = None) -> LocalTracker:
        """Begin to note what the operations of this object touch; what others do is seen by a look at everything.

        Args:
            rules: What is left out, from the directory on.
            max_file_bytes: Larger files are left out too.
            tree: The files as they are now, if the caller knows.
        """
        memory = CaptureCache(readings=self._readings)
        return LocalTracker(self._run_at_root, self._notebook, memory, rules, max_file_bytes=max_file_bytes, tree=tree)

    async def patch(
        self, tree: Tree, paths: Iterable[str], contents: Mapping[str, bytes], *, is_durable: bool = True
    ) -> None:
        """Write the files of `tree` at `paths`, and remove those that it does not have; nothing else is looked at.

        What stands in the way of a file is removed, directories that become empty are. The owner's right to execute is
        as in the tree, other permissions stay as they are. Each file changes atomically, the whole does not: an
        interrupted patch is repeated. What killed processes were writing beside them goes, once it is a day old.

        Args:
            tree: The files wanted.
            paths: Where they are wanted.
            contents: By digest, for all that is to be written.
            is_durable: Whether the files must survive a loss of power.

        Raises:
            InvalidPathError: A path is one that no backend accepts; nothing was changed.
            KeyError: BlobStore are missing; nothing was changed.
        """
        found = versions_at(tree, map(parse_path, paths))
        chunks = batches_of(found, contents, is_durable=is_durable)
        await self._take_away([path for path, version in found.items() if version is None], tree)
        for chunk in chunks:
            await self._put_chunk(chunk)

    async def occupants(self, paths: Iterable[str]) -> Sequence[Occupant]:
        """Return what is at these paths, or above or below them, and is not a directory, sorted by path."""
        checked = [parse_path(path) for path in paths]
        return await self._run_at_root(lambda root: find_occupants(root, checked, self._naming))

    def in_directory(self, root: str | os.PathLike[str]) -> LocalBackend:
        """Return a backend of another directory that does what this one does.

        A subclass with settings of its own overrides it.

        Args:
            root: The directory.
        """
        return LocalBackend(
            root,
            allow_commands=self._allow_commands,
            protected=self._protected,
            allow_hard_links=self._allow_hard_links,
        )

    async def identity(self) -> str | None:
        """Return what identifies the directory: the machine, its inode, when that was made, and its last change."""
        try:
            return await self._run_at_root(lambda root: identify(root.descriptor))
        except BackendUnavailableError:
            return None

    async def has_identity(self, identity: str) -> bool | None:
        """Return whether the directory is the one that was identified.

        `None` where the file system does not keep when directories were made, and all the rest is equal.
        """
        try:
            return await self._run_at_root(lambda root: recognize(root.descriptor, identity))
        except BackendUnavailableError:
            return False

    async def make_root(self) -> None:
        """Make the directory and its parents if they are missing. Raises `FileExistsError` where there is a file."""
        await run_to_completion(lambda: Path(self._root().path).mkdir(parents=True, exist_ok=True))

    async def protected_files(self) -> Mapping[str, str]:
        """Return the state of each protected file that there is, by its path in trees.

        Raises:
            BackendUnavailableError: The directory does not exist.
            ScanLimitError: There are more than 2,000,000 directories and protected files, or it takes too long.
        """
        return (await self._run_at_root(lambda root: self._scan_protected(root, check_cancelled))).states

    def _scan_protected(self, root: OpenRoot, checkpoint: Callable[[], None]) -> ProtectedScan:
        names = tuple(name.rstrip('/') for name in (self._root().path, self._given, *self._aliases))
        with self._protected_lock:
            return self._protected_index.scan(root, compile_patterns(self._protected), names, checkpoint)

    async def _take_away(self, paths: Sequence[str], tree: Tree) -> None:
        waiting = by_directory(paths)
        parents = [directory for directory, _ in waiting]
        if not waiting:
            return
        try:
            await self._retry(
                lambda root: remove_files(root, waiting, self._naming),
                at=lambda: (*waiting[0][0], waiting[0][1][0]),
            )
            await self._retry(lambda root: prune(root, parents, tree))
        finally:
            self._notebook.add(*paths)

    async def _put_chunk(self, chunk: Chunk) -> None:
        is_synced = chunk.is_durable and not chunk.is_synced_whole
        try:
            staged = await self._retry(lambda root: stage(root, chunk, self._naming))
            try:
                await self._retry(
                    lambda root: settle(root, staged, self._naming, is_durable=is_synced),
                    at=lambda: (*staged[0].directory, *list(staged[0].name_by_temporary.values())[:1]),
                )
            finally:
                with anyio.CancelScope(shield=True):
                    await self._run_at_root(lambda root: discard(root, staged))
            if chunk.is_synced_whole:
                await run_to_completion(os.sync)
        finally:
            self._notebook.add(*chunk.paths)

    async def _read_from_root(self, path: str) -> bytes:
        return await self.read_bytes(self._of_tree(path))

    async def _scan(self) -> SnapshotIndex:
        self._index = await self._run_at_root(lambda root: self._index.scan(root, check_cancelled))
        return self._index

    async def _run_command(
        self,
        command: Command,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a command in the directory, with all rights of this process; standard input is at its end.

        Everything that it started ends with it: children in the background, those of a session of their own, and
        those that became orphans. A command that kills the process which watches over it escapes that.

        Args:
            command: An argument list, or a shell string with `shell=True`.
            shell: Whether `command` is for the shell.
            env: Variables on top of those inherited.
            timeout: Seconds, positive and finite; `None` for no limit.

        Returns:
            The exit code, negative for a signal, 127 for a missing program, and what was printed: of each stream the
            first and the last half mebibyte, with a line in between that says how much is left out.

        Raises:
            TypeError: A string without `shell=True`, or an argument list with it.
            CommandTimeoutError: It took longer; the whole process tree is gone.
            BackendUnavailableError: The directory does not exist, or no longer.
        """
        with self._noting_all():
            return await run_locally(self._root, command, shell=shell, env=env, timeout=timeout)


def _digest_or_none(root: OpenRoot, place: Location) -> str | None:
    try:
        return digest_of(read_at(root, place))
    except FileNotFoundError:
        return None


def _replace(place: Location, data: bytes) -> None:
    replace_file(place.directory, place.name, data, mode=writable_mode(place.directory, place.name))


def _make(place: Location) -> None:
    make_directory(place.directory, place.name)
    if not stat.S_ISDIR(stat_location(place).st_mode):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
