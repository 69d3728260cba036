"""Files and uploads by the client."""

from __future__ import annotations

import pytest

from pydantic_deep.client import ApiError, Client

pytestmark = pytest.mark.anyio


async def test_upload_is_a_file_of_the_new_version(ada: Client):
    """An upload is stored byte for byte below `/uploads`, under any name, until it is deleted."""
    conversation = await ada.conversations.create('analyst')
    data = b'region,units\r\n\xff\x00'

    new = await ada.files.upload(conversation.id, 'Q1 50%/übersicht#1.csv', data)
    [file] = await ada.files.list(new.version_id)
    uploads = await ada.files.uploads(conversation.id)
    await ada.files.delete_upload(conversation.id, new.upload.name)

    assert (file.path, file.size_bytes, uploads) == (new.upload.path, len(data), [new.upload])
    assert await ada.files.read(new.version_id, file.path) == data
    assert await ada.files.uploads(conversation.id) == []


async def test_missing_file_is_not_found(ada: Client):
    """Reading a file that the version does not contain raises an error with the status 404."""
    conversation = await ada.conversations.create('analyst')
    with pytest.raises(ApiError) as missing:
        await ada.files.read(conversation.head or '', '/a')
    assert missing.value.status == 404
