"""Checks out the files of a version into a directory, and records in the store which version the directory has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic_deep.store import Commit, NewAsset, Store, VersionFilter, VersionRecord, checkout_claim
from pydantic_deep.versions.errors import (
    NoFilesError,
    UnversionedBackendError,
    UnversionedChangesError,
    WorkspaceBusyError,
)
from pydantic_deep_backends import (
    BackendProtocol,
    MissingBlobError,
    ProtectedChange,
    ReadOnlyError,
    ScanLimitError,
    Tree,
)
from pydantic_deep_backends.tracking import Captured

from ._backend_descriptions import attach_backend, describe_backend, workspace_key
from ._checkout import CheckedOut, checkout
from ._directory_claim import DirectoryClaim, find_noted, make_missing
from ._protected_files import protected_changes, protected_states, warn_of_protected
from ._tree_store import TreeStore

_CHANGED_NOTHING = (UnversionedChangesError, UnversionedBackendError, MissingBlobError, ReadOnlyError, ScanLimitError)
"""Errors after which a checkout has left all files unchanged."""


async def checkout_version(
    trees: TreeStore, record: VersionRecord, backend: BackendProtocol | None, *, force: bool
) -> CheckedOut:
    """Replace the files of a directory with those of a version.

    Raises:
        NoFilesError: The version has no files, or the directory is unknown.
        WorkspaceBusyError: A run works in the directory.
        UnversionedChangesError: Files would be lost; nothing was changed.
    """
    if backend is None and record.backend is not None:
        backend = attach_backend(record.backend)
    if backend is None or record.tree is None:
        raise NoFilesError(record.id, has_files=record.tree is not None)
    store = trees.store
    described = describe_backend(backend)
    key = None if described is None else workspace_key(described)
    workspace = None if key is None else await store.workspace(key)
    current_id = None if workspace is None else workspace.version_id
    before = () if workspace is None else workspace.checkouts
    claim = DirectoryClaim(store=store, workspace=key or '', run_id=checkout_claim(record.id, *before), backend=backend)
    unchanged = current_id, workspace.run_id if workspace is not None and before else None
    state: tuple[str | None, str | None] = unchanged
    try:
        if key is not None and not await claim.take(current_id):
            raise WorkspaceBusyError(key)
        is_other = await claim.is_same_directory() is False
        present = None if is_other else await find_noted(store, current_id)
        await make_missing(backend)

        async def keep(captured: Captured) -> None:
            if trees.streams is not None:
                captured = await trees.streams.write(captured)
            await _store_edit(trees, present or record, captured)

        states = await protected_states(backend)
        current = None if present is None or present.tree is None else await trees.load(present.tree)
        target, known = await trees.load(record.tree), await _begun(trees, before)
        state = current_id, claim.run_id
        try:
            done = await checkout(
                backend,
                current=current,
                target=target,
                read_blob=trees.store.read_asset,
                known=known,
                is_known=lambda tree: _is_known(trees.store, record.conversation_id, tree),
                keep=keep if force else None,
                streams=trees.streams,
            )
        except _CHANGED_NOTHING:
            state = unchanged
            raise
        state = record.id, None
        await claim.note(record.id)
        changes = await protected_changes(states, backend, in_place=True)
        if before:  # add the changes of the interrupted checkout
            changes = (*changes, *await _written_before(backend, current, target, changes))
        warn_of_protected(changes, by=f'The checkout of version {record.id}')
        return done
    finally:
        await claim.release(*state)


async def _begun(trees: TreeStore, version_ids: Sequence[str]) -> list[Tree]:
    """Return the target trees of interrupted checkouts, whose files may partly be in the directory."""
    begun = [await find_noted(trees.store, id) for id in version_ids]
    return [await trees.load(version.tree) for version in begun if version is not None and version.tree is not None]


async def _written_before(
    backend: BackendProtocol, current: Tree | None, target: Tree, known: Sequence[ProtectedChange]
) -> list[ProtectedChange]:
    """Return the protected files that differ from the previous version, except those in `known`."""
    diff = (current or Tree()).diff(target)
    paths = set(await protected_states(backend) or ()).difference(change.path for change in known)
    kinds: tuple[tuple[Literal['added', 'changed'], Sequence[str]], ...] = (
        ('added', diff.added),
        ('changed', diff.changed),
    )
    return [ProtectedChange(path=path, change=kind) for kind, changed in kinds for path in changed if path in paths]


async def _is_known(store: Store, conversation_id: str, tree: Tree) -> bool:
    """Return whether a version of a conversation has exactly these files."""
    versions = await store.versions(VersionFilter(conversation_id=conversation_id), limit=1_000_000)
    return any(version.tree == tree.digest for version in versions)


async def _store_edit(trees: TreeStore, parent: VersionRecord, captured: Captured) -> None:
    """Store files that no version has as a version."""
    known = set[str]() if parent.tree is None else {digest for digest, _ in (await trees.load(parent.tree)).nodes()}
    edit = parent.child('edit', state='complete', output=None, pending=None, tree=captured.tree.digest)
    await trees.store.commit(
        Commit(
            assets=[NewAsset(digest=digest, data=data) for digest, data in captured.blobs.items()],
            nodes=dict(captured.tree.nodes(known)),
            versions=[edit],
        )
    )
