"""Globs: properties of the dialect, and invalid patterns."""

from __future__ import annotations

import glob as standard_glob
import os
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pydantic_deep_backends.errors import InvalidPatternError
from pydantic_deep_backends.search import compile_glob, glob_tree
from pydantic_deep_backends.search._cases import INVALID_GLOBS

from .conftest import DirectoryTree, components, globs, write_files


@pytest.mark.parametrize('pattern', INVALID_GLOBS)
def test_invalid_glob_is_refused_with_advice(pattern: str) -> None:
    with pytest.raises(InvalidPatternError, match=r'\. \S.*\.$') as caught:
        compile_glob(pattern)
    assert caught.value.pattern == pattern


files = st.lists(
    st.lists(components.filter(lambda name: name != '.'), min_size=1, max_size=4).map('/'.join),
    min_size=1, max_size=8, unique=True,
)  # fmt: skip


def _expanded(pattern: str) -> set[str]:
    """Expand innermost braces first, like a shell. Exponential, and used only for comparison."""
    match = re.search(r'\{([^{}]*)\}', pattern)
    if match is None:
        return {pattern}
    expanded: set[str] = set()
    for branch in match.group(1).split(','):
        expanded |= _expanded(pattern[: match.start()] + branch + pattern[match.end() :])
    return expanded


@given(paths=files, pattern=globs)
@example(paths=['a', 'b.py'], pattern='{a,{b,**}}/a')
@example(paths=['.h/a', 'a/.h/a'], pattern='{.h,*}/a')
def test_glob_finds_the_same_as_the_standard_library(
    paths: list[str], pattern: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp('oracle')
    for path in paths:
        if (
            not any((root / path).parents[i].is_file() for i in range(len(path.split('/'))))
            and not (root / path).exists()
        ):
            write_files(root, {path: b''})
    try:
        found = glob_tree(DirectoryTree(root), pattern).paths
    except InvalidPatternError:
        return
    plain_patterns = _expanded(pattern.replace('**', 'RECURSIVE'))
    # Two `*` of adjacent alternatives are no `**` here, but are one in a shell.
    assume(not any('**' in plain for plain in plain_patterns))
    # Alternatives with an empty component, `.` or `..` have another meaning in the standard library.
    assume(not any({'', '.', '..'} & set(plain.split('/')) for plain in plain_patterns))
    expected: set[str] = set()
    for plain in plain_patterns:
        # The standard library supports only `[!a]`, and returns file `a` as `a/` for `a/**`.
        names = standard_glob.glob(plain.replace('[^', '[!').replace('RECURSIVE', '**'), root_dir=root, recursive=True)
        expected |= {os.path.normpath(name) for name in names if (root / name).is_file() and not name.endswith('/')}
    assert set(found) == {f'/{name}' for name in expected}


@given(paths=files, pattern=globs)
def test_pruning_never_loses_a_match(paths: list[str], pattern: str) -> None:
    try:
        glob = compile_glob(pattern)
    except InvalidPatternError:
        return
    for path in paths:
        if glob.matches(path):
            parents = [path[: match.start()] for match in re.finditer('/', path)]
            assert all(glob.may_contain(parent) for parent in ['', *parents])
            assert glob.literal_prefix in ['', *parents]


@given(paths=files, pattern=st.sampled_from(['**', '**/*', '**/*.py', '**/*v']))
def test_suffix_fast_path_equals_the_regex(paths: list[str], pattern: str) -> None:
    glob = compile_glob(pattern)
    same = compile_glob(pattern.replace('**', '{**,**}', 1))
    assert [glob.matches(path) for path in paths] == [same.matches(path) for path in paths]


def test_glob_that_compiles_too_large_is_refused() -> None:
    with pytest.raises(InvalidPatternError, match='too large once compiled'):
        compile_glob('{' * 40 + '{' + '?' * 800 + ',b}' + '}/' * 40 + 'a')


def test_undecodable_name_can_be_matched() -> None:
    assert compile_glob('[a-b]?').matches('a\udcff') is True


@pytest.mark.parametrize(
    ('pattern', 'prefix'),
    [
        ('src/pkg/*.py', 'src/pkg'),
        ('src/p*/a', 'src'),
        ('a.py', ''),
        ('**/a', ''),
        ('.github/**', '.github'),
        ('{a,b}/c', ''),
    ],
)
def test_literal_prefix_is_the_start_of_a_walk(pattern: str, prefix: str) -> None:
    assert compile_glob(pattern).literal_prefix == prefix
