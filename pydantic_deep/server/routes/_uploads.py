"""Routes of uploads: files from users for the next turn."""

from __future__ import annotations

from tempfile import SpooledTemporaryFile

from fastapi import APIRouter, Request

from pydantic_deep.errors import UploadNotFoundError, UploadTooLargeError
from pydantic_deep.server._run_start import head_to_change, refuse_if_running
from pydantic_deep.server.http._errors import ServerError, describe_errors, not_found
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.schemas._uploads import UploadList
from pydantic_deep.store import VersionConflictError
from pydantic_deep.versions import UnversionedBackendError
from pydantic_deep.views import NewUpload, UploadedFile

from ._parameters import Runner

router = APIRouter(prefix='/api/conversations/{conversation}/uploads', tags=['conversations'], route_class=JsonRoute)

MEMORY_BYTES = 2**20
"""Maximum size of an upload that is buffered in memory; larger ones are buffered in a file."""


@router.get('', summary='List the uploads at the head', responses=describe_errors('not_found', 'conflict'))
async def list_uploads(conversation: str, access: Runner) -> UploadList:
    """Returns the uploads available to the next turn. Their contents are among the files of the head."""
    own = await access.conversation(conversation)
    head = await access.version_in(own)
    return UploadList(items=[UploadedFile.of(upload) for _, upload in sorted(head.uploads.items())])


@router.put(
    '/{name:path}',
    status_code=201,
    summary='Upload a file',
    openapi_extra={
        'requestBody': {
            'required': True,
            'content': {'application/octet-stream': {'schema': {'type': 'string', 'format': 'binary'}}},
        }
    },
    responses=describe_errors('not_found', 'conflict', 'too_large'),
)
async def upload(conversation: str, name: str, request: Request, access: Runner) -> NewUpload:
    """The request body is the file. It is stored immediately, as a version from which the next turn starts.

    An upload of the same name is replaced. Fails while a run is active or an approval is pending.
    """
    own = await access.conversation(conversation)
    head = await head_to_change(access, own)
    with SpooledTemporaryFile[bytes](max_size=MEMORY_BYTES) as file:  # a rejected upload never fills the memory
        async for chunk in request.stream():  # the body limit middleware bounds it
            file.write(chunk)
        file.seek(0)
        data = file.read()
    await refuse_if_running(access.state, own.id)  # a run may have started during the upload
    try:
        version = await head.upload(name, data, moves_head=True)
    except UploadTooLargeError as error:
        raise ServerError('too_large', str(error)) from None
    except VersionConflictError:
        raise ServerError('conflict', 'The conversation changed during the upload. Upload the file again.') from None
    except UnversionedBackendError as error:
        raise ServerError('conflict', str(error)) from None
    added = [upload for upload in version.uploads.values() if head.uploads.get(upload.name) != upload]
    return NewUpload(upload=UploadedFile.of(added[0] if added else version.uploads[name]), version_id=version.id)


@router.delete(
    '/{name:path}', status_code=204, summary='Delete an upload', responses=describe_errors('not_found', 'conflict')
)
async def delete_upload(conversation: str, name: str, access: Runner) -> None:
    """The next turn starts from a version without the upload and its file. Earlier versions still contain both."""
    own = await access.conversation(conversation)
    head = await head_to_change(access, own)
    try:
        await head.remove_upload(name, moves_head=True)
    except UploadNotFoundError:
        raise not_found() from None
    except VersionConflictError:
        raise ServerError('conflict', 'The conversation changed in the meantime. Check its uploads again.') from None
