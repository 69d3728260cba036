"""Versions that are created without a run: with an added or removed upload, or with another name."""

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
    """Store and return a child with an additional upload, also written to the directory if that has the version's
    files.
    """
    return await _with(session, record, backend, lambda deps: deps.upload(name, data), moves_head=moves_head)


async def without_upload(
    session: Session[Any, Any], record: VersionRecord, backend: BackendProtocol | None, name: str, *, moves_head: bool
) -> VersionRecord:
    """Store and return a child without one of the uploads and its file."""
    return await _with(session, record, backend, lambda deps: deps.remove_upload(name), moves_head=moves_head)


async def with_name(
    session: Session[Any, Any], record: VersionRecord, backend: BackendProtocol | None, name: str
) -> VersionRecord:
    """Store a child with another name, move the head to it, and return it."""
    if record.state == 'awaiting_approval':
        raise await _pending_error(session, record)
    opened = await open_files(session.trees, FilesRequest(base=record, backend=backend))
    directory_version = base = record if opened is None else opened.base
    try:
        child = base.child('edit', name=name)
        move = HeadMove(conversation_id=record.conversation_id, expected_id=record.id, version_id=child.id)
        try:
            await session.store.commit(Commit(versions=[child], heads=[move]))
        except VersionConflictError:  # the commit succeeded, except for the head
            directory_version = child
            raise
        directory_version = child
        return await session.store.version(child.id)
    finally:
        if opened is not None:
            with anyio.CancelScope(shield=True):
                await opened.release(directory_version.id)
                await opened.aclose()


async def _pending_error(session: Session[Any, Any], record: VersionRecord) -> ApprovalsPendingError:
    approvals = await session.store.approvals(status=None, version_id=record.id, limit=10_000)
    return ApprovalsPendingError(record.id, [approval.pending_id for approval in approvals])


async def _with(
    session: Session[Any, Any],
    record: VersionRecord,
    backend: BackendProtocol | None,
    change: Callable[[DeepAgentDeps], Awaitable[Upload | None]],
    *,
    moves_head: bool,
) -> VersionRecord:
    if record.state == 'awaiting_approval':
        raise await _pending_error(session, record)
    opened = await open_files(session.trees, FilesRequest(base=record, backend=backend))
    if opened is None:
        raise UnversionedBackendError(
            f'The files of the version {record.id} are not versioned, so uploads cannot be changed.'
        )
    try:
        return await _store_change(session, record, opened, change, moves_head=moves_head)
    finally:
        with anyio.CancelScope(shield=True):
            await opened.aclose()


async def _store_change(
    session: Session[Any, Any],
    record: VersionRecord,
    opened: OpenFiles,
    change: Callable[[DeepAgentDeps], Awaitable[Upload | None]],
    *,
    moves_head: bool,
) -> VersionRecord:
    base = opened.base
    directory_version = base  # the version that the directory has, also if something fails
    store = session.store
    try:
        deps = await load_deps(store, base.deps, session.make_deps(), opened.backend)
        if not isinstance(deps, DeepAgentDeps):
            raise UnversionedBackendError(
                f'The deps of {session.name!r} are not `DeepAgentDeps`, so they cannot have uploads.'
            )
        state = DepsState(digest=base.deps)
        await state.begin(deps)
        state.protected = opened.brought
        upload = await change(deps)
        assets = await state.dump(deps)
        new = await opened.files.capture()
        if upload is not None and not any(path in new.files for path in (upload.path, f'/{UPLOADS}/{upload.name}')):
            await opened.backend.remove(upload.path)
            raise UnversionedBackendError(
                f'No version would have the upload {upload.name!r}: '
                f'{name_omitted(new.omitted) or "a .gitignore matches it"}. '
                'Choose another name.'
            )
        child = base.child('edit', tree=new.tree, backend=with_omitted(base.backend, new.omitted), deps=state.digest)
        move = HeadMove(conversation_id=record.conversation_id, expected_id=record.id, version_id=child.id)
        commit = Commit(
            assets=[*assets, *new.assets], nodes=new.nodes, versions=[child], heads=[move] if moves_head else []
        )
        try:
            await store.commit(commit)
        except VersionConflictError:  # the commit succeeded, except for the head
            directory_version = child
            raise
        directory_version = child
        if opened.claim is not None:
            await opened.claim.note(child.id)
        return await store.version(child.id)
    finally:
        await opened.release(directory_version.id)
