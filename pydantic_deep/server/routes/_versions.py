"""Routes of versions: look, compare, go back, merge, take the files away."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse
from pydantic import JsonValue

from pydantic_deep.server._state import ServerState, State
from pydantic_deep.server.access._ownership import authorize_conversation, authorize_version, version_in
from pydantic_deep.server.http._errors import ServerError, describe_errors, not_found
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.schemas._versions import (
    FileList,
    FileShape,
    HeadChange,
    Merge,
    VersionPage,
)
from pydantic_deep.store import Commit, HeadMove, VersionConflictError, VersionFilter
from pydantic_deep.versions import VISIBLE_KINDS, MergeConflictError, NoCommonVersionError
from pydantic_deep.views import Difference, Version, VersionDetails

from ._archive import archive, attachment
from ._parameters import Cursor, Limit, Runner

router = APIRouter(prefix='/api', tags=['versions'], route_class=JsonRoute)

FOREIGN_FILES = {
    'content-security-policy': "sandbox; default-src 'none'",
    'x-content-type-options': 'nosniff',
}
"""What a browser is told of files that models and users wrote: they are nothing to run."""


@router.get(
    '/conversations/{conversation}/versions',
    summary='List the versions of a conversation, newest first',
    responses=describe_errors('not_found'),
)
async def list_versions(
    conversation: str,
    state: State,
    caller: Runner,
    limit: Limit = 50,
    cursor: Cursor = None,
    steps: Annotated[bool, Query(description='Also those in the middle of turns.')] = False,
) -> VersionPage:
    """All branches: draw them by `parent_id` and `merged_from`."""
    own = await authorize_conversation(state, caller, conversation)
    found = await state.store.versions(
        VersionFilter(conversation_id=own.id, kinds=None if steps else VISIBLE_KINDS),
        limit=limit + 1,
        before=None if cursor is None else int(cursor),
    )
    page = found[:limit]
    return VersionPage(
        items=await state.views.versions(page),
        cursor=str(page[-1].number) if len(found) > limit else None,
    )


@router.get('/versions/{version}', summary='Get a version', responses=describe_errors('not_found'))
async def read_version(version: str, state: State, caller: Runner) -> VersionDetails:
    """With its turn up to there: calls, requests, files, subagents."""
    return await state.views.details((await authorize_version(state, caller, version)).record)


@router.get(
    '/versions/{version}/diff', summary='Compare a version with another', responses=describe_errors('not_found')
)
async def diff_versions(
    version: str,
    state: State,
    caller: Runner,
    to: Annotated[str | None, Query(description='The other; the parent to this if left out.', max_length=64)] = None,
) -> Difference:
    """Messages, files as diffs, todos, usage: from this version to the other, or from its parent to it."""
    this = await authorize_version(state, caller, version)
    if to is None and this.parent_id is None:
        raise ServerError('invalid', 'The version has no parent to compare it with. Say `?to=`.')
    before, after = this, this
    if to is None:
        before = await authorize_version(state, caller, this.parent_id or '')
    else:
        after = await authorize_version(state, caller, to)
    return await state.views.difference(before.record, after.record)


@router.get('/versions/{version}/files', summary='List the files of a version', responses=describe_errors('not_found'))
async def list_files(version: str, state: State, caller: Runner) -> FileList:
    """Without contents. Empty where the files of the conversation are not versioned."""
    tree = await (await authorize_version(state, caller, version)).file_tree()
    return FileList(
        items=[
            FileShape(path=path, size_bytes=file.size, digest=file.digest, is_executable=file.mode == 0o755)
            for path, file in sorted(tree.items())
        ]
    )


@router.get(
    '/versions/{version}/files/{path:path}',
    summary='Get a file of a version',
    response_class=Response,
    responses={
        200: {'content': {'application/octet-stream': {}}, 'description': 'Its contents.'},
        **describe_errors('not_found'),
    },
)
async def read_file(version: str, path: str, state: State, caller: Runner) -> Response:
    """The contents as they are, to be saved and not shown: a model may have written anything."""
    found = await authorize_version(state, caller, version)
    file = (await found.file_tree()).get(f'/{path}')
    if file is None:
        raise not_found()
    data = (await state.store.asset(file.digest)).data
    headers = {**FOREIGN_FILES, 'content-disposition': attachment(path.rpartition('/')[2]), 'etag': f'"{file.digest}"'}
    return Response(data, media_type='application/octet-stream', headers=headers)


@router.get(
    '/versions/{version}/archive',
    summary='Get all files of a version as an archive',
    response_class=StreamingResponse,
    responses={
        200: {'content': {'application/gzip': {}}, 'description': 'A tar.gz with one directory.'},
        **describe_errors('not_found'),
    },
)
async def read_archive(version: str, state: State, caller: Runner) -> StreamingResponse:
    """Streamed, one file at a time."""
    found = await authorize_version(state, caller, version)
    top = f'version-{found.id}'
    chunks = archive(state.store, await found.file_tree(), top=top, moment=int(found.created_at.timestamp()))
    headers = {**FOREIGN_FILES, 'content-disposition': attachment(f'{top}.tar.gz')}
    return StreamingResponse(chunks, media_type='application/gzip', headers=headers)


@router.post(
    '/conversations/{conversation}/head',
    summary='Move the head',
    responses=describe_errors('not_found', 'conflict'),
)
async def move_head(conversation: str, body: HeadChange, state: State, caller: Runner) -> Version:
    """The next turn goes on from there, with the messages, files and todos as they were. Nothing is lost."""
    own = await authorize_conversation(state, caller, conversation)
    version = await version_in(state, caller, own, body.version)
    expected = own.record.head_id if body.expected is None else body.expected
    if expected != version.id or own.record.head_id != version.id:
        await _move(state, own.id, expected, version.id)
    return await state.views.version(version.record)


@router.post(
    '/versions/{version}/merge',
    status_code=201,
    summary='Merge another version',
    responses=describe_errors('not_found', 'conflict'),
)
async def merge_versions(version: str, body: Merge, state: State, caller: Runner) -> Version:
    """What each changed since they parted. The dialogue stays that of this one. If it is the head, the head goes along.

    Where both changed the same nothing is made, and the error lists where.
    """
    ours = await authorize_version(state, caller, version)
    theirs = await authorize_version(state, caller, body.other)
    try:
        merged = await ours.merge(theirs)
    except NoCommonVersionError as error:
        raise ServerError('conflict', str(error)) from None
    except MergeConflictError as error:
        conflicts: list[JsonValue] = [{'path': each.path, 'kind': each.kind} for each in error.conflicts]
        raise ServerError('conflict', str(error), facts={'conflicts': conflicts}) from None
    conversation = await state.store.conversation(merged.conversation_id)
    if conversation is not None and conversation.head_id == ours.id:
        await _move(state, merged.conversation_id, ours.id, merged.id)
    return await state.views.version(merged.record)


async def _move(state: ServerState, conversation_id: str, expected: str | None, version_id: str) -> None:
    move = HeadMove(conversation_id=conversation_id, expected_id=expected, version_id=version_id)
    try:
        await state.store.commit(Commit(heads=[move]))
    except VersionConflictError as error:
        raise ServerError(
            'conflict', f'The head is at the version {error.head} by now. Look there first.', facts={'head': error.head}
        ) from None
