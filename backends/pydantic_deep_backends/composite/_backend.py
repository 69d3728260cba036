"""`CompositeBackend`: several backends as one, each mounted at a path.

`_mounts` maps paths to backends, `_search` searches, and `_snapshots` combines and splits trees. The operations here
delegate to the mounted backends.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial

from pydantic_deep_backends._dotdot import resolve_dotdot_async
from pydantic_deep_backends._scan_budget import scan_budget
from pydantic_deep_backends.local._directory import has_fixed_mount_point, mount_point_of
from pydantic_deep_backends.protection import SupportsProtection, protected_patterns_of
from pydantic_deep_backends.protocol import (
    BackendProtocol,
    BackendRef,
    FileEntry,
    RefusesChanges,
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsIdentity,
    SupportsSnapshots,
)
from pydantic_deep_backends.search import GlobResult, GrepResult
from pydantic_deep_backends.tracking import SupportsPatch, SupportsStreamedPatch
from pydantic_deep_backends.trees._tree import Tree

from ._identity import CompositeIdentity
from ._mounts import Mount, MountTable
from ._search import glob_mounts, grep_mounts
from ._snapshots import CompositeSnapshots
from ._tracking import CompositeTracking, MountedTree, TrackedMount


class CompositeBackend:
    """Several backends combined into one. The longest mount point that contains a path selects its backend.

    A mount point is listed as a directory of its parent, search crosses it, and neither it nor its parents can be
    removed. Files of the underlying backend at a mount point are hidden and stay unchanged. Results and errors contain
    virtual paths.

    Optional protocols depend on the parts, and `isinstance` reflects that:

    - `run`: the default runs commands, among its own files only.
    - `compare_and_swap`: all parts have it.
    - `snapshot`, `restore` and `changes`: all parts have them and mount their files at their root. `SandboxBackend` and
      others that mount their directory elsewhere for commands do not: their trees start at the directory, so they have
      no place for files mounted beside it. Take snapshots of such a backend itself.
    - `track`: all parts have it, and none is mounted at the real path of its directory. Its trees contain files at
      their virtual paths.
    - `patch` and `patch_stream`: change the parts that have `patch`.
    - `identity`: combines the identities of all parts that have one.

    The composite does not own its parts: close them where you opened them. A name that backends refuse at their root
    (`~a`, `c:`) is refused at a mount point too.

    Args:
        default: The backend for all other paths; its working directory is that of the composite.
        mounts: Backends by mount point, an absolute path.

    Raises:
        InvalidPathError: A mount point is malformed.
        ValueError: A mount point is `/`, two are equal (compared in Unicode's NFC), or one hides the whole directory in
            which the default runs commands.
    """

    def __init__(self, default: BackendProtocol, mounts: Mapping[str, BackendProtocol]) -> None:
        self._table = MountTable(default, mounts)
        place = mount_point_of(default)
        if place != '/' and self._table.locate(place)[0].prefix:
            raise ValueError(
                f'The files of {default!r} are mounted at {place!r}. A mount there or above would hide all of them '
                'from everything except commands. Choose another mount point.'
            )
        # Optional members are set on the instance, because `isinstance` looks them up by name.
        if isinstance(default, SupportsCommands):
            vars(self).update(run=default.run)
        guarded = [(part, part.backend) for part in self._table.parts if isinstance(part.backend, SupportsProtection)]
        if guarded:
            vars(self).update(protected_files=partial(self._protected_files, guarded))
        if all(isinstance(part.backend, SupportsCompareAndSwap) for part in self._table.parts):
            vars(self).update(compare_and_swap=self._compare_and_swap)
        captured = [(p, p.backend) for p in self._table.parts if isinstance(p.backend, SupportsSnapshots)]
        if len(captured) == len(self._table.parts) and all(
            mount_point_of(part.backend) == '/' for part in self._table.parts
        ):
            snapshots = CompositeSnapshots(self._table, captured, self.read_bytes)
            vars(self).update(snapshot=snapshots.snapshot, restore=snapshots.restore, changes=snapshots.changes)
        tracked = [
            part
            for part in map(TrackedMount.of, self._table.parts)
            if part and has_fixed_mount_point(part.part.backend)
        ]
        self._files = CompositeTracking(self._table, tracked)
        if len(tracked) == len(self._table.parts):
            vars(self).update(track=self._files.track)
            if any(isinstance(part.backend, SupportsPatch) for part in tracked):
                vars(self).update(patch=self._files.patch, occupants=self._files.occupants)
            if any(isinstance(part.backend, SupportsStreamedPatch) for part in tracked):
                vars(self).update(patch_stream=self._files.patch_stream)

        places = {
            part.prefix or '/': part.backend for part in self._table.parts if isinstance(part.backend, SupportsIdentity)
        }
        if places:
            identity = CompositeIdentity(places)
            vars(self).update(
                identity=identity.identity, has_identity=identity.has_identity, make_root=identity.make_root
            )

    @property
    def default(self) -> BackendProtocol:
        """The backend of all paths outside of the mounts."""
        return self._table.default.backend

    @property
    def mounts(self) -> Mapping[str, BackendProtocol]:
        """The mounted backends, by mount point."""
        return {part.prefix: part.backend for part in self._table.mounted}

    @property
    def protected(self) -> tuple[str, ...]:
        """The patterns of protected files: the union of all parts."""
        return tuple(
            dict.fromkeys(pattern for part in self._table.parts for pattern in protected_patterns_of(part.backend))
        )

    async def _protected_files(self, guarded: Sequence[tuple[Mount, SupportsProtection]]) -> Mapping[str, str]:
        """Return the state of each protected file, in parts that report it, by its path in trees."""
        states: dict[str, str] = {}
        with scan_budget():
            for part, backend in guarded:
                root = f'{part.prefix}{mount_point_of(backend).rstrip("/")}'
                states |= {f'{root}{path}': state for path, state in (await backend.protected_files()).items()}
        return states

    def split(self, tree: Tree) -> Sequence[MountedTree]:
        """Return the share of each part in a tree, the default first.

        Args:
            tree: A tree from a tracker of a composite with these mount points.
        """
        return self._files.split(tree)

    @property
    def ref(self) -> BackendRef | None:
        """The mount points and refs of all parts, as JSON; `None` if a part has no ref."""
        refs = {part.prefix or '/': part.backend.ref for part in self._table.parts}
        if None in refs.values():
            return None
        parts = {
            path: [ref.provider, ref.id] if isinstance(ref, BackendRef) else repr(ref) for path, ref in refs.items()
        }
        return BackendRef(provider='composite', id=json.dumps(parts, sort_keys=True))

    async def working_dir(self) -> str:
        """Return the working directory of the default backend."""
        return await self._table.default.backend.working_dir()

    async def read_bytes(self, path: str) -> bytes:
        """Return the contents of a file."""
        part, inner = await self._locate_file(path)
        with part.errors(inner):
            return await part.backend.read_bytes(inner)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace or create a file."""
        part, inner = await self._locate_file(path)
        with part.errors(inner):
            await part.backend.write_bytes(inner, data)

    async def refuse_change(self, path: str) -> None:
        """Raise the error that any change of this file would raise, such as `ReadOnlyError`, if its part reports it."""
        part, inner = await self._locate_file(path)
        if isinstance(part.backend, RefusesChanges):
            with part.errors(inner):
                await part.backend.refuse_change(inner)

    async def stat(self, path: str) -> FileEntry:
        """Return the metadata of a file or directory; a mount point is a directory."""
        path = await self._resolve_dotdot(path)
        if self._table.is_fixed(path):
            return _directory(path)
        part, inner = self._table.locate(path)
        with part.errors(inner):
            return part.entry(await part.backend.stat(inner))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """Return the entries of one directory, with the mount points in it, sorted by name."""
        path = await self._resolve_dotdot(path)
        mounted = [_directory(f'{path.rstrip("/")}/{name}') for name in self._table.child_names(path).values()]
        part, inner = self._table.locate(path)
        try:
            with part.errors(inner):
                entries = [part.entry(entry) for entry in await part.backend.list_dir(inner)]
        except (FileNotFoundError, NotADirectoryError):
            if not mounted:
                raise
            entries = []
        visible = [entry for entry in entries if not self._table.is_fixed(entry.path)]
        return sorted([*visible, *mounted], key=lambda entry: entry.name)

    async def make_dir(self, path: str) -> None:
        """Create a directory and its parents; a mount point exists already."""
        path = await self._resolve_dotdot(path)
        if self._table.is_fixed(path):
            return
        part, inner = self._table.locate(path)
        with part.errors(inner):
            await part.backend.make_dir(inner)

    async def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it.

        Raises:
            FileNotFoundError: The path does not exist.
            ValueError: The path is a mount point, a parent of one, or the working directory.
        """
        path = await self._resolve_dotdot(path)
        if path == '/' or self._table.is_fixed(path):
            raise ValueError(
                f'{path!r} is the root, a mount point or above one, and cannot be removed. Remove its contents.'
            )
        part, inner = self._table.locate(path)
        with part.errors(inner):
            await part.backend.remove(inner)

    async def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        try:
            path = await self._resolve_dotdot(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        part, inner = self._table.locate(path)
        with part.errors(inner):
            return self._table.is_fixed(path) or await part.backend.exists(inner)

    async def realpath(self, path: str) -> str:
        """Return the path with symbolic links of its part resolved.

        A link to a hidden file keeps its own path: the resolved one would name another file.
        """
        path = await resolve_dotdot_async(path, self._real_directory)
        part, resolved = await self._resolved(path)
        return resolved if self._table.locate(resolved)[0] is part else path

    async def glob(self, pattern: str, path: str = '/') -> GlobResult:
        """Return the files under `path`, mounts included, that match `pattern`, relative to `path`."""
        return await glob_mounts(self, self._table, pattern, await self._resolve_dotdot(path))

    async def grep(self, pattern: str, path: str = '/', *, glob: str | None = None, limit: int = 1000) -> GrepResult:
        """Return the lines that match a regular expression (RE2), in `path` or the files under it, mounts included."""
        return await grep_mounts(self, self._table, pattern, await self._resolve_dotdot(path), glob=glob, limit=limit)

    def __repr__(self) -> str:
        mounts = ', '.join(f'{part.prefix!r}: {part.backend!r}' for part in self._table.mounted)
        return f'CompositeBackend({self._table.default.backend!r}, {{{mounts}}})'

    async def _resolve_dotdot(self, path: str) -> str:
        return await resolve_dotdot_async(path, self._existing_directory)

    async def _existing_directory(self, path: str) -> str:
        real = await self._real_directory(path)
        if not (await self.stat(real)).is_dir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return real

    async def _real_directory(self, path: str) -> str:
        """Return the canonical path of a directory before a `..`.

        A link to a hidden directory is refused, as the parent of its target has no virtual path.
        """
        if self._table.is_fixed(path):
            return path
        part, real = await self._resolved(path)
        if self._table.locate(real)[0] is not part:
            raise FileNotFoundError(errno.ENOENT, 'It is a link to a file that a mount hides. Remove `..`', path)
        return real

    async def _resolved(self, path: str) -> tuple[Mount, str]:
        """Return the part that contains a path, and the path with links of the part resolved."""
        part, inner = self._table.locate(path)
        with part.errors(inner):
            return part, part.outer(await part.backend.realpath(inner))

    async def _locate_file(self, path: str) -> tuple[Mount, str]:
        path = await self._resolve_dotdot(path)
        if self._table.is_fixed(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return self._table.locate(path)

    async def _compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        part, inner = await self._locate_file(path)
        assert isinstance(part.backend, SupportsCompareAndSwap)  # noqa: S101 - checked before this member was set
        with part.errors(inner):
            await part.backend.compare_and_swap(inner, data, expected=expected)


def _directory(path: str) -> FileEntry:
    return FileEntry(name=path.rpartition('/')[2], path=path, is_dir=True, size=None)
