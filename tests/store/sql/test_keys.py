"""Packed ids and digests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep.store import new_id
from pydantic_deep.store.sql._keys import pack_digest, pack_id, prefix_range, unpack_digest, unpack_id
from pydantic_deep_backends.snapshots import digest_of

_TEXT = st.text(st.characters(exclude_categories=['Cs'], exclude_characters='\0'))


def test_uuid_takes_16_bytes_and_a_digest_33() -> None:
    assert len(pack_id(new_id())) == 16
    assert len(pack_digest(digest_of(b''))) == 33


@given(_TEXT)
def test_other_text_round_trips(text: str) -> None:
    assert unpack_id(pack_id(text)) == text
    assert unpack_digest(pack_digest(text)) == text


@given(st.text('abcdef0123456789-', min_size=15, max_size=36))
def test_packed_text_is_never_mistaken_for_a_uuid(text: str) -> None:
    assert unpack_id(pack_id(text)) == text
    assert unpack_id(pack_id(new_id())) != text


@pytest.mark.parametrize('text', ['a\0', '\ud800'])
def test_text_that_databases_cannot_store_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match='cannot be stored'):
        pack_id(text)
    with pytest.raises(ValueError, match='cannot be stored'):
        pack_digest(text)


def test_prefix_range_covers_uuids_with_the_prefix() -> None:
    id = '01a201af-6fb3-7cc7-ac20-66031b213132'
    for length in range(8, 37):
        span = prefix_range(id[:length])
        assert span is not None
        assert span[0] <= pack_id(id) <= span[1]
    for text in ('01a201a', '01a201af6-', '01a201afx', id + '0', '--------'):
        assert prefix_range(text) is None
    undashed = prefix_range('01a201af6fb3')
    assert undashed == prefix_range('01a201af-6fb3')
