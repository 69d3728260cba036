"""Search of a tree of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep_backends.search import glob_tree, grep_tree
from pydantic_deep_backends.search._cases import GLOB_CASES, GREP_CASES, GlobCase, GrepCase
from pydantic_deep_backends.search._grep import GrepBuilder, compile_grep

from .conftest import DirectoryTree


@pytest.mark.parametrize('case', GLOB_CASES, ids=lambda case: f'{case.path}-{case.pattern}')
def test_tree_search_matches_the_table_of_globs(case: GlobCase, glob_root: Path) -> None:
    result = glob_tree(DirectoryTree(glob_root / case.path), case.pattern, '/base')
    prefix = '' if case.path == '.' else f'{case.path}/'
    assert tuple(prefix + path.removeprefix('/base/') for path in result.paths) == case.expected
    assert result.problems == ()


@pytest.mark.parametrize('case', GREP_CASES, ids=lambda case: f'{case.path}-{case.glob}-{case.pattern}')
def test_tree_search_matches_the_table_of_regexes(case: GrepCase, grep_root: Path) -> None:
    target = grep_root / case.path
    if target.is_file():
        builder = GrepBuilder(compile_grep(case.pattern), 1000)
        builder.add(f'/{case.path}', target.read_bytes())
        result = builder.result()
    else:
        root = '/' if case.path == '.' else f'/{case.path}'
        result = grep_tree(DirectoryTree(target), case.pattern, root, glob=case.glob)
    assert tuple((match.path[1:], match.line_number, match.line) for match in result.matches) == case.expected
    assert sum(result.counts.values()) == len(case.expected)
    assert (result.problems, result.truncated) == ((), False)
