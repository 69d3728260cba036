"""Encoding of contents in the database."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep.store import StoreUnavailableError
from pydantic_deep.store.sql._codec import DICTIONARY_V1, decode, encode


@given(st.binary(max_size=2000))
def test_encoding_round_trips(data: bytes) -> None:
    assert decode(encode(data)) == data
    assert len(encode(data)) <= len(data) + 1


def test_shortest_encoding_is_chosen() -> None:
    noise = random.Random(1).randbytes(300_000)
    message = DICTIONARY_V1[-400:]
    for data, way in ((b'', 0), (b'{}', 0), (noise, 0), (noise[:5000], 0), (message, 2), (b'word ' * 50_000, 1)):
        stored = encode(data)
        assert (stored[0], decode(stored)) == (way, data)
    assert len(encode(message)) < 40


@pytest.mark.parametrize(
    'stored',
    [b'', b'\x09data', b'\x01not zlib', b'\x02not zlib', encode(DICTIONARY_V1[-400:])[:-3], b'\x01' + zlib.compress(b'x')[:-1]],
)  # fmt: skip
def test_damaged_contents_raise(stored: bytes) -> None:
    with pytest.raises(StoreUnavailableError, match='damaged'):
        decode(stored)
