"""Files of clients by URL, on all four wires."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pydantic_ai import BinaryContent
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent, ServerSettings
from pydantic_deep.server.compat import _linked_files
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.web import FileDownloader
from tests.server.conftest import Client, MakeClient, Served
from tests.web.conftest import Site
from tests.web.conftest import site as site_fixture

pytestmark = pytest.mark.anyio

site = site_fixture
PNG = b'\x89PNG\r\n\x1a\n'


def _describe(messages: list[ModelMessage], info: AgentInfo) -> str:
    """Answer with the files of all prompts."""
    prompts = [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    files = [piece for prompt in prompts for piece in prompt if isinstance(piece, BinaryContent)]
    return ', '.join(f'{file.media_type} {len(file.data)}' for file in files)


@pytest.fixture
def agents() -> dict[str, AnyAgent]:
    return {'seer': create_deep_agent(ScriptedModel(then=_describe))}


@pytest.fixture
def settings() -> ServerSettings:
    return ServerSettings(requests_per_second=1000, request_burst=100_000, file_url_domains=('127.0.0.1',))


@pytest.fixture
def pictures(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site on this machine, which only tests may read."""
    monkeypatch.setattr(_linked_files, 'FileDownloader', partial(FileDownloader, private_addresses=True))
    site.pages['/a.png'] = (200, {'Content-Type': 'image/png'}, PNG)
    return site


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run')


def chat(*contents: Any) -> dict[str, Any]:
    roles = ('user', 'assistant')
    return {
        'model': 'seer',
        'messages': [{'role': roles[place % 2], 'content': content} for place, content in enumerate(contents)],
    }


def image(url: str) -> list[dict[str, Any]]:
    return [{'type': 'image_url', 'image_url': {'url': url}}]


def _anthropic(url: str) -> dict[str, Any]:
    return chat([{'type': 'image', 'source': {'type': 'url', 'url': url}}]) | {'max_tokens': 9}


def _response(part: dict[str, Any]) -> dict[str, Any]:
    return {'model': 'seer', 'input': [{'role': 'user', 'content': [part]}]}


def _google(url: str) -> dict[str, Any]:
    return {'contents': [{'role': 'user', 'parts': [{'fileData': {'fileUri': url, 'mimeType': 'image/png'}}]}]}


WIRES: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    'chat': ('/v1/chat/completions', lambda url: chat(image(url))),
    'responses, image': ('/v1/responses', lambda url: _response({'type': 'input_image', 'image_url': url})),
    'responses, file': ('/v1/responses', lambda url: _response({'type': 'input_file', 'file_url': url})),
    'anthropic': ('/v1/messages', _anthropic),
    'google': ('/v1beta/models/seer:generateContent', _google),
}


@pytest.mark.parametrize('wire', WIRES)
async def test_the_model_gets_the_file(ada: Client, pictures: Site, wire: str) -> None:
    """The bytes of the file are in the prompt, as if the client had sent them."""
    path, build = WIRES[wire]
    answer = await ada.post(path, json=build(pictures.url('/a.png')))
    assert answer.status_code == 200, answer.text
    assert 'image/png 8' in answer.text
    assert pictures.requested == ['127.0.0.1/a.png']


@pytest.mark.parametrize('wire', WIRES)
async def test_other_domains_are_refused_before_anything_happens(
    ada: Client, pictures: Site, served: Served, wire: str
) -> None:
    """Nothing is requested, and no conversation is created."""
    path, build = WIRES[wire]
    answer = await ada.post(path, json=build(pictures.url('/a.png', host='localhost')))
    assert answer.status_code == 400
    assert 'file_url_domains' in answer.text
    assert (pictures.requested, await served.store.conversations()) == ([], [])


async def test_a_known_dialogue_fetches_only_what_is_new(ada: Client, pictures: Site) -> None:
    """The version has the bytes of the earlier file, so it is fetched once, even if the site changes it."""
    url = pictures.url('/a.png')
    first = (await ada.post('/v1/chat/completions', json=chat(image(url)))).json()['choices'][0]['message']['content']
    pictures.pages['/a.png'] = (404, {}, b'')
    again = await ada.post('/v1/chat/completions', json=chat(image(url), first, 'And now?'))
    assert again.json()['choices'][0]['message']['content'] == 'image/png 8'
    assert pictures.requested == ['127.0.0.1/a.png']


async def test_an_unknown_dialogue_fetches_its_files_once_each(ada: Client, pictures: Site) -> None:
    """Files of earlier messages become part of the new history; the same URL in one message is one download."""
    url = pictures.url('/a.png')
    answer = await ada.post('/v1/chat/completions', json=chat([*image(url), *image(url)], 'A tree.', 'And now?'))
    assert answer.json()['choices'][0]['message']['content'] == 'image/png 8, image/png 8'
    assert pictures.requested == ['127.0.0.1/a.png']


async def test_files_are_counted(ada: Client, pictures: Site) -> None:
    """The count of tokens is that of a file in the request."""
    data = 'data:image/png;base64,iVBORw0KGgo='
    counts = [
        (await ada.post('/v1/messages/count_tokens', json=_anthropic(url))).json()['input_tokens']
        for url in (pictures.url('/a.png'), data)
    ]
    assert counts[0] == counts[1] > 0


async def test_conversations_begin_and_grow_with_files(ada: Client, pictures: Site) -> None:
    """A file in the items of a conversation is fetched when it becomes part of a version."""
    item = {'role': 'user', 'content': [{'type': 'input_image', 'image_url': pictures.url('/a.png')}]}
    foreign = {'role': 'user', 'content': [{'type': 'input_image', 'image_url': pictures.url(host='localhost')}]}
    refused = await ada.post('/v1/conversations', json={'items': [foreign]})
    assert (refused.status_code, 'file_url_domains' in refused.text) == (400, True)
    id = (await ada.post('/v1/conversations', json={'items': [item]})).json()['id']
    assert pictures.requested == []

    async def say() -> str:
        made = await ada.post('/v1/responses', json={'model': 'seer', 'input': 'Hi', 'conversation': id})
        return made.json()['output'][0]['content'][0]['text']

    assert await say() == 'image/png 8'
    await ada.post(f'/v1/conversations/{id}/items', json={'items': [item]})
    assert await say() == 'image/png 8, image/png 8'
    assert pictures.requested == ['127.0.0.1/a.png'] * 2


async def test_a_failed_download_is_explained(ada: Client, pictures: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file and a slow site refuse the request, and say what to do."""
    for_missing = await ada.post('/v1/chat/completions', json=chat(image(pictures.url('/none.png'))))
    assert for_missing.json()['error']['message'] == (
        'The server of the file answered with the status 404. Send the file itself, as a `data:` URL or as base64.'
    )
    monkeypatch.setattr(_linked_files, 'TIMEOUT_SECONDS', 0)
    for_slow = await ada.post('/v1/chat/completions', json=chat(image(pictures.url('/a.png'))))
    assert 'did not arrive within 0 seconds' in for_slow.json()['error']['message']


async def test_all_files_of_a_request_share_one_limit(
    ada: Client, pictures: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second file gets the bytes that the first one has left."""
    monkeypatch.setattr(_linked_files, 'MAX_BYTES', 15)
    both = [*image(pictures.url('/a.png')), *image(pictures.url('/a.png?again'))]
    pictures.pages['/a.png?again'] = pictures.pages['/a.png']
    answer = await ada.post('/v1/chat/completions', json=chat(both))
    assert 'larger than 7 bytes' in answer.json()['error']['message']
