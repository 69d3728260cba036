"""Versions that are created without a run: with an added or removed upload, or with another name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
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
    change = partial(_change_uploads, session, record, lambda deps: deps.upload(name, data), moves_head=moves_head)
    return await _edit(session, record, backend, change)


async def without_upload(
    session: Session[Any, Any], record: VersionRecord, backend: BackendProtocol | None, name: str, *, moves_head: bool
) -> VersionRecord:
    """Store and return a child without one of the uploads and its file."""
    change = partial(_change_uploads, session, record, lambda deps: deps.remove_upload(name), moves_head=moves_head)
    return await _edit(session, record, backend, change)


async def with_name(
    session: Session[Any, Any], record: VersionRecord, backend: BackendProtocol | None, name: str
) -> VersionRecord:
    """Store a child with another name, move the head to it, and return it."""

    async def rename(opened: OpenFiles | None) -> Commit:
        child = (record if opened is None else opened.base).child('edit', name=name)
        return Commit(versions=[child], heads=[_head_move(record, child)])

    return await _edit(session, record, backend, rename)


def _head_move(record: VersionRecord, child: VersionRecord) -> HeadMove:
    return HeadMove(conversation_id=record.conversation_id, expected_id=record.id, version_id=child.id)


async def _edit(
    session: Session[Any, Any],
    record: VersionRecord,
    backend: BackendProtocol | None,
    change: Callable[[OpenFiles | None], Awaitable[Commit]],
) -> VersionRecord:
    """Store and return a child of a version.

    `change` makes the commit with the child, from the files of the version if they are versioned.
    """
    store = session.store
    if record.state == 'awaiting_approval':
        approvals = await store.approvals(status=None, version_id=record.id, limit=10_000)
        raise ApprovalsPendingError(record.id, [approval.pending_id for approval in approvals])
    opened = await open_files(session.trees, FilesRequest(base=record, backend=backend))
    directory_version = record if opened is None else opened.base  # also if something fails
    try:
        commit = await change(opened)
        (child,) = commit.versions
        try:
            await store.commit(commit)
        except VersionConflictError:  # the commit succeeded, except for the head
            directory_version = child
            raise
        directory_version = child
        if opened is not None and opened.claim is not None and commit.nodes is not None:
            await opened.claim.note(child.id)
        return await store.version(child.id)
    finally:
        if opened is not None:
            with anyio.CancelScope(shield=True):
                try:
                    await opened.release(directory_version.id)
                finally:
                    await opened.aclose()


async def _change_uploads(
    session: Session[Any, Any],
    record: VersionRecord,
    change: Callable[[DeepAgentDeps], Awaitable[Upload | None]],
    opened: OpenFiles | None,
    *,
    moves_head: bool,
) -> Commit:
    if opened is None:
        raise UnversionedBackendError(
            f'The files of the version {record.id} are not versioned, so uploads cannot be changed.'
        )
    base = opened.base
    deps = await load_deps(session.store, base.deps, session.make_deps(), opened.backend)
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
    heads = [_head_move(record, child)] if moves_head else []
    return Commit(assets=[*assets, *new.assets], nodes=new.nodes, versions=[child], heads=heads)
