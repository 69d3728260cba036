"""Routes of versions: read, compare, restore and merge them, and download their files."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse
from pydantic import JsonValue

from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import ServerError, describe_errors, not_found
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.schemas._versions import FileList, HeadChange, Merge, VersionPage
from pydantic_deep.store import Commit, HeadMove, VersionConflictError, VersionFilter
from pydantic_deep.versions import VISIBLE_KINDS, InvalidMergeChoiceError, MergeConflictError, NoCommonVersionError
from pydantic_deep.views import Difference, Version, VersionDetails, VersionFile
from pydantic_deep_backends import FileVersion
from pydantic_deep_backends.tracking import STREAMED_BYTES

from ._archive import Download, archive, attachment, begun
from ._parameters import Cursor, Limit, Runner

router = APIRouter(prefix='/api', tags=['versions'], route_class=JsonRoute)

FOREIGN_FILES = {
    'content-security-policy': "sandbox; default-src 'none'",
    'x-content-type-options': 'nosniff',
}
"""Security headers for files that models and users wrote: browsers must not execute them."""


@router.get(
    '/conversations/{conversation}/versions',
    summary='List the versions of a conversation, newest first',
    responses=describe_errors('not_found'),
)
async def list_versions(
    conversation: str,
    access: Runner,
    limit: Limit = 50,
    cursor: Cursor = None,
    steps: Annotated[bool, Query(description='Include versions within turns.')] = False,
) -> VersionPage:
    """Returns versions of all branches. `parent_id` and `merged_from` connect them into a graph."""
    own = await access.conversation(conversation)
    versions = await access.state.store.versions(
        VersionFilter(conversation_id=own.id, kinds=None if steps else VISIBLE_KINDS),
        limit=limit + 1,
        before=None if cursor is None else int(cursor),
    )
    page = versions[:limit]
    return VersionPage(
        items=await access.state.views.versions(page),
        cursor=str(page[-1].number) if len(versions) > limit else None,
    )


@router.get('/versions/{version}', summary='Get a version', responses=describe_errors('not_found'))
async def read_version(version: str, access: Runner) -> VersionDetails:
    """Returns the version with its turn so far: calls, requests, files, subagents."""
    return await access.state.views.details((await access.version(version)).record)


@router.get(
    '/versions/{version}/diff', summary='Compare a version with another', responses=describe_errors('not_found')
)
async def diff_versions(
    version: str,
    access: Runner,
    to: Annotated[
        str | None,
        Query(description='The version to compare with. If omitted, the parent is compared with this.', max_length=64),
    ] = None,
) -> Difference:
    """Compares messages, files, todos and usage: from this version to the other, or from the parent to this version."""
    this = await access.version(version)
    if to is None and this.parent_id is None:
        raise ServerError('invalid', 'The version has no parent to compare it with. Pass `?to=`.')
    before, after = this, this
    if to is None:
        before = await access.version(this.parent_id or '')
    else:
        after = await access.version(to)
    return await access.state.views.difference(before.record, after.record)


@router.get('/versions/{version}/files', summary='List the files of a version', responses=describe_errors('not_found'))
async def list_files(version: str, access: Runner) -> FileList:
    """Lists files without their contents. Empty if the files of the conversation are not versioned."""
    tree = await (await access.version(version)).file_tree()
    return FileList(
        items=[
            VersionFile(path=path, size_bytes=file.size, digest=file.digest, is_executable=file.mode == 0o755)
            for path, file in sorted(tree.items())
        ]
    )


@router.get(
    '/versions/{version}/files/{path:path}',
    summary='Get a file of a version',
    response_class=Response,
    responses={
        200: {'content': {'application/octet-stream': {}}, 'description': 'The contents of the file.'},
        **describe_errors('not_found'),
    },
)
async def read_file(version: str, path: str, access: Runner) -> Response:
    """Returns the unmodified contents as a download. Do not render them: a model may have written anything."""
    file = await find_file(version, path, access)
    store = access.state.store
    headers = {**FOREIGN_FILES, 'content-disposition': attachment(path.rpartition('/')[2]), 'etag': f'"{file.digest}"'}
    if file.size > STREAMED_BYTES:
        headers['content-length'] = str(file.size)
        chunks = await begun(store.stream_asset(file.digest))
        return Download(chunks, media_type='application/octet-stream', headers=headers)
    data = await store.read_asset(file.digest)
    return Response(data, media_type='application/octet-stream', headers=headers)


async def find_file(version: str, path: str, access: Access) -> FileVersion:
    """Return a file of a version. The path has no slash at its start.

    Raises:
        ServerError: The caller has no such version, or the version has no such file.
    """
    file = (await (await access.version(version)).file_tree()).get(f'/{path}')
    if file is None:
        raise not_found()
    return file


@router.get(
    '/versions/{version}/archive',
    summary='Get all files of a version as an archive',
    response_class=StreamingResponse,
    responses={
        200: {'content': {'application/gzip': {}}, 'description': 'A tar.gz archive with one top-level directory.'},
        **describe_errors('not_found'),
    },
)
async def read_archive(version: str, access: Runner) -> StreamingResponse:
    """The archive is streamed."""
    loaded = await access.version(version)
    top = f'version-{loaded.id}'
    chunks = archive(access.state.store, await loaded.file_tree(), top=top, moment=int(loaded.created_at.timestamp()))
    headers = {**FOREIGN_FILES, 'content-disposition': attachment(f'{top}.tar.gz')}
    return Download(await begun(chunks), media_type='application/gzip', headers=headers)


@router.post(
    '/conversations/{conversation}/head',
    summary='Move the head',
    responses=describe_errors('not_found', 'conflict'),
)
async def move_head(conversation: str, body: HeadChange, access: Runner) -> Version:
    """The next turn continues from that version, with its messages, files and todos. Other versions are preserved."""
    own = await access.conversation(conversation)
    version = await access.version_in(own, body.version)
    expected = own.record.head_id if body.expected is None else body.expected
    if expected != version.id or own.record.head_id != version.id:
        await _move(access.state, own.id, expected, version.id)
    return await access.state.views.version(version.record)


@router.post(
    '/versions/{version}/merge',
    status_code=201,
    summary='Merge another version',
    responses={
        200: {'model': Version, 'description': 'The version itself, which contains the other one already.'},
        **describe_errors('not_found', 'conflict'),
    },
)
async def merge_versions(version: str, body: Merge, access: Runner, response: Response) -> Version:
    """Combines the file changes of both versions since their common ancestor.

    The messages remain those of this version. If this version is the head, the head moves to the merge.
    Conflicting changes create no version, and the error lists the conflicts. `choices` decides them, file by file.
    If this version contains the other one already, the response is this version, with the code 200.
    """
    ours = await access.version(version)
    theirs = await access.version(body.other)
    try:
        merged = await ours.merge(theirs, choices=body.choices)
    except InvalidMergeChoiceError as error:
        raise ServerError('invalid', str(error)) from None
    except NoCommonVersionError as error:
        raise ServerError('conflict', str(error)) from None
    except MergeConflictError as error:
        conflicts: list[JsonValue] = [{'path': conflict.path, 'kind': conflict.kind} for conflict in error.conflicts]
        raise ServerError('conflict', str(error), facts={'conflicts': conflicts}) from None
    conversation = await access.state.store.conversation(merged.conversation_id)
    if merged.id == ours.id:
        response.status_code = 200
    elif conversation is not None and conversation.head_id == ours.id:
        await _move(access.state, merged.conversation_id, ours.id, merged.id)
    return await access.state.views.version(merged.record)


async def _move(state: ServerState, conversation_id: str, expected: str | None, version_id: str) -> None:
    move = HeadMove(conversation_id=conversation_id, expected_id=expected, version_id=version_id)
    try:
        await state.store.commit(Commit(heads=[move]))
    except VersionConflictError as error:
        raise ServerError(
            'conflict',
            f'The head is now at version {error.head}. Check that version first.',
            facts={'head': error.head},
        ) from None
