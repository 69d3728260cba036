"""Media of messages: stored separately by digest, and restored unchanged."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from pydantic_deep._messages.media import (
    escape_media,
    externalize_body,
    externalize_media,
    inline_body,
    inline_media,
    media_digests,
)
from pydantic_deep_backends import digest_of

pytestmark = pytest.mark.anyio

PNG = b'\x89PNG'
DATA = st.one_of(
    st.binary(max_size=20).map(lambda data: base64.urlsafe_b64encode(data).decode()),
    st.sampled_from(['', 'asset:sha256:00', 'literal:', 'literal:asset:x', 'YQ', 'not base64!']),
    st.text(max_size=8),
)
BINARY: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {'kind': st.just('binary'), 'data': DATA}, optional={'media_type': st.sampled_from(['image/png', 7, None])}
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), BINARY),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


def image(data: bytes) -> dict[str, JsonValue]:
    return {'kind': 'binary', 'data': base64.urlsafe_b64encode(data).decode(), 'media_type': 'image/png'}


@given(VALUES)
def test_any_value_is_restored_from_its_digests(value: JsonValue) -> None:
    reduced, media = externalize_media(value)
    assert media_digests(reduced) == {each.digest for each in media}
    assert inline_media(reduced, {each.digest: each.data for each in media}) == value


@given(VALUES)
def test_any_value_is_restored_from_its_escaped_form(value: JsonValue) -> None:
    escaped = escape_media(value)
    assert media_digests(escaped) == set()
    assert inline_media(escaped, {}) == value


def test_media_are_listed_in_order_with_their_type() -> None:
    reduced, media = externalize_media([image(PNG), {'deep': [image(b'other'), image(PNG)]}])
    assert [(each.data, each.media_type) for each in media] == [
        (PNG, 'image/png'),
        (b'other', 'image/png'),
        (PNG, 'image/png'),
    ]
    assert media_digests(reduced) == {digest_of(PNG), digest_of(b'other')}
    with pytest.raises(KeyError):
        inline_media(reduced, {digest_of(PNG): PNG})


async def test_body_with_media_refers_to_assets_and_is_restored() -> None:
    body = json.dumps({'parts': ['ä', image(PNG)]}, ensure_ascii=False, separators=(',', ':')).encode()
    assets: dict[str, bytes] = {}

    async def read_asset(digest: str) -> bytes:
        return assets[digest]

    reduced, media = externalize_body(body)
    assets |= {each.digest: each.data for each in media}
    assert f'"asset:{digest_of(PNG)}"' in reduced.decode()
    assert await inline_body(reduced, read_asset) == body


async def test_body_without_media_is_returned_unread() -> None:
    async def read_asset(digest: str) -> bytes:
        raise AssertionError('nothing to read')

    body = b'{"parts": ["not even', b'{ "parts" : [ ] }'
    for each in body:
        assert externalize_body(each) == (each, [])
        assert await inline_body(each, read_asset) is each
