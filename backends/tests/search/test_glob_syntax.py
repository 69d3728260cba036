"""Globs as RE2 expressions: their size is linear in the length of the glob."""

from __future__ import annotations

import pytest

from pydantic_deep_backends.search import compile_glob
from pydantic_deep_backends.search._glob_syntax import parse_glob, render_directories, render_files
from pydantic_deep_backends.search._regex import MAX_PROGRAM_SIZE, compile_regex


@pytest.mark.parametrize(
    'pattern',
    [
        '{a,b}' * 30,
        '{a,b/}' * 30 + 'c',
        '**/' * 300 + 'a',
        '*a' * 400,
        '{' * 40 + 'a,b' + '}' * 40,
        '[!a]*' * 150,
        '?' * 900,
    ],
)
def test_compiled_glob_is_linear_in_its_length(pattern: str) -> None:
    nodes = parse_glob(pattern)
    for rendered in (render_files(nodes), render_directories(nodes)):
        assert len(rendered) <= 60 * len(pattern)
        assert compile_regex(rendered, shown=pattern, within_lines=False).programsize <= MAX_PROGRAM_SIZE
    assert compile_glob(pattern).matches('b' * 5000 + '/') is False
