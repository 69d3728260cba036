"""Output of commands, in bounded memory."""

from __future__ import annotations

import pytest

from pydantic_deep_backends.commands._output import CappedOutput


def output_of(limit_bytes: int, *chunks: bytes) -> str:
    output = CappedOutput(limit_bytes)
    for chunk in chunks:
        output.add(chunk)
    return output.text()


def test_output_within_the_limit_is_complete() -> None:
    assert output_of(8) == ''
    assert output_of(8, b'0123', b'4567') == '01234567'
    assert output_of(1, b'a') == 'a'


@pytest.mark.parametrize('size', [1, 2, 3, 5, 20])
def test_middle_is_omitted_for_any_chunk_size(size: int) -> None:
    data = bytes(range(48, 68))
    chunks = [data[start : start + size] for start in range(0, 20, size)]
    assert output_of(9, *chunks) == '01234\n[… 11 bytes left out …]\n@ABC'


def test_a_limit_of_one_byte_keeps_the_first() -> None:
    assert output_of(1, b'abc') == 'a\n[… 2 bytes left out …]\n'


def test_split_characters_are_omitted() -> None:
    assert output_of(6, 'aé日é日'.encode()) == 'aé\n[… 5 bytes left out …]\n日'
    assert output_of(4, 'é日日'.encode()) == 'é\n[… 6 bytes left out …]\n'


def test_undecodable_bytes_are_replaced() -> None:
    assert output_of(8, b'a\xffb\xc3') == 'a\ufffdb\ufffd'
    assert output_of(4, b'\xffa....b\xff') == '\ufffda\n[… 4 bytes left out …]\nb\ufffd'


def test_memory_is_bounded_by_the_limit() -> None:
    output = CappedOutput(1000)
    for _ in range(1000):
        output.add(b'x' * 10_000)
    assert len(output._head) + len(output._tail) == 1000  # pyright: ignore[reportPrivateUsage]
    assert len(output.text()) == 1000 + len('\n[… 9,999,000 bytes left out …]\n')
