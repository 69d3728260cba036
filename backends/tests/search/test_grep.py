"""Matching lines of files, and the limits of results."""

from __future__ import annotations

import codecs
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pydantic_deep_backends.search._grep as grep_module
from pydantic_deep_backends.search import MAX_LINE_CHARS, SearchProblem, grep_file, split_lines
from pydantic_deep_backends.search._grep import GrepBuilder, compile_grep

from .conftest import grep_files, lines_of


@pytest.mark.parametrize(
    ('text', 'lines'),
    [
        ('', []),
        ('\n', ['\n']),
        ('a', ['a']),
        ('a\n', ['a\n']),
        ('a\n\nb', ['a\n', '\n', 'b']),
        ('a\r\nb\r\n', ['a\r\n', 'b\r\n']),
        ('a\rb\x0cc\u2028d\x85e\x1ef', ['a\rb\x0cc\u2028d\x85e\x1ef']),
    ],
)
def test_only_a_line_feed_ends_a_line(text: str, lines: list[str]) -> None:
    assert split_lines(text) == lines


@given(st.text(st.sampled_from('ab\r\n\x0c\u2028'), max_size=30))
def test_grep_lines_equal_split_lines(text: str) -> None:
    expected = [line.removesuffix('\n') for line in split_lines(text.replace('\r\n', '\n'))]
    assert [line for _, line in lines_of('.*', text.encode())] == expected


@pytest.mark.parametrize(
    ('data', 'lines'),
    [
        (b'', []),
        (b'a\r\nb\rc\r\r\n', ['a', 'b\rc\r']),
        (codecs.BOM_UTF8 + b'a', ['a']),
        (b'caf\xe9', ['café']),
        ('né né '.encode() + b'\xe9', ['né né \ufffd']),
        (codecs.BOM_UTF8 + b'\xe9', ['\ufffd']),
        (codecs.BOM_UTF16_LE + b'a\0\xff', ['a\ufffd']),
        (codecs.BOM_UTF32_BE + b'\0\0\0a', ['a']),
        (b'a\0', None),
        (b'x\n' * 4095 + b'x\0', None),
        (b'x\n' * 4096 + b'\0', ['x'] * 4096 + ['\0']),
    ],
)
def test_contents_are_decoded_to_lines_or_binary(data: bytes, lines: list[str] | None) -> None:
    result = grep_file('/f', data, '.*', limit=5000)
    assert result.files_searched == (lines is not None)
    assert [match.line for match in result.matches] == (lines or [])


def test_binary_file_does_not_count_as_searched() -> None:
    assert grep_files('a', b'a\0', b'a').files_searched == 1


def test_file_above_the_limit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep_module, 'MAX_FILE_BYTES', 10)
    result = grep_files('a', b'a' * 11, b'a' * 10)
    assert result.counts == {'/1': 1}
    assert result.problems == (SearchProblem(path='/0', reason='it has 11 bytes; files over 10 are not searched.'),)


def test_line_of_fifty_megabytes_is_searched_and_truncated() -> None:
    data = b'x' * 25_000_000 + 'ä needle ö'.encode() + b'y' * 25_000_000
    matches = grep_files('needle', data).matches
    assert len(matches) == 1
    assert len(matches[0].line) == MAX_LINE_CHARS
    assert matches[0].line.startswith('…xxx')
    assert 'ä needle ö' in matches[0].line
    assert matches[0].line.endswith('yyy…')


@pytest.mark.parametrize('unit', ['x', 'é', '日', '😀'])
@pytest.mark.parametrize('before', [0, 5, 199, 201, 1000, 1990, 1998, 5000])
@pytest.mark.parametrize('after', [0, 5, 201, 1000, 1990, 5000])
def test_long_line_is_truncated_around_its_match(unit: str, before: int, after: int) -> None:
    line = unit * before + '!' + unit * after
    ((number, shown),) = lines_of('!', b'first\n' + line.encode() + b'\nlast')
    assert number == 2
    if len(line) <= MAX_LINE_CHARS:
        assert shown == line
    else:
        assert len(shown) == MAX_LINE_CHARS
        assert '!' in shown
        assert shown.startswith('…') or line.startswith(shown[:-1])
        assert shown.endswith('…') or line.endswith(shown[1:])
        assert shown.strip('…') in line


@pytest.mark.parametrize('limit', [0, 1, 2, 3, 100])
def test_limit_returns_the_first_lines_and_complete_counts(limit: int) -> None:
    every = [('/a', 1), ('/a', 2), ('/b', 1)]
    for order in permutations([('/a', b'x\nx\n'), ('/b', b'x\n'), ('/c', b'y\n')]):
        builder = GrepBuilder(compile_grep('x'), limit)
        for path, data in order:
            builder.add(path, data)
        result = builder.result()
        assert [(match.path, match.line_number) for match in result.matches] == every[:limit]
        assert (result.counts, list(result.counts)) == ({'/a': 2, '/b': 1}, ['/a', '/b'])
        assert result.truncated is (limit < 3)
        assert result.files_searched == 3


@pytest.mark.parametrize('step', [1, -1, 7])
def test_number_of_buffered_matches_is_bounded(step: int) -> None:
    builder = GrepBuilder(compile_grep('x'), 5)
    paths = [f'/{index:04}' for index in range(2000)]
    for index in range(2000):
        builder.add(paths[index * step % 2000], b'x\n' * 3)
        assert len(builder.result().matches) == min(5, 3 * (index + 1))
    result = builder.result()
    assert [(match.path, match.line_number) for match in result.matches] == [
        ('/0000', 1), ('/0000', 2), ('/0000', 3), ('/0001', 1), ('/0001', 2),
    ]  # fmt: skip
    assert sum(result.counts.values()) == 6000


def test_many_matches_are_pruned_between_results() -> None:
    builder = GrepBuilder(compile_grep('x'), 2)
    for index in reversed(range(1100)):
        builder.add(f'/{index:04}', b'x\n')
    builder.add('/9999', b'x\n')
    result = builder.result()
    assert [match.path for match in result.matches] == ['/0000', '/0001']
    assert len(result.counts) == 1101


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match='`limit` is -1'):
        GrepBuilder(compile_grep('x'), -1)
