"""Opens the files of a version for a run: in their directory if the run may work there, otherwise in a view.

Edits of a directory since its version become a version of their own. A directory that was replaced by another one is
refused, or filled if it is empty.

Not here: captures of the files of a turn (`_turn_files`), and checkouts (`_version_checkout`).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import anyio

from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import Commit, UnfinishedCheckoutError, VersionRecord, new_id
from pydantic_deep.versions.errors import UnversionedBackendError, UnversionedChangesError, WorkspaceReplacedError
from pydantic_deep_backends import BackendProtocol, ProtectedChange, ReadOnlyError, StateBackend, Tree
from pydantic_deep_backends.errors import BackendError

from ._backend_descriptions import (
    attach_backend,
    describe_backend,
    unversioned_in,
    view_of,
    with_omitted,
    with_view,
    workspace_key,
)
from ._checkout import checkout, is_vacant
from ._directory_claim import DirectoryClaim, find_noted, make_missing
from ._protected_files import protected_changes, protected_states, warn_of_protected
from ._run_files import UnversionedFilesWarning, open_run_files, why_unversioned
from ._tree_store import TreeStore
from ._turn_files import TurnFiles

_LOGGER = logging.getLogger('pydantic_deep')


@dataclass(frozen=True, kw_only=True)
class CrashRemnants:
    """The newest files of a crashed run that no version has."""

    tree: str
    """The digest of their tree, after the last finished call."""
    at: int
    """The end of that call, in microseconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class FilesRequest:
    """A request to open the files of a version for a run."""

    base: VersionRecord
    """The version that has the files."""
    run_id: str = field(default_factory=new_id)
    """The id of the run, for its claim of the directory."""
    backend: BackendProtocol | None = None
    """The directory, if the caller has opened it; by default the one described in the version."""
    attempt_of: str | None = None
    """The crashed run that the run resumes."""
    remnants: CrashRemnants | None = None
    """The newer files that the crashed run left, if any."""


@dataclass(frozen=True, kw_only=True)
class OpenFiles:
    """The open files of a version, to be closed with `aclose`."""

    files: TurnFiles
    claim: DirectoryClaim | None
    """The claim of the directory; `None` for a view."""
    base: VersionRecord
    """The version with these files: the requested one, or an edit of it."""
    protected: Mapping[str, str] | None = None
    """The states of protected files before the files of the version were written into the directory; `None` if it had
    them.
    """
    brought: tuple[ProtectedChange, ...] = ()
    """The changes to protected files when the files of the version were written into the directory."""

    @property
    def backend(self) -> BackendProtocol:
        """The backend with the files, or the view of them."""
        return self.files.files.backend

    async def aclose(self) -> None:
        """Close the files without releasing the directory."""
        await self.files.files.aclose()

    async def release(self, version_id: str) -> None:
        """Release the directory, which now has the files of a version."""
        if self.claim is not None:
            await self.claim.release(version_id)

    async def undo(self, base: VersionRecord) -> None:
        """Return the directory to the version that it was opened from, and delete the version of its edits."""
        await self.release(base.id)
        if self.claim is not None and self.base.id != base.id:
            await self.claim.store.delete(self.base.id)


async def open_files(trees: TreeStore, request: FilesRequest) -> OpenFiles | None:
    """Open the files of a version: in their directory if that has them and no run works there, otherwise in a view."""
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
        claimed = await _take(claim, request)
        if claimed is None:
            _log_view(request, claim)
        request_in_place = request if claimed is None else replace(request, base=claimed)
        return await _open_claimed(trees, request_in_place, backend, None if claimed is None else claim)
    except (WorkspaceReplacedError, ReadOnlyError) as error:
        await claim.release(base.id)
        if isinstance(error, WorkspaceReplacedError) and request.attempt_of is None:
            raise
        _log_view(request, claim)
        return await _open_claimed(trees, request, backend, None)  # the store has the work of the crashed process
    except BaseException:
        await claim.release(base.id)
        raise


def refuse_without_files(base: VersionRecord, deps: object, *, is_new: bool) -> None:
    """Raise if a turn would work on a new backend in memory instead of the one that has the files of its conversation.

    Args:
        base: The version to start from.
        deps: The deps of the turn.
        is_new: Whether the deps were created without any arguments.

    Raises:
        UnversionedBackendError: The files are not versioned, and the backend that has them was not passed.
    """
    name = unversioned_in(base.backend)
    if name is None or not isinstance(deps, DeepAgentDeps) or not isinstance(deps.backend, StateBackend):
        return
    if is_new or name != StateBackend.__name__:
        raise UnversionedBackendError(
            f'The files of the conversation {base.conversation_id} are not versioned: only its {name} has them. Pass '
            'that as `backend=` of `load` or `conversation`, or in the deps.'
        )


async def refuse_replaced(trees: TreeStore, base: VersionRecord, backend: BackendProtocol | None) -> None:
    """Raise if the directory of a version was replaced by another one with files of its own, before a turn creates a
    run.

    The turn checks again after claiming the directory.

    Args:
        trees: The files of the store.
        base: The version to start from.
        backend: Its files, if the caller has opened them.

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
    target = await trees.load(base.tree)
    # If it cannot be inspected, the turn raises or works on a view. The turn creates a missing directory.
    with suppress(UnversionedBackendError, BackendError, OSError):
        try:
            await checkout(
                backend,
                current=None,
                target=target,
                known=[target],
                read_blob=trees.store.read_asset,
                streams=trees.streams,
                is_dry_run=True,
            )
        except UnversionedChangesError as error:
            raise WorkspaceReplacedError(
                claim.workspace, base.id, error.paths, can_be_stored=error.can_be_stored
            ) from None


async def _take(claim: DirectoryClaim, request: FilesRequest) -> VersionRecord | None:
    """Claim a directory for a run, and return the version that it has; `None` if the run must work on a view."""
    try:
        if await claim.take(request.base.id):
            return request.base
        edit = await _abandoned_edit(claim, request.base)
        return edit if edit is not None and await claim.take(edit.id) else None
    except UnfinishedCheckoutError:
        if request.attempt_of is None:
            raise
        return None  # the store has the work of the crashed process, which is resumed in a view


def _log_view(request: FilesRequest, claim: DirectoryClaim) -> None:
    """Report that the rest of a crashed run does not change the directory that people look at."""
    if request.attempt_of is not None:
        _LOGGER.warning(
            'The run %s continues on a view of the files of version %s: %s does not have them, or another run works '
            'there. The version that the turn ends with has its files.',
            *(request.attempt_of, request.base.id, claim.workspace),
        )


async def _abandoned_edit(claim: DirectoryClaim, base: VersionRecord) -> VersionRecord | None:
    """Return the edit that the directory has from a run that crashed before it began; `None` if there is none."""
    workspace = await claim.store.workspace(claim.workspace)
    if workspace is None or workspace.run_id is None or await claim.store.run(workspace.run_id) is not None:
        return None
    edit = await find_noted(claim.store, workspace.version_id)
    return edit if edit is not None and edit.kind == 'edit' and edit.parent_id == base.id else None


async def _open_claimed(
    trees: TreeStore, request: FilesRequest, backend: BackendProtocol | None, claim: DirectoryClaim | None
) -> OpenFiles:
    """Open files in the claimed directory, or in a view without a claim."""
    base, remnants = request.base, request.remnants
    in_place = claim is not None
    newest = base.tree if remnants is None else remnants.tree
    tree = await trees.load(base.tree if in_place else newest)

    is_same = claim is None or await claim.is_same_directory()
    if in_place:
        await make_missing(backend)
    files = await open_run_files(
        backend or StateBackend(),
        tree=tree,
        read_blob=trees.store.read_asset,
        in_place=in_place,
        view=view_of(base.backend),
        streams=trees.streams,
    )
    if files is None:
        raise DeepAgentError(why_unversioned(backend or StateBackend()) or 'The files cannot be versioned.')
    base = base._replace(backend=with_view(_description(base, backend), files.view))
    turn_files = TurnFiles(
        files=files,
        tree=tree,
        crashed=await trees.load(newest) if in_place and request.attempt_of is not None else None,
        streams=trees.streams,
        at=0 if remnants is None else remnants.at,
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
    """Write the files of a version into a directory that may never have had them, unless it has files of its own.

    Returns the previous states of its protected files, if any files were written, and the changes to protected files.

    Args:
        trees: The files of the store.
        request: The request for the version that is recorded for the directory.
        files: The files of the directory, with the tree of the version.
        claim: The claim of the directory.
        is_other: Whether the directory is known to be another one. If not, its files are edits, unless it has none.

    Raises:
        WorkspaceReplacedError: The directory has files that the version does not have.
    """
    backend = files.files.backend
    here = (await files.files.capture(files.tree, is_full=True)).tree
    target = files.tree if request.remnants is None else await trees.load(request.remnants.tree)
    if not is_other and (here == target or not await is_vacant(backend, here, target, trees.store.read_asset)):
        return None, ()
    states = await protected_states(backend)
    if here not in (files.tree, target):
        try:
            await checkout(
                backend,
                current=None,
                target=target,
                known=[files.tree],
                read_blob=trees.store.read_asset,
                streams=trees.streams,
            )
        except UnversionedChangesError as error:
            raise WorkspaceReplacedError(
                claim.workspace, request.base.id, error.paths, can_be_stored=error.can_be_stored
            ) from None
        _LOGGER.info('The files of the version %s were written into %s', request.base.id, claim.workspace)
    await claim.store.commit(Commit(workspaces=[await claim.note(request.base.id, claim.run_id)]))
    changes = await protected_changes(states, backend, in_place=True)
    warn_of_protected(changes, by=f'Bringing the files of the version {request.base.id} here')
    return states, changes


def _description(base: VersionRecord, backend: BackendProtocol | None) -> str | None:
    """Return the description of a turn's backend: a new one if the backend has the directory of the version, else the
    version's.
    """
    described = None if backend is None else describe_backend(backend)
    if described is None or base.backend is None or workspace_key(described) != workspace_key(base.backend):
        return base.backend
    return described


async def _take_edits(request: FilesRequest, files: TurnFiles, claim: DirectoryClaim) -> OpenFiles:
    """Store edits of the directory since its version as a version."""
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
        workspace = await claim.note(edit.id, claim.run_id)
        await store.commit(Commit(assets=new.assets, nodes=new.nodes, versions=[edit], workspaces=[workspace]))
        base = edit
    elif new.tree != base.tree:
        await store.commit(Commit(assets=new.assets, nodes=new.nodes))
    files.stored(new)
    return OpenFiles(files=files, claim=claim, base=base)


async def open_files_of(backend: BackendProtocol, trees: TreeStore) -> TurnFiles | None:
    """Open the files of a backend as they are; `None`, with a warning, if they cannot be versioned."""
    reason = why_unversioned(backend)
    if reason is not None:
        warnings.warn(reason, UnversionedFilesWarning, stacklevel=4)
        return None
    files = await open_run_files(
        backend, tree=Tree(), read_blob=trees.store.read_asset, in_place=True, streams=trees.streams
    )
    return None if files is None else TurnFiles(files=files, tree=Tree(), streams=trees.streams)
