"""The files of one run: the backend for its deps, and captures of its file tree after each step.

This connects the recorder, which stores trees, with backends, which have files.

A version contains all regular files except `.git`, files that the `.gitignore` files of the directory match, and files
that are larger than `MAX_FILE_BYTES` (or, if the store has streams, than those allow), cannot be read, or have a path that no backend accepts (`Captured.omitted`). This
applies to every backend, and also to files that a tool of the run wrote: an ignored file exists as long as the
backend's files, but in no version.
Versions also omit links, special files, empty directories, and permissions other than the owner's right to execute.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic_deep.deps import MAX_FILE_BYTES
from pydantic_deep_backends import BackendProtocol, ReadBlob, Tree
from pydantic_deep_backends.paths import display_path
from pydantic_deep_backends.tracking import Captured, FileTracker, OmittedFile, SupportsTracking

from ._asset_streams import AssetStreams
from ._gitignore import GitignoreRules
from ._scratch_directories import Scratch
from ._tree_views import View, open_view


@dataclass(frozen=True, kw_only=True, eq=False)
class RunFiles:
    """The files of one run."""

    _view: View
    _tracker: FileTracker

    @property
    def backend(self) -> BackendProtocol:
        """The backend for the deps of the run."""
        return self._view.backend

    @property
    def view(self) -> str | None:
        """The name of a view in a directory, with which a later view gets the same paths."""
        return None if self._view.scratch is None else self._view.scratch.name

    async def capture(self, before: Tree, *, is_full: bool = False) -> Captured:
        """Return the present files. `before` must be the tree of the previous capture, or the initial tree.

        The cost is proportional to the files written since, unless a command ran or `is_full` is set. With any other
        `before`, all files are inspected too.

        Args:
            before: The tree whose contents the caller has.
            is_full: Whether to inspect all files, including those that others than the run may have changed.

        Raises:
            BackendUnavailableError: The files are gone.
        """
        return await self._tracker.capture(before, is_full=is_full)

    async def aclose(self) -> None:
        """Remove everything that was created for the run alone."""
        self._tracker.close()
        await self._view.aclose()


async def open_run_files(
    backend: BackendProtocol,
    *,
    tree: Tree,
    read_blob: ReadBlob,
    in_place: bool,
    view: str | None = None,
    scratch: str | os.PathLike[str] | None = None,
    max_file_bytes: int = MAX_FILE_BYTES,
    streams: AssetStreams | None = None,
) -> RunFiles | None:
    """Open files for a run; `None` if the files of the backend cannot be versioned, for the reason in
    `why_unversioned`.

    The caller closes the result.

    In place, the run gets the backend itself, and until a command runs, captures inspect only the files that the run
    wrote. Otherwise it gets a view with the files of `tree`, and its changes do not reach the backend. A view of a
    directory without commands is in memory, and fetches contents when they are read. One with commands is a directory
    of its own, with the same settings. One of a composite has a view for each part, and one of a
    `WrapperBackend` is a copy of the wrapper around a view of its backend. The `ref` of a view is unique and
    constant while it is open. A view has only versioned files, not ignored ones.

    Args:
        backend: The backend with the files.
        tree: The initial files. In place, the backend must already have them; a full capture finds differences.
        read_blob: Fetches contents of `tree` while the files are open.
        in_place: Whether the run works on the backend itself.
        view: The name of an earlier view. If it is free, the new view gets it, so that paths stay valid.
        scratch: The parent directory for views; by default that for temporary files of the system.
        max_file_bytes: The largest file that versions contain.
        streams: The streams of the store, which allow larger files.

    Raises:
        MissingBlobError: Contents for a view in a directory are not available.
        OSError: A directory for a view cannot be created.
    """
    if not isinstance(backend, SupportsTracking):
        return None
    opened = View(backend=backend)
    if not in_place:
        opened = await open_view(backend, tree, read_blob, Scratch(scratch, view), streams)
    if opened is None or not isinstance(opened.backend, SupportsTracking):
        return None
    limit = max_file_bytes if streams is None else streams.max_file_bytes
    tracker = opened.backend.track(GitignoreRules(), max_file_bytes=limit, tree=tree)
    return RunFiles(_view=opened, _tracker=tracker)


def why_unversioned(backend: BackendProtocol) -> str | None:
    """Return the reason why the files of a backend cannot be versioned, as a sentence; `None` if they can."""
    if isinstance(backend, SupportsTracking):
        return None
    return (
        f'The files of {type(backend).__name__} are not versioned: it does not implement `SupportsTracking`. '
        'Use LocalBackend, SandboxBackend, StateBackend, or a CompositeBackend of these.'
    )


def warn_of_omitted(omitted: Iterable[OmittedFile]) -> None:
    """Warn of files that no version has, if there are any: files that are not ignored should be versioned."""
    named = name_omitted([*omitted])
    if named:
        text = f'In no version: {named}. Name them in a .gitignore if that is right, else rename or split them.'
        warnings.warn(text, UnversionedFilesWarning, stacklevel=2)


def name_omitted(files: Sequence[OmittedFile]) -> str:
    """Return a list of omitted files, each with the reason; empty for none."""
    named = ', '.join(f'{_shown(file)} ({file.reason})' for file in files[:10])
    return f'{named} and {len(files) - 10} more' if len(files) > 10 else named


def _shown(file: OmittedFile) -> str:
    return file.path if file.reason == 'invalid path' else display_path(file.path)


class UnversionedFilesWarning(UserWarning):
    """Files are in no version: the backend cannot track changes, or files are too large, unreadable or have an invalid
    path.
    """
