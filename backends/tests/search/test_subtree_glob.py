"""Globs for a subdirectory: they match the same files as the whole glob."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pydantic_deep_backends.errors import InvalidPatternError
from pydantic_deep_backends.search import compile_glob
from pydantic_deep_backends.search._subtree_glob import subtree_glob

from .conftest import components, globs


def whole(piece: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return piece | st.lists(piece, min_size=1, max_size=3).map(lambda branches: '{' + ','.join(branches) + '}')


@given(
    path=st.lists(components, min_size=2, max_size=5),
    depth=st.integers(0, 3),
    pattern=whole(whole(globs | st.sampled_from(['a,b/**', '[a/]/**', '**/}/**', './/a', '']))),
)
@example(path=['a', 'a', 'b.py'], depth=2, pattern='{a/**,b}/*.py')
@example(path=['a', 'b.py'], depth=1, pattern='{a/,b}{**,*}*')
@example(path=['a', 'b.py'], depth=1, pattern='{a,}/{,/}b.py')
@example(path=['a', '.h', 'b.py'], depth=1, pattern='a{/,/.}h/{,**/}b.py')
@example(path=['a', 'a', 'b.py'], depth=1, pattern='{**,b}/{a/,}*.py')
@example(path=['a', '.h', 'b.py'], depth=2, pattern='**/b.py')
@example(path=['a', 'b.py'], depth=1, pattern='{a/..,./a}')
@example(path=['a', 'b.py'], depth=1, pattern='{a/**,**/b.py}')
@example(path=['a,b', 'b.py'], depth=1, pattern='a,b/**/{a,b}.py')
@example(path=['a,b', 'a,b', 'b.py'], depth=1, pattern='**/a,b/**/b.py')
@example(path=['a', 'a', 'b.py'], depth=1, pattern='**/a/' * 190 + 'b')
@example(path=['a', 'b.py'], depth=1, pattern='[!/]/[^]b].py')
@example(path=['a', 'b.py'], depth=1, pattern='[a/]/**')
@example(path=['a', 'b.py'], depth=1, pattern='a/{b*,c/d}*py')
def test_subtree_glob_matches_the_same_files_as_the_whole_glob(path: list[str], depth: int, pattern: str) -> None:
    try:
        glob = compile_glob(pattern)
    except InvalidPatternError:
        return
    names, rest = path[:depth], '/'.join(path[depth:])
    below = subtree_glob(pattern, names)
    assume(rest and below is not None)
    is_found, may_contain = glob.matches('/'.join(path)), glob.may_contain('/'.join(path))
    if not below:
        assert not is_found
        return
    assert compile_glob(below).matches(rest) == is_found
    assert may_contain or not compile_glob(below).may_contain(rest)


@pytest.mark.parametrize(
    ('pattern', 'expected'),
    [
        ('**', '**'),
        ('**/*.py', '**/*.py'),
        ('m/**', '**'),
        ('m/*.py', '*.py'),
        ('*.py', ''),
        ('{src,m}/**/[ab].py', '**/[ab].py'),
        ('**/m/a', '{a,**/m/a}'),
        ('{m/**/*.py,docs/**,{m/a,b}}', '{**/*.py,a}'),
        ('{m,src/b}/a', 'a'),
        ('{m,**}/a', '{a,**/a}'),
        ('m{/,/a/}b', '{b,a/b}'),
        ('m{/a,}/*.py', '{a/*.py,*.py}'),
        ('{m/a,}', 'a'),
        ('{m/../a,b}', None),
        ('{../a,b}', ''),
        ('m/{/a,b,.,}', 'b'),
        ('{m/,x}**', '*'),
        ('{m/,x}{*,y}*', '{*,y}*'),
        ('m/{[,}],a/b}', '{[,}],a/b}'),
        ('{{m/a,b},c}/{**/d,e}', '{a/**/d,a/e}'),
        ('{a/,b/}' * 9 + 'c', None),
        ('**/m/' * 180 + 'a', None),
    ],
)
def test_subtree_glob_is_rendered_concisely(pattern: str, expected: str | None) -> None:
    assert subtree_glob(pattern, ['m']) == expected
