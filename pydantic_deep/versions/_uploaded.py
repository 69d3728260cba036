"""A version with one more file among its uploads, without a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.store import Commit, HeadMove, VersionConflictError, VersionRecord, new_id
from pydantic_deep_backends import BackendProtocol

from ._deps_state import DepsState, load_deps
from ._recording import now
from ._turn import OpenFiles, TurnRequest, open_files
from .errors import ApprovalsPendingError, UnversionedBackendError

if TYPE_CHECKING:
    from ._workbench import Workbench


async def with_upload(
    agent: Workbench[Any, Any],
    record: VersionRecord,
    backend: BackendProtocol | None,
    name: str,
    data: bytes,
    *,
    moves_head: bool,
) -> VersionRecord:
    """Store and return a child of a version that has an upload: in its directory as well, if that has its files."""
    if record.state == 'awaiting_approval':
        approvals = await agent.store.approvals(status=None, version_id=record.id, limit=10_000)
        raise ApprovalsPendingError(record.id, [each.pending_id for each in approvals])
    opened = await open_files(agent, TurnRequest(base=record, backend=backend))
    if opened is None:
        raise UnversionedBackendError(
            f'The files of the version {record.id} are not versioned, so nothing can be added.'
        )
    try:
        return await _keep(agent, record, opened, name, data, moves_head=moves_head)
    finally:
        with anyio.CancelScope(shield=True):
            await opened.files.files.aclose()


async def _keep(
    agent: Workbench[Any, Any], record: VersionRecord, opened: OpenFiles, name: str, data: bytes, *, moves_head: bool
) -> VersionRecord:
    base = opened.base
    held = base  # what the directory has, whatever fails
    store = agent.store
    try:
        deps = await load_deps(store, base.deps, agent.make_deps(), opened.files.files.backend)
        if not isinstance(deps, DeepAgentDeps):
            raise UnversionedBackendError(f'The deps of {agent.name!r} are no `DeepAgentDeps`: they hold no uploads.')
        state = DepsState(digest=base.deps)
        await state.begin(deps)
        await deps.upload(name, data)
        assets = await state.dump(deps)
        new = await opened.files.capture()
        child = base._replace(
            id=new_id(), number=0, parent_id=base.id, cloned_from=None, merged_from=None, kind='edit', run_id=None,
            tree=new.tree, deps=state.digest, created_at=now(),
        )  # fmt: skip
        move = HeadMove(conversation_id=record.conversation_id, expected_id=record.id, version_id=child.id)
        commit = Commit(
            assets=[*assets, *new.assets], nodes=new.nodes, versions=[child], heads=[move] if moves_head else []
        )
        try:
            await store.commit(commit)
        except VersionConflictError:  # all of the commit is true but the head
            held = child
            raise
        held = child
        return await store.version(child.id)
    finally:
        if opened.claim is not None:
            await opened.claim.let_go(held.id)
