"""Invalid regexes, and the size of hostile ones."""

from __future__ import annotations

import pytest

from pydantic_deep_backends.errors import InvalidPatternError
from pydantic_deep_backends.search._cases import INVALID_REGEXES
from pydantic_deep_backends.search._grep import compile_grep
from pydantic_deep_backends.search._regex import compile_regex

from .conftest import grep_files

HOSTILE_REGEXES = [
    ('(a+)+$', False), ('(a|aa)+$', False), ('(a|a?)+$', True), ('(.*a){20}$', False), ('([a-zA-Z]+)*$', True),
    ('(a*)*b', False), ('(a?){30}a{30}', True), ('(x+x+)+y', False), ('((a+)*)*c', False), (r'(\w+\s?)*$', True),
    ('^(([a-z])+.)+[A-Z]([a-z])+$', False), ('(?:a|b|ab)*c', False), ('(.+)+x', False), (r'^(\d+)*$', False),
    ('(((a*)*)*)*b', False), ('(a|b)*a(a|b){12}c', False), (r'(\pL+)+\d', False),
]  # fmt: skip


@pytest.mark.parametrize('pattern', INVALID_REGEXES)
def test_invalid_regex_is_refused_with_advice(pattern: str) -> None:
    with pytest.raises(InvalidPatternError, match=r'\. \S.*\.$') as caught:
        compile_grep(pattern)
    assert caught.value.pattern == pattern
    assert '(?m)' not in str(caught.value)


@pytest.mark.parametrize(
    ('pattern', 'feature'),
    [
        ('(?=a)', 'look-around'),
        ('(?<!a)b', 'look-around'),
        (r'(a)\1', 'back-references'),
        ('(?P<x>a)(?P=x)', 'back-references'),
        (r'\pL{100}', 'too large'),
    ],
)
def test_unsupported_regex_feature_is_named(pattern: str, feature: str) -> None:
    with pytest.raises(InvalidPatternError, match=feature):
        compile_grep(pattern)


@pytest.mark.parametrize(('pattern', 'matches'), HOSTILE_REGEXES)
def test_hostile_regex_compiles_small_and_matches(pattern: str, matches: bool) -> None:
    assert compile_regex(pattern, shown=pattern, within_lines=True).programsize < 10_000
    assert grep_files(pattern, b'a' * 100_000 + b'!\n').counts == ({'/0': 1} if matches else {})
