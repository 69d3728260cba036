"""Versions that are made without a run: with an upload more or less, or with another name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from pydantic_deep.deps import UPLOADS, DeepAgentDeps, Upload
from pydantic_deep.store import Commit, HeadMove, VersionConflictError, VersionRecord
from pydantic_deep_backends import BackendProtocol

from ._session import Session
from .errors import ApprovalsPendingError, UnversionedBackendError
from .files._backend_descriptions import with_omitted
from .files._open_files import FilesRequest, OpenFiles, open_files
from .files._run_files import name_omitted
from .recording._deps_state import DepsState, load_deps


async def with_upload(
    session: Session[Any, Any],
    record: VersionRecord,
    backend: BackendProtocol | None,
    name: str,
    data: bytes,
    *,
    moves_head: bool,
) -> VersionRecord:
    """Store and return a child of a version that has an upload: in its directory as well, if that has its files."""
    return await _with(session, record, backend, lambda deps: deps.upload(name, data), moves_head=moves_head)


async def without_upload(
    session: Session[Any, Any], record: VersionRecord, backend: BackendProtocol | None, name: str, *, moves_head: bool
) -> VersionRecord:
    """Store and return a child of a version without one of its uploads, and without the file."""
    return await _with(session, record, backend, lambda deps: deps.remove_upload(name), moves_head=moves_head)


async def with_name(
    session: Session[Any, Any], record: VersionRecord, backend: BackendProtocol | None, name: str
) -> VersionRecord:
    """Store and return a child of a version with another name, and move the head to it."""
    if record.state == 'awaiting_approval':
        raise await _waiting(session, record)
    opened = await open_files(session.trees, FilesRequest(base=record, backend=backend))
    held = base = record if opened is None else opened.base
    try:
        child = base.child('edit', name=name)
        move = HeadMove(conversation_id=record.conversation_id, expected_id=record.id, version_id=child.id)
        try:
            await session.store.commit(Commit(versions=[child], heads=[move]))
        except VersionConflictError:  # all of the commit is true but the head
            held = child
            raise
        held = child
        return await session.store.version(child.id)
    finally:
        if opened is not None:
            with anyio.CancelScope(shield=True):
                await opened.release(held.id)
                await opened.aclose()


async def _waiting(session: Session[Any, Any], record: VersionRecord) -> ApprovalsPendingError:
    approvals = await session.store.approvals(status=None, version_id=record.id, limit=10_000)
    return ApprovalsPendingError(record.id, [each.pending_id for each in approvals])


async def _with(
    session: Session[Any, Any],
    record: VersionRecord,
    backend: BackendProtocol | None,
    change: Callable[[DeepAgentDeps], Awaitable[Upload | None]],
    *,
    moves_head: bool,
) -> VersionRecord:
    if record.state == 'awaiting_approval':
        raise await _waiting(session, record)
    opened = await open_files(session.trees, FilesRequest(base=record, backend=backend))
    if opened is None:
        raise UnversionedBackendError(
            f'The files of the version {record.id} are not versioned, so nothing can be added.'
        )
    try:
        return await _keep(session, record, opened, change, moves_head=moves_head)
    finally:
        with anyio.CancelScope(shield=True):
            await opened.aclose()


async def _keep(
    session: Session[Any, Any],
    record: VersionRecord,
    opened: OpenFiles,
    change: Callable[[DeepAgentDeps], Awaitable[Upload | None]],
    *,
    moves_head: bool,
) -> VersionRecord:
    base = opened.base
    held = base  # what the directory has, whatever fails
    store = session.store
    try:
        deps = await load_deps(store, base.deps, session.make_deps(), opened.backend)
        if not isinstance(deps, DeepAgentDeps):
            raise UnversionedBackendError(f'The deps of {session.name!r} are no `DeepAgentDeps`: they hold no uploads.')
        state = DepsState(digest=base.deps)
        await state.begin(deps)
        state.protected = opened.brought
        upload = await change(deps)
        assets = await state.dump(deps)
        new = await opened.files.capture()
        if upload is not None and not any(path in new.files for path in (upload.path, f'/{UPLOADS}/{upload.name}')):
            await opened.backend.remove(upload.path)
            raise UnversionedBackendError(
                f'The upload {upload.name!r} would be in no version: {name_omitted(new.omitted) or "a .gitignore names it"}. '
                'Choose another name.'
            )
        child = base.child('edit', tree=new.tree, backend=with_omitted(base.backend, new.omitted), deps=state.digest)
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
        if opened.claim is not None:
            await opened.claim.note(child.id)
        return await store.version(child.id)
    finally:
        await opened.release(held.id)
