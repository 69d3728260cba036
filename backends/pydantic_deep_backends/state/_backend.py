"""`StateBackend`: files in memory, with snapshots at no cost.

All files are one immutable `Tree` of versions that carry their contents; a write replaces the tree. So a snapshot is
just that tree, a search sees one point in time however long it takes, and nothing needs to be copied.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, cast

import anyio.from_thread

from pydantic_deep_backends._checks import check_contents
from pydantic_deep_backends._dotdot import resolve_dotdot_async, resolve_dotdot_strict
from pydantic_deep_backends._fetch import fetch_contents, files_to_write
from pydantic_deep_backends._scan_budget import check_size, scan_budget
from pydantic_deep_backends._threads import check_cancelled, run_to_completion
from pydantic_deep_backends.errors import FileChangedError
from pydantic_deep_backends.paths import parse_path
from pydantic_deep_backends.protection import PROTECTED_FILES, check_patterns
from pydantic_deep_backends.protocol import BackendRef, FileEntry, ReadBlob
from pydantic_deep_backends.search import GlobResult, GrepResult, glob_tree, grep_file, grep_tree
from pydantic_deep_backends.tracking import DirectoryRules, Occupant
from pydantic_deep_backends.trees._blobs import Blob, BlobStore, StoredVersion, stored
from pydantic_deep_backends.trees._nodes import FileVersion, digest_of
from pydantic_deep_backends.trees._tree import Tree, TreeDiff

from ._tracker import StateTracker

_MARK: Final = FileVersion(digest=digest_of(b''), size=0)
"""The value of each empty directory in the tree of empty directories."""


class StateBackend:
    """Files in memory, lost with the process. The data structure is persistent: snapshots never change.

    Contents are stored once, however many files and snapshots have them, as long as a file or a `Tree` that the caller
    holds references them. Such a tree can be restored without `read_blob`. There are no symbolic links. Directories
    from `make_dir` exist, but like all empty directories they are not part of a tree.

    Use it from one event loop: operations are atomic because they never suspend. Trees can be passed to any thread.

    ```python
    import anyio

    from pydantic_deep_backends import StateBackend


    async def main() -> None:
        backend = StateBackend({'/notes.md': 'one'})
        before = await backend.snapshot()
        await backend.write_bytes('/notes.md', b'two')
        await backend.restore(before)
        print(await backend.read_bytes('/notes.md'))
        #> b'one'


    anyio.run(main)
    ```

    Args:
        files: Initial contents by absolute path; `str` is stored as UTF-8.

    Raises:
        InvalidPathError: A path is malformed.
        IsADirectoryError, NotADirectoryError: A path is both a file and the parent of one.
    """

    def __init__(
        self, files: Mapping[str, bytes | str] | None = None, *, protected: Sequence[str] = PROTECTED_FILES
    ) -> None:
        self._protected = check_patterns(protected)
        self._ref = BackendRef(provider='state', id=uuid.uuid4().hex)
        self._contents = BlobStore()
        self._files = Tree()
        self._read_blob: ReadBlob | None = None
        self._empty_dirs = Tree()
        """The empty directories. All others follow from their files."""
        if not isinstance(cast('object', files), Mapping | None):
            raise TypeError(f'`files` is {type(files).__name__}. Pass paths and contents: `{{"/notes.md": "text"}}`.')
        for path, data in (files or {}).items():
            self._write(parse_path(path), data.encode() if isinstance(data, str) else data)

    @classmethod
    def of(cls, tree: Tree, read_blob: ReadBlob, *, protected: Sequence[str] = PROTECTED_FILES) -> StateBackend:
        """Return a backend with the files of a tree; their contents are fetched when they are read.

        Contents that a search reads are not stored afterwards; contents that `read_bytes` returned are.

        Args:
            tree: The files.
            read_blob: Fetches their contents while the backend is in use; its results are checked against the digest.
            protected: The patterns of protected files.

        Raises:
            InvalidPathError: The tree has a path that no backend accepts.
        """
        for path in tree:
            parse_path(path)
        backend = cls(protected=protected)
        backend._files = tree
        backend._read_blob = read_blob
        return backend

    @property
    def protected(self) -> tuple[str, ...]:
        """The patterns of protected files, for which the tools of an agent ask for approval."""
        return self._protected

    @property
    def ref(self) -> BackendRef:
        """The identity of these files; every instance has its own."""
        return self._ref

    async def working_dir(self) -> str:
        """Return the working directory, which is always `/`."""
        return '/'

    async def read_bytes(self, path: str) -> bytes:
        """Return the contents of a file.

        Raises:
            MissingBlobError: The contents must be fetched and are unavailable.
        """
        path = await resolve_dotdot_strict(self, path)
        version = self._version_of(path)
        if isinstance(version, StoredVersion):
            return version.blob.data
        blob = await self._fetch(path, version)
        if self._files.get(path) is version:
            self._files = self._files.set(path, stored(blob, version.mode))
        return blob.data

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace or create a file and its parent directories; an existing file keeps its mode."""
        self._write(await resolve_dotdot_strict(self, path), data)

    async def stat(self, path: str) -> FileEntry:
        """Return the metadata of a file or directory."""
        path = await resolve_dotdot_strict(self, path)
        version = self._files.get(path)
        if version is None and not self._is_dir(path):
            raise self._missing(path)
        return _entry(path, None if version is None else version.size)

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """Return the entries of one directory, sorted by name."""
        path = await resolve_dotdot_strict(self, path)
        self._check_dir(path)
        sizes = {name: _size_of(child) for name, child in self._files.entries(path).items()}
        sizes |= dict.fromkeys(self._empty_dirs.entries(path))
        return [_entry(f'{path.rstrip("/")}/{name}', sizes[name]) for name in sorted(sizes)]

    async def make_dir(self, path: str) -> None:
        """Create a directory and its parents. An existing directory is fine."""
        path = await resolve_dotdot_strict(self, path)
        if self._files.get(path) is not None:
            raise _error(FileExistsError, errno.EEXIST, path)
        self._check_parents(path)
        if not self._is_dir(path):
            self._fill_directories_above(path)
            self._empty_dirs = self._empty_dirs.set(path, _MARK)

    async def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it. The parent directory remains, even if empty."""
        path = await resolve_dotdot_strict(self, path)
        if path == '/':
            raise ValueError("'/' is the working directory and cannot be removed. Remove its contents.")
        if self._files.get(path) is not None:
            self._files = self._files.remove(path)
        elif self._is_dir(path):
            self._files = self._files.graft(path, Tree())
            self._forget_empty_dirs(path)
        else:
            raise self._missing(path)
        parent = path.rpartition('/')[0]
        if parent and not self._is_dir(parent):
            self._empty_dirs = self._empty_dirs.set(parent, _MARK)

    async def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        try:
            path = await resolve_dotdot_strict(self, path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return self._files.get(path) is not None or self._is_dir(path)

    async def realpath(self, path: str) -> str:
        """Return the canonical path. There are no links, so `..` just removes the name before it."""
        return await resolve_dotdot_async(path, self.realpath)

    async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        """Write `data` if the file still has the digest `expected`. Atomic, as nothing here suspends."""
        path = await resolve_dotdot_strict(self, path)
        self._check_writable(path)
        version = self._files.get(path)
        actual = None if version is None else version.digest
        if actual != expected:
            raise FileChangedError(path, expected=expected, actual=actual)
        self._write(path, data)

    async def glob(self, pattern: str, path: str = '/') -> GlobResult:
        """Return the files under `path` that match `pattern`, relative to `path`, as of now."""
        path = await resolve_dotdot_strict(self, path)
        self._check_dir(path)
        searched = self._searched(path)
        return await run_to_completion(partial(glob_tree, searched, pattern, path))

    async def grep(self, pattern: str, path: str = '/', *, glob: str | None = None, limit: int = 1000) -> GrepResult:
        """Return the lines that match a regular expression (RE2), in the file `path` or files under it, as of now."""
        path = await resolve_dotdot_strict(self, path)
        if path in self._files:
            return await run_to_completion(partial(grep_file, path, await self.read_bytes(path), pattern, limit=limit))
        self._check_dir(path)
        searched = self._searched(path)
        return await run_to_completion(partial(grep_tree, searched, pattern, path, glob=glob, limit=limit))

    async def snapshot(self) -> Tree:
        """Return a tree of all current files, at no cost. Its digest is computed on first use.

        Raises:
            ScanLimitError: There are more than 2,000,000 files.
        """
        with scan_budget() as budget:
            return budget.take(self._files)

    async def restore(self, tree: Tree, read_blob: ReadBlob | None = None) -> None:
        """Make the files equal to `tree`.

        Directories that lose their last file are removed. Directories that were empty before remain, unless a file
        replaces them.

        Args:
            tree: The desired files.
            read_blob: Fetches contents that neither the tree nor the backend has; its results are checked.

        Raises:
            MissingBlobError: Some contents are unavailable; nothing was changed.
            InvalidPathError: The tree has a path that no backend accepts; nothing was changed.
            ScanLimitError: The tree has more than 2,000,000 files, or fetching contents takes more than 10 minutes;
                nothing was changed.
        """
        check_size(tree)
        fetched: dict[str, bytes] = {}
        # Other tasks may write while contents are fetched, so the differences are computed again.
        with scan_budget():
            while lacking := self._without_contents(files_to_write(tree, self._files.diff(tree)), fetched):
                fetched |= await fetch_contents(lacking, read_blob, self._read_blob)
        diff = self._files.diff(tree)
        # Collected before any removal: a removed file may be the last one with the contents of an added one.
        versions = {
            path: stored(self._blob_of(version) or self._contents.keep(fetched[version.digest]), version.mode)
            for path, version in files_to_write(tree, diff).items()
        }
        self._change(diff.removed, versions)

    def track(self, rules: DirectoryRules, *, max_file_bytes: int, tree: Tree | None = None) -> StateTracker:
        """Return a tracker. It compares trees, so it needs neither a record of touched paths nor `tree`.

        Args:
            rules: The ignore rules of the root.
            max_file_bytes: Larger files are omitted too.
            tree: Ignored.
        """
        return StateTracker(lambda: self._files, self._data_of, rules, max_file_bytes=max_file_bytes)

    async def patch(
        self, tree: Tree, paths: Iterable[str], contents: Mapping[str, bytes], *, is_durable: bool = True
    ) -> None:
        """Write the files of `tree` at `paths`, and remove files at `paths` that are not in `tree`, all at once.

        Args:
            tree: The desired files.
            paths: The paths to change.
            contents: The contents, by digest, of all files to write that are not in memory.
            is_durable: No effect here.

        Raises:
            InvalidPathError: No backend accepts one of the paths; nothing was changed.
            KeyError: Some contents are missing; nothing was changed.
        """
        checked = [parse_path(path) for path in paths]
        wanted = {path: version for path in checked if (version := tree.get(path)) is not None}
        versions = {
            path: stored(self._blob_of(version) or self._contents.keep(contents[version.digest]), version.mode)
            for path, version in wanted.items()
        }
        removed = [path for path in checked if path in self._files]
        in_the_way = [other for path in versions for other in self._occupants(path)]
        self._change([*removed, *in_the_way], versions)

    async def occupants(self, paths: Iterable[str]) -> Sequence[Occupant]:
        """Return the files at, above or below these paths, sorted by path."""
        occupied = {other for path in paths for other in self._occupants(parse_path(path))}
        return [Occupant(path=path, is_file=True) for path in sorted(occupied)]

    async def changes(self, tree: Tree) -> TreeDiff:
        """Return the changes from `tree` to the current files, at a cost per change. Raises as `snapshot`."""
        return tree.diff(await self.snapshot())

    def __repr__(self) -> str:
        size_bytes = sum(version.size for _, version in self._files.items())
        return f'<StateBackend of {len(self._files)} files, {size_bytes:,} bytes>'

    def _version_of(self, path: str) -> FileVersion:
        version = self._files.get(path)
        if version is not None:
            return version
        if self._is_dir(path):
            raise _error(IsADirectoryError, errno.EISDIR, path)
        raise self._missing(path)

    async def _fetch(self, path: str, version: FileVersion) -> Blob:
        """Return the contents of a version that does not carry them."""
        blob = self._contents.find(version.digest)
        if blob is not None:
            return blob
        return self._contents.keep((await fetch_contents({path: version}, self._read_blob))[version.digest])

    async def _data_of(self, path: str, version: FileVersion) -> bytes:
        return version.blob.data if isinstance(version, StoredVersion) else (await self._fetch(path, version)).data

    def _searched(self, path: str) -> _StateFileTree:
        def read(name: str, version: FileVersion) -> bytes:
            if isinstance(version, StoredVersion):
                return version.blob.data
            return anyio.from_thread.run(self._data_of, name, version)

        return _StateFileTree(self._files.subtree(path), read)

    def _write(self, path: str, data: bytes) -> None:
        check_contents(data)
        self._check_writable(path)
        before = self._files.get(path)
        # `bytes` copies mutable buffers and returns `bytes` objects unchanged.
        self._put(path, stored(self._contents.keep(bytes(data)), before.mode if before else 0o644))

    def _change(self, removed: Iterable[str], versions: Mapping[str, FileVersion]) -> None:
        """Remove and write files at once; each parent directory is rebuilt only once."""
        self._files = self._files.with_changes({**dict.fromkeys(removed), **versions})
        for path in versions if self._empty_dirs else ():
            self._fill_directories_above(path)
            self._forget_empty_dirs(path)

    def _put(self, path: str, version: FileVersion) -> None:
        self._files = self._files.set(path, version)
        self._fill_directories_above(path)
        self._forget_empty_dirs(path)

    def _occupants(self, path: str) -> list[str]:
        above = path if path in self._files else self._files.file_above(path)
        return [above] if above is not None else [f'{path}{below}' for below in self._files.subtree(path)]

    def _is_dir(self, path: str) -> bool:
        return self._files.is_dir(path) or self._empty_dirs.is_dir(path) or path in self._empty_dirs

    def _check_dir(self, path: str) -> None:
        if self._files.get(path) is not None:
            raise _error(NotADirectoryError, errno.ENOTDIR, path)
        if not self._is_dir(path):
            raise self._missing(path)

    def _check_writable(self, path: str) -> None:
        if self._is_dir(path):
            raise _error(IsADirectoryError, errno.EISDIR, path)
        self._check_parents(path)

    def _check_parents(self, path: str) -> None:
        if self._files.file_above(path) is not None:
            raise _error(NotADirectoryError, errno.ENOTDIR, path)

    def _fill_directories_above(self, path: str) -> None:
        """Remove the record of an empty parent of `path`, which is about to have an entry."""
        above = self._empty_dirs.file_above(path)
        if above is not None:
            self._empty_dirs = self._empty_dirs.remove(above)

    def _forget_empty_dirs(self, path: str) -> None:
        if path in self._empty_dirs:
            self._empty_dirs = self._empty_dirs.remove(path)
        else:
            self._empty_dirs = self._empty_dirs.graft(path, Tree())

    def _missing(self, path: str) -> OSError:
        """Return the error for a path that does not exist."""
        self._check_parents(path)
        return _error(FileNotFoundError, errno.ENOENT, path)

    def _without_contents(
        self, wanted: Mapping[str, FileVersion], fetched: Mapping[str, bytes]
    ) -> dict[str, FileVersion]:
        return {
            path: version
            for path, version in wanted.items()
            if version.digest not in fetched and self._blob_of(version) is None
        }

    def _blob_of(self, version: FileVersion) -> Blob | None:
        if isinstance(version, StoredVersion):
            return self._contents.adopt(version.blob)
        return self._contents.find(version.digest)


class _StateFileTree:
    """`FileTree` of one directory: immutable, and safe to read from another thread."""

    def __init__(self, tree: Tree, read: Callable[[str, FileVersion], bytes]) -> None:
        self._tree = tree
        self._read = read
        self._current: Mapping[str, FileVersion | Tree] = {}
        self._below: dict[str, Tree] = {'': tree}
        """Directories that were listed but not scanned yet."""

    def scan(self, directory: str) -> Iterable[tuple[str, bool]]:
        """Return the name of each entry, and whether it is a directory."""
        check_cancelled()
        tree = self._below.pop(directory, None) or self._tree.subtree(f'/{directory}')
        if not tree and directory:
            raise _error(FileNotFoundError, errno.ENOENT, f'/{directory}')
        self._current = tree.entries()
        prefix = f'{directory}/' if directory else ''
        self._below |= {f'{prefix}{name}': child for name, child in self._current.items() if isinstance(child, Tree)}
        return [(name, isinstance(child, Tree)) for name, child in self._current.items()]

    def read(self, name: str) -> bytes:
        """Return the contents of a file in the last scanned directory."""
        version = self._current[name]
        assert isinstance(version, FileVersion)  # noqa: S101 - a search reads only entries that were listed as files
        return self._read(name, version)


def _entry(path: str, size: int | None) -> FileEntry:
    return FileEntry(name=path.rpartition('/')[2], path=path, is_dir=size is None, size=size)


def _size_of(child: FileVersion | Tree) -> int | None:
    return child.size if isinstance(child, FileVersion) else None


def _error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number), path)
