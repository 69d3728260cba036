"""Media in messages are stored once as assets and inlined again when a history is read."""

from __future__ import annotations

import math

import pytest
from pydantic_ai import BinaryContent, ToolReturn
from pydantic_ai.messages import ModelRequest, ToolReturnPart

from pydantic_deep.testing import call
from pydantic_deep_backends import digest_of
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio

PNG = b'\x89PNG\r\n\x1a\n' + bytes(range(256)) * 40


async def test_images_are_stored_once_as_assets(make: MakeAgent, store: SpyStore):
    """000-16b: Images are assets of their own, referred to by digest and stored once."""
    agent = make('one', 'two', 'three')
    image = BinaryContent(PNG, media_type='image/png')
    root = await agent.create()
    first = await root.advance(['a', image])
    second = await first.advance(['b', image, image])
    elsewhere = await (await agent.create()).advance(['c', image])

    asset = await store.asset(digest_of(PNG))
    assert (asset.data, asset.media_type, asset.size_bytes) == (PNG, 'image/png', len(PNG))
    for version in (second, elsewhere):
        for record in await store.messages(version.record.branch_id, version.message_count):
            assert len(record.body) < 1500
            assert b'iVBOR' not in record.body
    rows = [sql for sql in store.counting.writes if 'INSERT INTO asset' in sql]
    assert rows  # it was written once: the lookup above found one row with this digest
    loaded = await (await agent.load(second.id)).messages()
    assert loaded == await second.messages()


async def test_media_of_a_loaded_version_are_sent_again(make: MakeAgent, store: SpyStore):
    """000-16b: Media are inlined again on load."""
    agent = make('one')
    first = await (await agent.create()).advance(['a', BinaryContent(PNG, media_type='image/png')])
    later = make('two')

    await (await later.load(first.id)).advance('b')

    sent = later.agent.model.requests[0].messages[0].parts[0]  # type: ignore[attr-defined]
    assert sent.content[1].data == PNG  # pyright: ignore[reportUnknownMemberType]


async def test_media_in_tool_results_are_stored_as_assets(make_plain: MakeAgent, store: SpyStore):
    """000-16b: Images in tool results are assets too, stored once."""

    def shoot() -> BinaryContent:
        return BinaryContent(PNG, media_type='image/png')

    def both() -> ToolReturn[str]:
        return ToolReturn('see below', content=['below', BinaryContent(PNG[::-1], media_type='image/png')])

    agent = make_plain([call('shoot'), call('both')], 'done', tools=[shoot, both])
    turn = await (await agent.create()).advance('go')

    messages = await (await make_plain().load(turn.id)).messages()
    request = messages[2]
    assert isinstance(request, ModelRequest)
    returned = {part.tool_name: part.content for part in request.parts if isinstance(part, ToolReturnPart)}
    shot = returned['shoot']
    assert isinstance(shot, BinaryContent)
    assert shot.data == PNG
    assert await store.has_assets([digest_of(PNG), digest_of(PNG[::-1])]) == {digest_of(PNG), digest_of(PNG[::-1])}
    assert bool(await turn.replay())


async def test_tool_results_that_look_like_media_are_unchanged(make_plain: MakeAgent):
    """Tool results are data, whatever their keys are named."""
    odd: list[object] = [
        {'kind': 'binary', 'data': 'not base64!', 'media_type': 'x'},
        {'kind': 'binary', 'data': 'asset:deadbeef', 'media_type': 'x'},
        {'kind': 'binary', 'data': 'literal:asset:deadbeef', 'media_type': 'x'},
        {'kind': 'binary', 'data': 'YQ', 'media_type': 7},
        {'kind': 'binary', 'data': 'YWI=', 'media_type': 7},
        {'kind': 'binary', 'data': 'a+/b'},
        {'kind': 'binary', 'data': 'Ümlaut'},
        {'kind': 'binary', 'data': 'YWI=', 'vendor_metadata': None},
        {'kind': 'binary', 'data': 12},
        {'kind': 'binary'},
    ]

    def look() -> list[object]:
        return odd

    turn = await (await make_plain(call('look'), 'done', tools=[look]).create()).advance('go')

    request = (await (await make_plain().load(turn.id)).messages())[2]
    assert isinstance(request, ModelRequest)
    returned = request.parts[0]
    assert isinstance(returned, ToolReturnPart)
    assert returned.content == odd


async def test_a_megabyte_of_text_is_stored_unchanged(make_plain: MakeAgent):
    text = 'Zeile mit Umlaut ä\r\n' * 52_000

    turn = await (await make_plain(text).create()).advance(text)

    loaded = await make_plain().load(turn.id)
    assert loaded.output == text
    assert await loaded.messages() == await turn.messages()


async def test_nan_and_infinity_are_stored_unchanged(make: MakeAgent, store: SpyStore):
    """NaN and infinities in tool results never become null, neither in the store nor in a replay."""

    def measure() -> dict[str, object]:
        return {'a': [math.nan, math.inf, -math.inf], 'text': 'NaN'}

    agent = make(call('measure'), 'done', 'more', tools=[measure])
    version = await (await agent.create()).advance('go')
    loaded = await agent.load(version.id)
    [content] = [
        part.content
        for message in await loaded.messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    assert repr(content) == "{'a': [nan, inf, -inf], 'text': 'NaN'}"
    assert (await loaded.replay()).difference is None
    assert (await loaded.advance('again')).output == 'more'
