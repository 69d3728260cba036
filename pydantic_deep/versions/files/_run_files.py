"""The files of one run: what its deps have as backend, and how their tree is taken after each step.

The seam between the recorder, which stores trees, and backends, which have files.

What a version has of them: all regular files but those that the `.gitignore` files of the directory name, `.git`, and
what is larger than `MAX_FILE_BYTES`, cannot be read, or has a path that no backend accepts (`Captured.omitted`). That
holds for every backend and also for a file that a tool of the run wrote: one that `.gitignore` names is there as long
as the files are, and in no version.
Links, special files, empty directories, and permissions but for the owner's right to execute are in no version either.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Protocol

from pydantic_deep.deps import MAX_FILE_BYTES
from pydantic_deep_backends import BackendProtocol, ReadBlob, Tree
from pydantic_deep_backends.paths import display_path
from pydantic_deep_backends.tracking import Captured, FileTracker, OmittedFile, SupportsTracking

from ._gitignore import GitRules
from ._scratch_directories import Scratch
from ._tree_views import View, open_view

__all__ = (
    'MAX_FILE_BYTES',
    'Captured',
    'OmittedFile',
    'RunFiles',
    'UnversionedFilesWarning',
    'open_run_files',
    'warn_of_omitted',
    'why_unversioned',
)


class RunFiles(Protocol):
    """The files of one run."""

    @property
    def backend(self) -> BackendProtocol:
        """What the deps of the run get."""
        ...

    @property
    def view(self) -> str | None:
        """The name of a view in a directory, by which a later one gets the same paths."""
        ...

    async def capture(self, before: Tree, *, is_full: bool = False) -> Captured:
        """Return the files now. `before` must be the tree of the capture before this one, or that of the beginning.

        Costs what was written since, unless a command ran or `is_full` asks to look at everything. With another
        `before` everything is looked at too, so nothing is lost by it.

        Args:
            before: The tree whose contents the caller has.
            is_full: Look also at what others than the run may have changed.

        Raises:
            BackendUnavailableError: The files are gone.
        """
        ...

    async def aclose(self) -> None:
        """Remove what was made for the run alone."""
        ...


async def open_run_files(
    backend: BackendProtocol,
    *,
    tree: Tree,
    read_blob: ReadBlob,
    in_place: bool,
    view: str | None = None,
    scratch: str | os.PathLike[str] | None = None,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> RunFiles | None:
    """Return the files that a run works on; `None` if the backend is one whose files cannot be versioned.

    `why_unversioned` says why then. The caller closes what is returned.

    In place the run gets the backend itself, and only what it touches is looked at, until a command runs. Otherwise it
    gets a view with the files of `tree`, and nothing that it does reaches the backend. A view of a directory without
    commands is in memory, and fetches contents when they are read; one with commands is a directory of its own, with
    the same settings; one of a composite has a view for each part. Its `ref` is that of no other backend, and is the
    same as long as it is open. A view has what versions have: nothing that `.gitignore` names.

    Args:
        backend: Whose files these are.
        tree: The files to begin with. In place the backend must have them already: what differs is seen by a
            capture that `is_full`.
        read_blob: Fetches contents of `tree`, as long as the files are open.
        in_place: Whether the run works on the backend itself.
        view: The name of an earlier view, which this one gets unless somebody has it now: paths stay what they were.
        scratch: Where directories for views are made; the directory of the system for temporary files if `None`.
        max_file_bytes: The largest file that versions have.

    Raises:
        MissingBlobError: Contents for a view in a directory are not to be had.
        OSError: A directory for a view cannot be made.
    """
    if not isinstance(backend, SupportsTracking):
        return None
    opened = View(backend=backend)
    if not in_place:
        opened = await open_view(backend, tree, read_blob, Scratch(scratch, view))
    if opened is None or not isinstance(opened.backend, SupportsTracking):
        return None
    tracker = opened.backend.track(GitRules(), max_file_bytes=max_file_bytes, tree=tree)
    return _RunFiles(opened, tracker)


def why_unversioned(backend: BackendProtocol) -> str | None:
    """Return why the files of a backend cannot be versioned, in a sentence; `None` if they can."""
    if isinstance(backend, SupportsTracking):
        return None
    return (
        f'The files of {type(backend).__name__} are not versioned: it is no `SupportsTracking`. '
        'Use LocalBackend, SandboxBackend, StateBackend, or a CompositeBackend of these.'
    )


def warn_of_omitted(omitted: Iterable[OmittedFile]) -> None:
    """Say which files no version has, if there are any: what nobody has named in a `.gitignore` was to be kept."""
    named = name_omitted([*omitted])
    if named:
        text = f'In no version: {named}. Name them in a .gitignore if that is right, else rename or split them.'
        warnings.warn(text, UnversionedFilesWarning, stacklevel=2)


def name_omitted(files: Sequence[OmittedFile]) -> str:
    """Return what names the files that no version has, each with the reason; empty for none."""
    named = ', '.join(f'{_shown(file)} ({file.reason})' for file in files[:10])
    return f'{named} and {len(files) - 10} more' if len(files) > 10 else named


def _shown(file: OmittedFile) -> str:
    return file.path if file.reason == 'invalid path' else display_path(file.path)


class UnversionedFilesWarning(UserWarning):
    """Files are in no version: a backend cannot tell what was written, or some are too large, unreadable or have a
    name that a version cannot have.
    """


class _RunFiles:
    def __init__(self, view: View, tracker: FileTracker) -> None:
        self._view = view
        self._tracker = tracker

    @property
    def backend(self) -> BackendProtocol:
        return self._view.backend

    @property
    def view(self) -> str | None:
        return None if self._view.scratch is None else self._view.scratch.name

    async def capture(self, before: Tree, *, is_full: bool = False) -> Captured:
        return await self._tracker.capture(before, is_full=is_full)

    async def aclose(self) -> None:
        self._tracker.close()
        await self._view.aclose()
