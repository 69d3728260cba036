"""`ConversationDirectories`: a directory for each conversation, filled before its turns and removed when idle."""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import anyio.to_thread

from pydantic_deep.deps import MAX_FILE_BYTES
from pydantic_deep.store import Store, VersionRecord, new_id
from pydantic_deep.versions.errors import UnversionedChangesError, WorkspaceBusyError
from pydantic_deep_backends import BackendProtocol, LocalBackend
from pydantic_deep_backends.tracking import SupportsTracking

from ._backend_descriptions import describe_backend, workspace_key
from ._directory_claim import DirectoryClaim, find_noted
from ._gitignore import GitignoreRules
from ._tree_store import TreeStore
from ._version_checkout import checkout_version

_LOGGER = logging.getLogger('pydantic_deep')

_ID = re.compile(r'[a-z0-9][a-z0-9_-]{0,127}')
"""Ids that name a directory on every file system, without one that hides or leaves its parent."""

_REMOVED = '.removed-'
"""The beginning of the names of directories that are being removed."""


@runtime_checkable
class SupportsFilling(Protocol):
    """A function that opens the files of a conversation, and can also bring them to a version before a turn."""

    async def fill(self, store: Store, base: VersionRecord) -> Sequence[str]:
        """Give a conversation the files of a version, unless it has them, and return the paths of the written ones."""
        ...

    async def clean_up(self, store: Store) -> Sequence[str]:
        """Remove the files of idle conversations that the store has, and return the ids of the conversations."""
        ...


class ConversationDirectories:
    """The directory of each conversation on this machine, `<root>/<conversation id>`, on any machine.

    A worker or a server fills the directory before a turn: it writes the files that differ from those of the base, and removes
    those that the base does not have. The store records which version a directory has. Edits that no version has become
    a version before they are replaced. If they cannot, or a run works in the directory, the turn works on a view.

    Idle directories are removed if a version has all of their files, so one with ignored files, links or edits stays.

    Any number of workers on a machine may have the same root, and machines may have different directories at the same
    path.

    Args:
        root: The parent of the directories, created when needed.
        make: Returns the backend of a directory, such as `SandboxBackend` for agents that run commands.
        idle_seconds: How long a directory is not used by this process before `clean_up` may remove it.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        make: Callable[[Path], BackendProtocol] = LocalBackend,
        idle_seconds: float = 3600,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = Path(root).absolute()
        self._make = make
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._used: dict[str, float] = {}

    def __repr__(self) -> str:
        return f'ConversationDirectories({str(self._root)!r})'

    def __call__(self, account: str, conversation_id: str) -> BackendProtocol:
        """Return the backend of the directory of a conversation, which need not exist yet.

        Args:
            account: Not used: ids of conversations are unique in a store.
            conversation_id: The id of the conversation, of lower-case letters, digits, `-` and `_`.

        Raises:
            ValueError: The id cannot name a directory.
        """
        if _ID.fullmatch(conversation_id) is None:
            raise ValueError(f'The conversation id {conversation_id!r} cannot name a directory.')
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._used[conversation_id] = self._clock()
        return self._make(self._root / conversation_id)

    async def fill(self, store: Store, base: VersionRecord) -> tuple[str, ...]:
        """Give the directory of a conversation the files of a version, and return the paths of the written ones.

        A directory that has the files of the version is not inspected: the turn stores its edits. After a crash, the
        next call completes the directory.

        Raises:
            OSError: A file could not be written.
        """
        backend = self('', base.conversation_id)
        description = describe_backend(backend)
        if base.tree is None or description is None:
            return ()
        noted = await store.workspace(workspace_key(description))
        claim = DirectoryClaim(store=store, workspace='', run_id='', backend=backend, noted=noted)
        is_noted = noted is not None and (noted.version_id, noted.run_id) == (base.id, None)
        if is_noted and await claim.is_same_directory():
            return ()
        try:
            done = await checkout_version(TreeStore(store), base, backend, force=True)
        except (UnversionedChangesError, WorkspaceBusyError) as error:
            _LOGGER.warning('The directory of the conversation %s is not filled: %s', base.conversation_id, error)
            return ()
        return done.written

    async def clean_up(self, store: Store) -> tuple[str, ...]:
        """Remove idle directories whose files a version has, and return the ids of their conversations.

        A directory in which a run works, or has crashed, stays. One that stays is inspected again after `idle_seconds`.
        """
        now = self._clock()
        names = await anyio.to_thread.run_sync(self._find)
        self._used = {name: self._used.get(name, now) for name in names}
        removed: list[str] = []
        for name in [name for name in names if now - self._used[name] >= self._idle_seconds]:
            self._used[name] = now
            if await self._remove(store, name):
                removed.append(name)
        return tuple(removed)

    def _find(self) -> list[str]:
        """Return the names of the directories, after removing the rest of those whose removal was interrupted."""
        entries = [*self._root.iterdir()] if self._root.is_dir() else []
        for entry in entries:
            if entry.name.startswith(_REMOVED):
                shutil.rmtree(entry, ignore_errors=True)
        return sorted(entry.name for entry in entries if _ID.fullmatch(entry.name) and entry.is_dir())

    async def _remove(self, store: Store, name: str) -> bool:
        """Remove a directory if a version has all of its files, and return whether it was removed."""
        path = self._root / name
        backend = self._make(path)
        description = describe_backend(backend)
        noted = None if description is None else await store.workspace(workspace_key(description))
        if noted is None or noted.version_id is None or noted.run_id is not None:
            return False
        claim = DirectoryClaim(store=store, workspace=noted.backend, run_id=new_id(), backend=backend)
        if not await claim.take(noted.version_id):
            return False
        try:
            is_stored = await _is_stored(store, claim, path)
            if is_stored:
                await anyio.to_thread.run_sync(_remove_directory, path)
        finally:
            await claim.release(noted.version_id)
        return is_stored


async def _is_stored(store: Store, claim: DirectoryClaim, path: Path) -> bool:
    """Return whether a claimed directory has the files of its version, and no others."""
    version = await find_noted(store, None if claim.noted is None else claim.noted.version_id)
    backend = claim.backend
    if version is None or not isinstance(backend, SupportsTracking) or not await claim.is_same_directory():
        return False
    trees = TreeStore(store)
    tree = await trees.load(version.tree)
    limit = MAX_FILE_BYTES if trees.streams is None else trees.streams.max_file_bytes
    tracker = backend.track(GitignoreRules(), max_file_bytes=limit)
    try:
        captured = await tracker.capture(tree, is_full=True)
    finally:
        tracker.close()
    return captured.tree == tree and await anyio.to_thread.run_sync(_list_files, path) == set(tree)


def _list_files(path: Path) -> set[str]:
    """Return the virtual paths of all entries of a directory that are not directories."""
    found: set[str] = set()
    for top, folders, names in os.walk(path):
        links = [name for name in folders if Path(top, name).is_symlink()]
        found.update(f'/{Path(top, name).relative_to(path).as_posix()}' for name in (*names, *links))
    return found


def _remove_directory(path: Path) -> None:
    """Remove a directory at once, so that no crash leaves a part of it at its path."""
    away = path.with_name(f'{_REMOVED}{new_id()}')
    path.rename(away)
    shutil.rmtree(away, ignore_errors=True)
