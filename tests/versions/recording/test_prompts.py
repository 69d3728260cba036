"""The user prompt of a turn: text and media, stored before the first request."""

from __future__ import annotations

import pytest
from pydantic_ai import BinaryContent, ImageUrl
from pydantic_ai.messages import ModelRequest, UserPromptPart

from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio

PNG = b'\x89PNG\r\n\x1a\n' + bytes(range(256)) * 40


async def test_prompt_is_a_string_or_a_list_of_parts(make: MakeAgent):
    """000-16a: A prompt is a text, or a list of texts and images."""
    root = await make('one').create()

    turn = await root.advance(['Look', ImageUrl(url='https://example.org/a.png'), BinaryContent(PNG, media_type='image/png')])  # fmt: skip

    request = (await turn.messages())[0]
    assert isinstance(request, ModelRequest)
    [part] = request.parts
    assert isinstance(part, UserPromptPart)
    text, url, image = part.content
    assert text == 'Look'
    assert isinstance(url, ImageUrl)
    assert url.url == 'https://example.org/a.png'
    assert isinstance(image, BinaryContent)
    assert (image.data, image.media_type) == (PNG, 'image/png')


@pytest.mark.parametrize('text', ['nul \x00 inside', 'lone \ud800 surrogate'])
async def test_any_prompt_text_is_stored_or_refused(make_plain: MakeAgent, text: str):
    agent = make_plain('one', 'two')
    root = await agent.create()
    if '\ud800' in text:
        with pytest.raises(ValueError, match=r'surrogate|utf-8'):
            await root.advance(text)
        assert await agent.store.runs() == []
        assert (await root.advance('fine')).output == 'one'
        return
    turn = await root.advance(text)

    request = (await (await make_plain().load(turn.id)).messages())[0]
    assert request.parts[0].content == text  # type: ignore[union-attr]


async def test_prompt_is_stored_before_the_model_request(make: MakeAgent, store: SpyStore):
    seen: list[bytes | None] = []

    async def look(messages: object, info: object) -> str:
        seen.extend(run.prompt for run in await store.runs())
        return 'done'

    turn = await (await make(look).create()).advance('remember me')

    assert seen == [b'"remember me"']
    run = await store.run(turn.run_id or '')
    assert run is not None
    assert run.prompt is None
