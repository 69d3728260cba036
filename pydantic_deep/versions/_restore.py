"""The files of a version are put into a directory, and the store told what the directory holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from pydantic_deep.store import Commit, NewAsset, VersionFilter, VersionRecord, WorkspaceRecord, new_id
from pydantic_deep_backends import BackendProtocol, Tree
from pydantic_deep_backends.tracking import Captured

from ._checkout import CheckedOut, checkout
from ._file_backends import attach_backend, describe_backend, workspace_key
from ._recording import now
from .errors import NoFilesError, WorkspaceBusyError

if TYPE_CHECKING:
    from ._workbench import Workbench

_CHECKOUT = 'checkout:'
"""What stands before the id of a version in the claim of a directory that is to get its files."""


async def checkout_version(
    agent: Workbench[Any, Any], record: VersionRecord, backend: BackendProtocol | None, *, force: bool
) -> CheckedOut:
    """Make the files of a directory those of a version.

    Raises:
        NoFilesError: The version has no files, or nobody knows where they go.
        WorkspaceBusyError: A run works in the directory.
        UnversionedChangesError: Something would be lost; nothing was changed.
    """
    if backend is None and record.backend is not None:
        backend = attach_backend(record.backend)
    if backend is None or record.tree is None:
        raise NoFilesError(record.id, has_files=record.tree is not None)
    store = agent.store
    described = describe_backend(backend)
    key = None if described is None else workspace_key(described)
    workspace = None if key is None else await store.workspace(key)
    held_id = None if workspace is None else workspace.version_id
    claim = f'{_CHECKOUT}{record.id}'
    if key is not None and not await store.claim_workspace(key, claim, held_id):
        raise WorkspaceBusyError(key)
    is_done = False
    try:
        held = await store.version(held_id) if held_id is not None else None

        async def keep(captured: Captured) -> None:
            await _keep(agent, held or record, captured)

        done = await checkout(
            backend,
            current=None if held is None or held.tree is None else await agent.tree(held.tree),
            target=await agent.tree(record.tree),
            read_blob=agent.read_asset,
            known=await _begun(agent, workspace),
            is_known=lambda tree: _is_known(agent, record.conversation_id, tree),
            keep=keep if force else None,
        )
        is_done = True
        return done
    finally:
        if key is not None:
            with anyio.CancelScope(shield=True):
                holds = record.id if is_done else held_id
                await store.commit(Commit(workspaces=[WorkspaceRecord(key, holds, None)]))


async def _begun(agent: Workbench[Any, Any], workspace: WorkspaceRecord | None) -> list[Tree]:
    """Return the files that a checkout was to put there when its process died: some of them may be there already."""
    claim = None if workspace is None else workspace.run_id
    if claim is None or not claim.startswith(_CHECKOUT):
        return []
    begun = await agent.store.version(claim.removeprefix(_CHECKOUT))
    return [] if begun.tree is None else [await agent.tree(begun.tree)]


async def _is_known(agent: Workbench[Any, Any], conversation_id: str, tree: Tree) -> bool:
    """Return whether some version of a conversation has exactly these files."""
    found = await agent.store.versions(VersionFilter(conversation_id=conversation_id), limit=1_000_000)
    return any(version.tree == tree.digest for version in found)


async def _keep(agent: Workbench[Any, Any], parent: VersionRecord, captured: Captured) -> None:
    """Make a version of files that are in none."""
    known = set[str]() if parent.tree is None else {digest for digest, _ in (await agent.tree(parent.tree)).nodes()}
    edit = parent._replace(
        id=new_id(),
        number=0,
        parent_id=parent.id,
        cloned_from=None,
        merged_from=None,
        kind='edit',
        state='complete',
        run_id=None,
        pending=None,
        output=None,
        tree=captured.tree.digest,
        created_at=now(),
    )
    await agent.store.commit(
        Commit(
            assets=[NewAsset(digest=digest, data=data) for digest, data in captured.blobs.items()],
            nodes=dict(captured.tree.nodes(known)),
            versions=[edit],
        )
    )
