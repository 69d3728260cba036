"""The files of a version, opened for a run: in their directory if the run may work there, else in a view.

A directory that was edited since the version becomes a version of its own, and a directory that is another one now is
refused, or filled if it is empty.

Not here: what a run captures of its files (`_turn_files`), and checkouts (`_version_checkout`).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import anyio

from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import Commit, UnfinishedCheckoutError, VersionRecord, new_id
from pydantic_deep.versions.errors import UnversionedBackendError, UnversionedChangesError, WorkspaceReplacedError
from pydantic_deep_backends import BackendProtocol, ProtectedChange, ReadOnlyError, StateBackend, Tree
from pydantic_deep_backends.errors import BackendError

from ._backend_descriptions import (
    attach_backend,
    describe_backend,
    view_of,
    with_omitted,
    with_view,
    workspace_key,
)
from ._checkout import checkout, is_vacant
from ._directory_claim import DirectoryClaim, find_noted, make_missing
from ._protected_files import protected_changes, protected_states, warn_of_protected
from ._run_files import RunFiles, UnversionedFilesWarning, open_run_files, why_unversioned
from ._tree_store import TreeStore
from ._turn_files import TurnFiles

_LOGGER = logging.getLogger('pydantic_deep')


@dataclass(frozen=True, kw_only=True)
class CrashRemnants:
    """The newest files of a crashed run, as far as no version has them."""

    tree: str
    """The digest of their tree, after the last call that ended."""
    at: int
    """When that call ended, in microseconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class FilesRequest:
    """The files that a run asks for."""

    base: VersionRecord
    """The version that has them."""
    run_id: str = field(default_factory=new_id)
    """The run, for its claim of the directory."""
    backend: BackendProtocol | None = None
    """The directory, if the caller has it open; by default the version says where it is."""
    attempt_of: str | None = None
    """The crashed run that the run resumes."""
    left: CrashRemnants | None = None
    """The newer files that the crashed run left."""


@dataclass(frozen=True, kw_only=True)
class OpenFiles:
    """Open files of a version, to be closed by `aclose`."""

    files: TurnFiles
    claim: DirectoryClaim | None
    """The claim of the directory; `None` if they are a view."""
    base: VersionRecord
    """The version with the files as they are: the one asked for, or an edit of it."""
    protected: Mapping[str, str] | None = None
    """The states of protected files before those of the version were brought into the directory; `None` if they were
    there."""
    brought: tuple[ProtectedChange, ...] = ()
    """The protected files that bringing them has changed."""

    @property
    def backend(self) -> BackendProtocol:
        """The files themselves, or the view of them."""
        return self.files.files.backend

    async def aclose(self) -> None:
        """Close the files. The claim of the directory stays."""
        await self.files.files.aclose()

    async def release(self, version_id: str) -> None:
        """Release the directory, which has the files of a version now."""
        if self.claim is not None:
            await self.claim.let_go(version_id)

    async def undo(self, base: VersionRecord) -> None:
        """Return the directory to the version it was opened from, and delete the version of its edits."""
        await self.release(base.id)
        if self.claim is not None and self.base.id != base.id:
            await self.claim.store.delete(self.base.id)


async def open_files(trees: TreeStore, request: FilesRequest) -> OpenFiles | None:
    """Open the files of a version: in their directory if it holds them and nobody works in it, else in a view."""
    base = request.base
    if base.tree is None:
        return None
    backend = request.backend
    if backend is None and base.backend is not None:
        backend = attach_backend(base.backend)
    described = None if backend is None else describe_backend(backend)
    if described is None:
        return await _open_claimed(trees, request, backend, None)
    claim = DirectoryClaim(
        store=trees.store, workspace=workspace_key(described), run_id=request.run_id, backend=backend
    )
    try:
        held = await _take(claim, request)
        there = request if held is None else replace(request, base=held)
        return await _open_claimed(trees, there, backend, None if held is None else claim)
    except (WorkspaceReplacedError, ReadOnlyError) as error:
        await claim.let_go(base.id)
        if isinstance(error, WorkspaceReplacedError) and request.attempt_of is None:
            raise
        return await _open_claimed(trees, request, backend, None)  # what a crashed process did there is in the store
    except BaseException:
        await claim.let_go(base.id)
        raise


async def refuse_replaced(trees: TreeStore, base: VersionRecord, backend: BackendProtocol | None) -> None:
    """Refuse a version whose directory is another one now, with files of its own, before a run is made for a turn.

    The turn looks again when it has claimed the directory: this says what is true now.

    Args:
        trees: The files of the store.
        base: The version.
        backend: Its files, if the caller has them open.

    Raises:
        WorkspaceReplacedError: A turn from the version would be refused.
    """
    if backend is None and base.backend is not None:
        backend = attach_backend(base.backend)
    described = None if backend is None else describe_backend(backend)
    if backend is None or described is None or base.tree is None:
        return
    noted = await trees.store.workspace(workspace_key(described))
    if noted is None or (noted.version_id, noted.run_id) != (base.id, None):
        return  # the turn will work on a view
    claim = DirectoryClaim(store=trees.store, workspace=noted.backend, run_id='', backend=backend, noted=noted)
    if await claim.is_same_directory() is not False:
        return
    wanted = await trees.load(base.tree)
    # Where it cannot be looked at, the turn says so or works on a view; a missing directory will be made.
    with suppress(UnversionedBackendError, BackendError, OSError):
        try:
            await checkout(
                backend, current=None, target=wanted, known=[wanted], read_blob=trees.read_blob, only_looks=True
            )
        except UnversionedChangesError as error:
            raise WorkspaceReplacedError(claim.workspace, base.id, error.paths, can_be_kept=error.can_be_kept) from None


async def _take(claim: DirectoryClaim, request: FilesRequest) -> VersionRecord | None:
    """Claim a directory for a run, and return the version that it holds; `None` if the run is to work on a view."""
    try:
        if await claim.take(request.base.id):
            return request.base
        edit = await _abandoned_edit(claim, request.base)
        return edit if edit is not None and await claim.take(edit.id) else None
    except UnfinishedCheckoutError:
        if request.attempt_of is None:
            raise
        return None  # what a dead process did there is in the store, and is gone on with in a view


async def _abandoned_edit(claim: DirectoryClaim, base: VersionRecord) -> VersionRecord | None:
    """Return the edit of a version that a directory holds for a run which died before it began; `None` if it has none."""
    held = await claim.store.workspace(claim.workspace)
    if held is None or held.run_id is None or await claim.store.run(held.run_id) is not None:
        return None
    edit = await find_noted(claim.store, held.version_id)
    return edit if edit is not None and edit.kind == 'edit' and edit.parent_id == base.id else None


async def _open_claimed(
    trees: TreeStore, request: FilesRequest, backend: BackendProtocol | None, claim: DirectoryClaim | None
) -> OpenFiles:
    """Open files in the directory that was claimed, or a view of them where none was."""
    base, left = request.base, request.left
    in_place = claim is not None
    tree = await trees.load(base.tree if left is None or in_place else left.tree)

    is_same = claim is None or await claim.is_same_directory()
    if in_place:
        await make_missing(backend)
    files = await open_run_files(
        backend or StateBackend(), tree=tree, read_blob=trees.read_blob, in_place=in_place, view=view_of(base.backend)
    )
    if files is None:
        raise DeepAgentError(why_unversioned(backend or StateBackend()) or 'The files cannot be versioned.')
    base = base._replace(backend=with_view(_description(base, backend), files.view))
    turn_files = TurnFiles(
        files=files,
        tree=tree,
        at=0 if left is None else left.at,
        is_volatile=not in_place or isinstance(files.backend, StateBackend),
    )
    if claim is None:
        return OpenFiles(files=turn_files, claim=None, base=base)
    try:
        there = replace(request, base=base)
        protected, brought = None, ()
        if not is_same:
            protected, brought = await _settle(trees, there, turn_files, claim, is_other=is_same is False)
        return replace(await _take_edits(there, turn_files, claim), protected=protected, brought=brought)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await files.aclose()
        raise


async def _settle(
    trees: TreeStore, request: FilesRequest, files: TurnFiles, claim: DirectoryClaim, *, is_other: bool
) -> tuple[Mapping[str, str] | None, tuple[ProtectedChange, ...]]:
    """Bring the files of a version into a directory that may never have had them, unless it has files of its own.

    Returns the states of its protected files before, if any were brought, and what has changed of them.

    Args:
        trees: The files of the store.
        request: The turn, from the version that is noted of the directory.
        files: Those of the directory, with the tree of the version.
        claim: Of the directory.
        is_other: Whether it is another directory for certain. If not, its files are edits, unless it has none.

    Raises:
        WorkspaceReplacedError: It has files that the version does not have.
    """
    backend = files.files.backend
    here = (await files.files.capture(files.tree, is_full=True)).tree
    wanted = files.tree if request.left is None else await trees.load(request.left.tree)
    if not is_other and (here == wanted or not await is_vacant(backend, here, wanted, trees.read_blob)):
        return None, ()
    states = await protected_states(backend)
    if here not in (files.tree, wanted):
        try:
            await checkout(backend, current=None, target=wanted, known=[files.tree], read_blob=trees.read_blob)
        except UnversionedChangesError as error:
            raise WorkspaceReplacedError(
                claim.workspace, request.base.id, error.paths, can_be_kept=error.can_be_kept
            ) from None
        _LOGGER.info('The files of the version %s were brought into %s', request.base.id, claim.workspace)
    await claim.store.commit(Commit(workspaces=[await claim.note(request.base.id, claim.run_id)]))
    changes = await protected_changes(states, backend, in_place=True)
    warn_of_protected(changes, by=f'Bringing the files of the version {request.base.id} here')
    return states, changes


def _description(base: VersionRecord, backend: BackendProtocol | None) -> str | None:
    """Return what is kept of the backend of a turn: what it is now, where that has the files of the version's."""
    described = None if backend is None else describe_backend(backend)
    if described is None or base.backend is None or workspace_key(described) != workspace_key(base.backend):
        return base.backend
    return described


async def _take_edits(request: FilesRequest, files: TurnFiles, claim: DirectoryClaim) -> OpenFiles:
    """Make a version of what was edited in the directory since the version that it holds."""
    base, store = request.base, claim.store
    new = await files.capture(is_full=True)
    if new.tree != base.tree and request.attempt_of is None:
        edit = base.child(
            'edit',
            state='complete',
            output=None,
            pending=None,
            tree=new.tree,
            backend=with_omitted(base.backend, new.omitted),
        )
        holds = await claim.note(edit.id, claim.run_id)
        await store.commit(Commit(assets=new.assets, nodes=new.nodes, versions=[edit], workspaces=[holds]))
        base = edit
    elif new.tree != base.tree:
        await store.commit(Commit(assets=new.assets, nodes=new.nodes))
    files.stored(new)
    return OpenFiles(files=files, claim=claim, base=base)


async def open_files_of(backend: BackendProtocol, read_blob: Callable[[str], Awaitable[bytes]]) -> RunFiles | None:
    """Return the files of a backend as they are; `None`, with a warning, if they cannot be versioned."""
    reason = why_unversioned(backend)
    if reason is not None:
        warnings.warn(reason, UnversionedFilesWarning, stacklevel=4)
        return None
    return await open_run_files(backend, tree=Tree(), read_blob=read_blob, in_place=True)
