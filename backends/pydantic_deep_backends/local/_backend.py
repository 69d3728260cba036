"""`LocalBackend`: the files of one directory, confined to it.

Guarantees, and how they are met:
- **Confined.** Every operation walks from the directory by descriptors and resolves links itself
  (`files._confined_root`), so no link leads outside, whenever it is created.
- **Atomic.** A write creates a new file and renames it over the old one (`files._operations`). Other hard links of the
  old file keep the old contents; the new file belongs to the user of this process.
- **One writer at a time** per directory, among tasks, threads, instances and processes: `flock` on the directory.
- **Regular files only.** A FIFO, socket or device is listed and can be removed, but is never opened, as that could
  block.
- **Never on the event loop.** All disk access runs in a worker thread.

POSIX only (Linux, macOS): it needs `dir_fd` and `flock`. Commands run without any isolation, and only if enabled
(`commands`); `sandbox` isolates them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import anyio

from pydantic_deep_backends._checks import check_flags
from pydantic_deep_backends._fetch import contents_of, fetch_contents, files_to_write
from pydantic_deep_backends._scan_budget import check_size, scan_budget
from pydantic_deep_backends._threads import check_cancelled, run_to_completion
from pydantic_deep_backends.commands._execution import arguments_of, check_env, check_timeout
from pydantic_deep_backends.commands._local_process import check_commands_possible, run_locally
from pydantic_deep_backends.errors import BackendUnavailableError
from pydantic_deep_backends.files._confined_root import OpenRoot
from pydantic_deep_backends.files._open_flags import check_platform
from pydantic_deep_backends.paths import parse_path, path_parts
from pydantic_deep_backends.protection import PROTECTED_FILES, check_patterns
from pydantic_deep_backends.protection._patterns import compile_patterns
from pydantic_deep_backends.protocol import BackendRef, Command, CommandResult, CommandRunner, ReadBlob
from pydantic_deep_backends.snapshots import Tree, TreeDiff
from pydantic_deep_backends.tracking import DirectoryRules, Occupant
from pydantic_deep_backends.trees._tree import versions_at

from ._capture import CaptureCache
from ._file_streams import write_stream
from ._files import LocalFiles
from ._identity import identify, recognize
from ._index import Reading, SnapshotIndex
from ._patch import (
    Chunk,
    batches_of,
    by_directory,
    discard,
    find_occupants,
    prune,
    remove_files,
    settle,
    stage,
    stage_stream,
)
from ._protected_scan import ProtectedIndex, ProtectedScan
from ._tracker import LocalTracker


class LocalBackend(LocalFiles):
    """The files of one directory, confined to it. It is mounted at `/`, or at its real path if commands are allowed.

    The directory must exist, unless `make_root` creates it. It is resolved on first use, and its real path is used from
    then on. Nothing stays open between two operations. A directory that is removed and created again belongs to the
    same backend, but has another `identity`.

    Symbolic links are followed inside the directory, including absolute ones that point into it. A file with another
    hard link outside is not read. Snapshots omit links, such hard-linked files, special files, empty directories, and
    names that are not valid in paths (control characters, not UTF-8). `restore` leaves those unchanged, unless they
    block a file that it writes.

    With `allow_commands` the backend also has `run`, **without any isolation**: a command has all the rights of this
    process, the whole disk and the network, and none of the guarantees above apply to it. The directory is then mounted
    at its real path, which `working_dir` returns, so that a path means the same to commands and to file operations; no
    files exist outside of it. Use `SandboxBackend` for commands that a model writes. A command inherits `PATH`, `HOME`
    and the locale of this process and no other variable; see `run` for its child processes.

    Args:
        root: The directory. A relative path is resolved now, against the working directory of the process.
        allow_commands: Whether the backend has `run`. Linux only.
        protected: Patterns of protected files, as in `PROTECTED_FILES`; `()` for none. The operations of this object
            write protected files like any others: the tools of an agent are responsible for asking a person first.
        allow_hard_links: Whether to read files with another hard link outside of the directory, as package installers
            with a shared store create them.
        runner: Runs the commands instead of this process, on any system. It implies `allow_commands`.

    Raises:
        ValueError: A pattern in `protected` is malformed.
        BackendUnavailableError: On construction: the system is Windows, or commands are allowed and it is not Linux. By
            every operation: the directory does not exist.
        TimeoutError: By every change: the directory of the file stays locked by another writer for 30 seconds.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        allow_commands: bool = False,
        protected: Sequence[str] = PROTECTED_FILES,
        allow_hard_links: bool = False,
        runner: CommandRunner | None = None,
    ) -> None:
        check_platform()
        check_flags(allow_commands=allow_commands, allow_hard_links=allow_hard_links)
        if not isinstance(cast('object', root), str | os.PathLike) or not os.fspath(root):
            raise ValueError(f"`root` is {root!r}. Pass a directory; '.' is the current one.")
        if runner is not None and not callable(cast('object', runner)):
            raise TypeError(f'`runner` is {runner!r}. Pass an async function, as `CommandRunner` describes it.')
        allow_commands = allow_commands or runner is not None
        super().__init__(root, allow_commands=allow_commands, allow_hard_links=allow_hard_links)
        self._runner = runner
        self._protected = check_patterns(protected)
        self._protected_index = ProtectedIndex()
        self._protected_lock = threading.Lock()
        self._index = SnapshotIndex()
        self._readings: dict[str, Reading] = {}
        if allow_commands:
            if runner is None:
                check_commands_possible()
            vars(self).update(run=self._run_command)  # on the instance, because `isinstance` looks it up by name

    def __repr__(self) -> str:
        commands = ', allow_commands=True' if self._allow_commands else ''
        return f'LocalBackend({self._configured_root!r}{commands})'

    @property
    def allows_commands(self) -> bool:
        """Whether commands run here, without isolation."""
        return self._allow_commands

    @property
    def protected(self) -> tuple[str, ...]:
        """The patterns of protected files."""
        return self._protected

    @property
    def ref(self) -> BackendRef:
        """The real path of the directory: equal for all backends of one directory, regardless of links in its path."""
        return BackendRef(provider='local', id=self._root().path)

    async def snapshot(self) -> Tree:
        """Return a tree of all current files. Only files that changed since the last snapshot are read.

        Paths in the tree start at the directory, wherever it is mounted, so equal files have equal trees.

        Raises:
            OSError: A file or directory cannot be read, or a file is larger than 1 GiB. In a tree, a missing file would
                count as removed.
            ScanLimitError: There are more than 2,000,000 files and directories, one of them is nested too deeply for a
                path, or the scan takes more than 10 minutes.
        """
        return (await self._scan()).tree

    async def changes(self, tree: Tree) -> TreeDiff:
        """Return the changes from `tree` to the current files. Raises as `snapshot`."""
        return tree.diff(await self.snapshot())

    async def restore(self, tree: Tree, read_blob: ReadBlob | None = None) -> None:
        """Make the files equal to `tree`: write files that differ and remove files that are not in it.

        All contents to write are loaded before the first change. Directories that become empty are removed. The owner's
        execute permission is restored, other permissions stay unchanged. Each file changes atomically, the whole does
        not: repeat a restore that was interrupted.

        Args:
            tree: The desired files.
            read_blob: Fetches contents that neither the tree nor any current file has.

        Raises:
            MissingBlobError: Some contents are unavailable; nothing was changed.
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
        """Start recording which paths the operations of this object touch. Changes by others are found by a full scan.

        Args:
            rules: The ignore rules of the directory.
            max_file_bytes: Larger files are omitted too.
            tree: The current files, if known.
        """
        memory = CaptureCache(readings=self._readings)
        return LocalTracker(self._run_at_root, self._touch_log, memory, rules, max_file_bytes=max_file_bytes, tree=tree)

    async def patch(
        self, tree: Tree, paths: Iterable[str], contents: Mapping[str, bytes], *, is_durable: bool = True
    ) -> None:
        """Write the files of `tree` at `paths`, and remove those that are not in `tree`. Nothing else changes.

        Anything that blocks a file is removed, and so are directories that become empty. The owner's execute permission
        is set from the tree, other permissions stay unchanged. Each file changes atomically, the whole does not: repeat
        an interrupted patch. Temporary files that killed processes left in the same directories are removed once they
        are a day old.

        Args:
            tree: The desired files.
            paths: The paths to change.
            contents: The contents of all files to write, by digest.
            is_durable: Whether the files must survive a power loss.

        Raises:
            InvalidPathError: No backend accepts one of the paths; nothing was changed.
            KeyError: Some contents are missing; nothing was changed.
        """
        versions = versions_at(tree, map(parse_path, paths))
        chunks = batches_of(versions, contents, is_durable=is_durable)
        await self._remove_files([path for path, version in versions.items() if version is None], tree)
        for chunk in chunks:
            await self._write_chunk(chunk)

    async def patch_stream(
        self, tree: Tree, path: str, chunks: AsyncIterable[bytes], *, is_durable: bool = True
    ) -> None:
        """Write the file of `tree` at `path` from chunks, like `patch`.

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
        version = tree[parse_path(path)]
        staged, descriptor = await self._retry(lambda root: stage_stream(root, path, version, self._naming))
        try:
            try:
                await write_stream(descriptor, chunks, path, version.digest, is_durable=is_durable)
            finally:
                os.close(descriptor)
            waiting = [staged]
            await self._retry(
                lambda root: settle(root, waiting, self._naming, is_durable=is_durable),
                at=lambda: path_parts(path),
            )
        finally:
            with anyio.CancelScope(shield=True):
                await self._run_at_root(lambda root: discard(root, [staged]))
            self._touch_log.add(path)

    async def occupants(self, paths: Iterable[str]) -> Sequence[Occupant]:
        """Return everything at, above or below these paths that is not a directory, sorted by path."""
        checked = [parse_path(path) for path in paths]
        return await self._run_at_root(lambda root: find_occupants(root, checked, self._naming))

    def in_directory(self, root: str | os.PathLike[str]) -> LocalBackend:
        """Return a backend with the same settings for another directory.

        A subclass with settings of its own must override this.

        Args:
            root: The directory.
        """
        return LocalBackend(
            root,
            allow_commands=self._allow_commands,
            protected=self._protected,
            allow_hard_links=self._allow_hard_links,
            runner=self._runner,
        )

    async def identity(self) -> str | None:
        """Return an identity made of the machine and the inode, creation time and last change of the directory."""
        try:
            return await self._run_at_root(lambda root: identify(root.descriptor))
        except BackendUnavailableError:
            return None

    async def has_identity(self, identity: str) -> bool | None:
        """Return whether the directory is the one that was identified.

        `None` if the file system does not record creation times and everything else is equal.
        """
        try:
            return await self._run_at_root(lambda root: recognize(root.descriptor, identity))
        except BackendUnavailableError:
            return False

    async def make_root(self) -> None:
        """Create the directory and its parents if they are missing. A file there raises `FileExistsError`."""
        await run_to_completion(lambda: Path(self._root().path).mkdir(parents=True, exist_ok=True))

    async def protected_files(self) -> Mapping[str, str]:
        """Return the state of each existing protected file, by its path in trees.

        Raises:
            BackendUnavailableError: The directory does not exist.
            ScanLimitError: There are more than 2,000,000 directories and protected files, or the scan takes too long.
        """
        return (await self._run_at_root(lambda root: self._scan_protected(root, check_cancelled))).states

    def _scan_protected(self, root: OpenRoot, checkpoint: Callable[[], None]) -> ProtectedScan:
        names = tuple(name.rstrip('/') for name in (self._root().path, self._configured_root, *self._aliases))
        with self._protected_lock:
            return self._protected_index.scan(root, compile_patterns(self._protected), names, checkpoint)

    async def _remove_files(self, paths: Sequence[str], tree: Tree) -> None:
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
            self._touch_log.add(*paths)

    async def _write_chunk(self, chunk: Chunk) -> None:
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
            self._touch_log.add(*chunk.paths)

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
        """Run a command in the directory, with all rights of this process and an empty standard input.

        All processes that it started end with it: background children, processes in their own session, and orphans. A
        command that kills its supervisor process escapes this.

        Args:
            command: An argument list, or a shell string with `shell=True`.
            shell: Whether a shell interprets `command`.
            env: Environment variables to add to the inherited ones.
            timeout: Seconds, positive and finite; `None` for no limit.

        Returns:
            The exit code (negative for a signal, 127 for a missing program) and the output: the first and the last half
            mebibyte of each stream, with a line between them that counts the omitted bytes.

        Raises:
            TypeError: A string without `shell=True`, or an argument list with it.
            CommandTimeoutError: The command exceeded the timeout; its whole process tree has been killed.
            BackendUnavailableError: The directory does not exist, or was removed before the command ended.
        """
        with self._recording_all():
            if self._runner is not None:
                arguments, variables = arguments_of(command, shell=shell), check_env(env or {})
                return await self._runner(self._root().path, arguments, env=variables, timeout=check_timeout(timeout))
            return await run_locally(self._root, command, shell=shell, env=env, timeout=timeout)
