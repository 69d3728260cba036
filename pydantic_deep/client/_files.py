"""Files of versions, and uploads."""

from __future__ import annotations

from pydantic_deep.views import NewUpload, UploadedFile, VersionFile

from ._connection import Connection, parse, segment, segments


class FilesClient:
    """Files: `client.files`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, version_id: str) -> list[VersionFile]:
        """Return the files of a version, sorted by path. Empty if the files are not versioned."""
        path = f'/api/versions/{segment("version_id", version_id)}/files'
        return [file async for file in self._connection.items(VersionFile, path)]

    async def read(self, version_id: str, path: str) -> bytes:
        """Return the contents of a file. A model may have written anything into it."""
        place = f'/api/versions/{segment("version_id", version_id)}/files/{segments("path", path)}'
        return await self._connection.send('GET', place)

    async def upload(self, conversation_id: str, name: str, data: bytes) -> NewUpload:
        """Upload a file for the next turn, as a new version. An upload of the same name is replaced.

        Fails while a run is active or an approval is pending.

        Args:
            conversation_id: The conversation.
            name: The name below `/uploads`, such as `sales.csv`.
            data: The contents.
        """
        path = f'{_uploads(conversation_id)}/{segments("name", name)}'
        return parse(NewUpload, await self._connection.send('PUT', path, content=data))

    async def uploads(self, conversation_id: str) -> list[UploadedFile]:
        """Return the uploads at the head of a conversation, sorted by name."""
        return [file async for file in self._connection.items(UploadedFile, _uploads(conversation_id))]

    async def delete_upload(self, conversation_id: str, name: str) -> None:
        """Delete an upload. Earlier versions still contain it."""
        await self._connection.send('DELETE', f'{_uploads(conversation_id)}/{segments("name", name)}')


def _uploads(conversation_id: str) -> str:
    return f'/api/conversations/{segment("conversation_id", conversation_id)}/uploads'
