"""Files of a version as downloads: one file, or an archive."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.types import Message

from pydantic_deep import create_deep_agent
from pydantic_deep.server.routes import _versions
from pydantic_deep.server.routes._archive import Download
from pydantic_deep.store import StoreUnavailableError, open_store
from pydantic_deep.testing import ScriptedModel
from tests.server.conftest import Client, Gate, MakeClient, Serve
from tests.server.routes.file_writer import answer, begin, say

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, Any]:
    return {'analyst': create_deep_agent(ScriptedModel(then=answer), tools=[gate.hold])}


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run')


async def test_file_names_are_escaped_in_headers(ada: Client):
    path = await begin(ada)
    version = await say(ada, path, '/a"é;b=1')

    page = await ada.get(f'/api/versions/{version}/files/a"é;b')

    assert page.headers['content-disposition'] == "attachment; filename*=UTF-8''a%22%C3%A9%3Bb"


async def test_files_are_downloaded_as_an_archive(ada: Client):
    path = await begin(ada)
    version = await say(ada, path, '/a=1 /dir/b=2')

    answers = [await ada.get(f'/api/versions/{version}/archive') for _ in range(2)]

    assert answers[0].headers['content-type'] == 'application/gzip'
    with tarfile.open(fileobj=io.BytesIO(answers[0].content), mode='r:gz') as tar:
        found = {member.name: tar.extractfile(member) for member in tar}
        contents = {name: file.read() for name, file in found.items() if file is not None}
    assert contents == {f'version-{version}/a': b'1\n', f'version-{version}/dir/b': b'2\n'}


async def test_large_files_are_downloaded_in_chunks(ada: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_versions, 'STREAMED_BYTES', 10)
    path = await begin(ada)
    text = 'x' * 100
    version = await say(ada, path, f'/large={text}')

    page = await ada.get(f'/api/versions/{version}/files/large')
    packed = await ada.get(f'/api/versions/{version}/archive')

    assert page.text == f'{text}\n'
    with tarfile.open(fileobj=io.BytesIO(packed.content), mode='r:gz') as tar:
        [member] = tar
        assert member.size == len(text) + 1


async def test_download_whose_storage_fails_is_cut_off_with_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It gets no end, so that a client does not take it for complete."""

    async def chunks() -> AsyncGenerator[bytes]:
        yield b'a'
        raise StoreUnavailableError('The storage is gone.')

    sent: list[Message] = []

    async def receive() -> Message:
        await anyio.sleep_forever()
        return {}

    async def send(message: Message) -> None:
        sent.append(message)

    await Download(chunks())({'type': 'http'}, receive, send)

    assert [message.get('more_body') for message in sent] == [None, True]
    assert [(record.message, record.exc_info) for record in caplog.records] == [
        ('A download was cut off: The storage is gone.', None)
    ]


async def test_download_without_object_storage_is_refused_before_it_begins(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_versions, 'STREAMED_BYTES', 10)
    blobs = tmp_path / 'blobs'
    blobs.mkdir()
    async with (
        open_store('memory:', blobs=blobs.as_uri()) as store,
        serve(store=store) as served,
        served.client(await served.key('run')) as ada,
    ):
        path = await begin(ada)
        uploaded = (await ada.put(f'{path}/uploads/large', content=b'x' * 3_000_000)).json()
        blobs.rename(tmp_path / 'away')
        blobs.touch()
        files = f'/api/versions/{uploaded["version_id"]}'
        answers = [await ada.get(f'{files}/{name}') for name in ('files/uploads/large', 'archive')]
    assert [(answer.status_code, answer.json()['error']['type']) for answer in answers] == [(503, 'unavailable')] * 2
