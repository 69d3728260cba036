"""Analysis of a regex before a search: the literal contained in every match."""

from __future__ import annotations

import codecs
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pydantic_deep_backends.search._grep as grep_module
from pydantic_deep_backends.errors import InvalidPatternError
from pydantic_deep_backends.search import split_lines
from pydantic_deep_backends.search._grep import compile_grep
from pydantic_deep_backends.search._regex import compile_regex
from pydantic_deep_backends.search._regex_analysis import required_literal

from .conftest import grep_files, lines_of

regexes = st.lists(
    st.sampled_from(
        ['a', 'b', 'é', '.', r'\s', '[^a]', '[ab]', '^', '$', r'\b', r'\B', '*', '+', '?', '|', '(', ')', '(?s)', '(?-m)', r'\A', r'\z',
         '{2}', 'ab', r'\.', '(?:', '(?i)', r'\x61', r'\Qb', r'\t', '[[:alpha:]]', '(?P<n>', '{']
    ),
    min_size=1, max_size=6,
).map(''.join)  # fmt: skip


texts = st.text(st.sampled_from('abAé. \n\r\t{'), max_size=20)


@given(pattern=regexes, text=texts)
@example(pattern=r'\s+', text='a\n\nb')
def test_each_line_is_matched_independently(pattern: str, text: str) -> None:
    try:
        compiled = compile_grep(pattern)
    except InvalidPatternError:
        return
    alone = compile_regex(pattern, shown=pattern, within_lines=True)
    lines = split_lines(text.replace('\r\n', '\n'))
    expected = [number for number, line in enumerate(lines, 1) if alone.search(line.removesuffix('\n').encode())]
    data = text.encode().replace(b'\r\n', b'\n')
    assert [found.line_number for found in compiled.search(data)] == expected
    assert [number for number, _ in lines_of(pattern, text.encode())] == expected


@given(pattern=regexes, text=texts)
def test_every_match_contains_the_required_literal(pattern: str, text: str) -> None:
    try:
        compiled = compile_grep(pattern)
    except InvalidPatternError:
        return
    for found in compiled.search(text.encode()):
        assert compiled.literal in text.encode()[found.start : found.end]


@pytest.mark.parametrize(
    ('pattern', 'literal'),
    [
        ('needle', b'needle'),
        ('nee+dle', b'nee'),
        ('ab?cde', b'cde'),
        ('abc*', b'ab'),
        ('abc{0,2}d', b'ab'),
        ('abc{', b'abc{'),
        (r'def \w+\(self\)', b'(self)'),
        ('a(bcd|e)fg', b'fg'),
        ('[abc]xyz[^]]q', b'xyz'),
        ('[[:alpha:]]bc', b'bc'),
        ('(?P<n>abc)de', b'de'),
        ('(?:abc)*d', b'd'),
        ('a.b$', b'a'),
        ('café au lait', b' au lait'),
        ('abc|d', b''),
        ('(?i)abc', b''),
        (r'abc\x41', b''),
        (r'\Qabc\E', b''),
        ('.*', b''),
    ],
)
def test_required_literal_is_extracted_only_if_certain(pattern: str, literal: bytes) -> None:
    assert required_literal(pattern) == literal


def test_a_file_without_the_literal_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    to_utf8: Callable[[bytes], bytes] = getattr(grep_module, '_to_utf8')  # noqa: B009  # counts calls of a private step

    def counted(data: bytes) -> bytes:
        decoded.append(data)
        return to_utf8(data)

    monkeypatch.setattr(grep_module, '_to_utf8', counted)
    result = grep_files('needle', b'hay', b'needle', b'more hay', codecs.BOM_UTF16_LE + 'hay'.encode('utf-16-le'))
    assert result.counts == {'/1': 1}
    assert result.files_searched == 4
    assert len(decoded) == 2
