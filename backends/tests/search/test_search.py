"""Search: the table of cases, the laws of the dialect, and what is reported instead of hidden."""

from __future__ import annotations

import codecs
import glob as standard_glob
import os
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic_ai.workspaces import LocalWorkspaceBackend

import pydantic_deep_backends.search._grep as grep_module
from pydantic_deep_backends.errors import InvalidPatternError
from pydantic_deep_backends.protocol import BackendProtocol
from pydantic_deep_backends.search import (
    MAX_FILE_BYTES,
    MAX_LINE_CHARS,
    GrepMatch,
    GrepResult,
    SearchableFiles,
    SearchProblem,
    glob_backend,
    glob_tree,
    grep_backend,
    grep_file,
    grep_tree,
    split_lines,
)
from pydantic_deep_backends.search._cases import (
    GLOB_CASES,
    GLOB_FILES,
    GREP_CASES,
    GREP_FILES,
    INVALID_GLOBS,
    INVALID_REGEXES,
    GlobCase,
    GrepCase,
)
from pydantic_deep_backends.search._glob import compile_glob
from pydantic_deep_backends.search._glob_syntax import parse_glob, render_directories, render_files
from pydantic_deep_backends.search._grep import GrepBuilder, compile_grep
from pydantic_deep_backends.search._regex import MAX_PROGRAM_SIZE, compile_regex
from pydantic_deep_backends.search._regex_analysis import required_literal
from pydantic_deep_backends.search._subtree_glob import subtree_glob
from pydantic_deep_backends.search._walk import Walk, error_reason
from pydantic_deep_backends.state import StateBackend

HOSTILE_REGEXES = [
    ('(a+)+$', False), ('(a|aa)+$', False), ('(a|a?)+$', True), ('(.*a){20}$', False), ('([a-zA-Z]+)*$', True),
    ('(a*)*b', False), ('(a?){30}a{30}', True), ('(x+x+)+y', False), ('((a+)*)*c', False), (r'(\w+\s?)*$', True),
    ('^(([a-z])+.)+[A-Z]([a-z])+$', False), ('(?:a|b|ab)*c', False), ('(.+)+x', False), (r'^(\d+)*$', False),
    ('(((a*)*)*)*b', False), ('(a|b)*a(a|b){12}c', False), (r'(\pL+)+\d', False),
]  # fmt: skip


class DirectoryTree:
    """A directory on disk, listed and read as the local backend does it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._current = root
        self.scanned: list[str] = []
        self.read_count = 0

    def scan(self, directory: str) -> Iterator[tuple[str, bool]]:
        self.scanned.append(directory)
        self._current = self._root / directory
        with os.scandir(self._current) as entries:
            yield from [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]

    def read(self, name: str) -> bytes:
        self.read_count += 1
        return (self._current / name).read_bytes()


@dataclass
class FakeTree:
    """A tree that answers as it is told: names, contents, and errors in the place of either."""

    directories: dict[str, list[tuple[str, bool]] | OSError]
    contents: bytes | OSError = b'alpha\n'

    def scan(self, directory: str) -> Iterable[tuple[str, bool]]:
        entries = self.directories.get(directory, FileNotFoundError(2, 'No such file or directory'))
        if isinstance(entries, OSError):
            raise entries
        return entries

    def read(self, name: str) -> bytes:
        if isinstance(self.contents, OSError):
            raise self.contents
        return self.contents


@dataclass(frozen=True)
class Entry:
    name: str
    is_dir: bool = False
    size: int | None = None
    path: str = ''


@dataclass
class FakeFiles:
    """A backend without `realpath`, of which some parts fail."""

    directories: dict[str, list[Entry] | OSError]
    contents: dict[str, bytes | OSError] = field(default_factory=dict[str, bytes | OSError])

    async def read_bytes(self, path: str) -> bytes:
        data = self.contents[path]
        if isinstance(data, OSError):
            raise data
        return data

    async def stat(self, path: str) -> Entry:
        return Entry(path, is_dir=path in self.directories)

    async def list_dir(self, path: str) -> Sequence[Entry]:
        entries = self.directories[path]
        if isinstance(entries, OSError):
            raise entries
        return entries


@pytest.fixture(scope='module')
def glob_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory.mktemp('glob'), dict.fromkeys(GLOB_FILES, b''))


@pytest.fixture(scope='module')
def grep_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory.mktemp('grep'), dict(GREP_FILES))


def _written(root: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


def _grep(pattern: str, *files: bytes, limit: int = 1000) -> GrepResult:
    builder = GrepBuilder(compile_grep(pattern), limit)
    for index, data in enumerate(files):
        builder.add(f'/{index}', data)
    return builder.result()


def _lines(pattern: str, data: bytes) -> list[tuple[int, str]]:
    return [(match.line_number, match.line) for match in _grep(pattern, data).matches]


# The table


def test_the_table_is_large_enough_and_sorted() -> None:
    assert len(GLOB_CASES) >= 60
    assert len(GREP_CASES) >= 40
    for case in GLOB_CASES:
        assert list(case.expected) == sorted(case.expected)
    for case in GREP_CASES:
        assert list(case.expected) == sorted(case.expected)


@pytest.mark.parametrize('case', GLOB_CASES, ids=lambda case: f'{case.path}-{case.pattern}')
def test_a_tree_answers_the_table_of_globs(case: GlobCase, glob_root: Path) -> None:
    result = glob_tree(DirectoryTree(glob_root / case.path), case.pattern, '/base')
    prefix = '' if case.path == '.' else f'{case.path}/'
    assert tuple(prefix + path.removeprefix('/base/') for path in result.paths) == case.expected
    assert result.problems == ()


@pytest.mark.anyio
@pytest.mark.parametrize('case', GLOB_CASES, ids=lambda case: f'{case.path}-{case.pattern}')
async def test_any_workspace_answers_the_table_of_globs(case: GlobCase, glob_root: Path) -> None:
    backend = LocalWorkspaceBackend(glob_root)
    result = await glob_backend(backend, case.pattern, str(glob_root / case.path))
    assert tuple(path.removeprefix(f'{glob_root}/') for path in result.paths) == case.expected
    assert result.problems == ()


@pytest.mark.parametrize('case', GREP_CASES, ids=lambda case: f'{case.path}-{case.glob}-{case.pattern}')
def test_a_tree_answers_the_table_of_regular_expressions(case: GrepCase, grep_root: Path) -> None:
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


@pytest.mark.anyio
@pytest.mark.parametrize('case', GREP_CASES, ids=lambda case: f'{case.path}-{case.glob}-{case.pattern}')
async def test_any_workspace_answers_the_table_of_regular_expressions(case: GrepCase, grep_root: Path) -> None:
    backend = LocalWorkspaceBackend(grep_root)
    result = await grep_backend(backend, case.pattern, str(grep_root / case.path), glob=case.glob)
    found = ((match.path.removeprefix(f'{grep_root}/'), match.line_number, match.line) for match in result.matches)
    assert tuple(found) == case.expected


@pytest.mark.parametrize('pattern', INVALID_GLOBS)
def test_an_invalid_glob_is_refused_with_what_to_do(pattern: str) -> None:
    with pytest.raises(InvalidPatternError, match=r'\. \S.*\.$') as caught:
        compile_glob(pattern)
    assert caught.value.pattern == pattern


@pytest.mark.parametrize('pattern', INVALID_REGEXES)
def test_an_invalid_regular_expression_is_refused_with_what_to_do(pattern: str) -> None:
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
def test_what_re2_has_not_is_named(pattern: str, feature: str) -> None:
    with pytest.raises(InvalidPatternError, match=feature):
        compile_grep(pattern)


# Globs


components = st.sampled_from(['a', 'b.py', '.env', '.h', 'ab', '.'])
files = st.lists(
    st.lists(components.filter(lambda name: name != '.'), min_size=1, max_size=4).map('/'.join),
    min_size=1, max_size=8, unique=True,
)  # fmt: skip
pieces = st.sampled_from(
    ['a', 'b', '.', '*', '?', '[ab]', '[!a]', '[^.]', '.py', '.*', '*.py', '.env', '{a,b}', '{,a}', '{.h,*}']
)
glob_components = st.lists(pieces, min_size=1, max_size=3).map(''.join) | st.just('**') | st.just('{a,{b,**}}')
globs = st.lists(glob_components, min_size=1, max_size=4).map('/'.join)


def _expanded(pattern: str) -> set[str]:
    """Expand innermost braces first, as a shell would: exponential, and only for the comparison."""
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
def test_a_glob_finds_what_the_standard_library_finds(
    paths: list[str], pattern: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp('oracle')
    for path in paths:
        if (
            not any((root / path).parents[i].is_file() for i in range(len(path.split('/'))))
            and not (root / path).exists()
        ):
            _written(root, {path: b''})
    try:
        found = glob_tree(DirectoryTree(root), pattern).paths
    except InvalidPatternError:
        return
    plain_patterns = _expanded(pattern.replace('**', 'RECURSIVE'))
    # Two `*` of neighbouring alternatives are no `**` here, and are one to a shell.
    assume(not any('**' in plain for plain in plain_patterns))
    # Alternatives that leave an empty component, `.` or `..` mean something else to the standard library.
    assume(not any({'', '.', '..'} & set(plain.split('/')) for plain in plain_patterns))
    expected: set[str] = set()
    for plain in plain_patterns:
        # The standard library knows `[!a]` only, and gives a file `a` as `a/` for `a/**`.
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
def test_a_glob_below_a_directory_finds_what_the_whole_one_finds_there(
    path: list[str], depth: int, pattern: str
) -> None:
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
def test_a_glob_below_a_directory_is_what_one_would_write_there(pattern: str, expected: str | None) -> None:
    assert subtree_glob(pattern, ['m']) == expected


@given(paths=files, pattern=st.sampled_from(['**', '**/*', '**/*.py', '**/*v']))
def test_the_short_way_for_suffixes_is_the_regex(paths: list[str], pattern: str) -> None:
    glob = compile_glob(pattern)
    same = compile_glob(pattern.replace('**', '{**,**}', 1))
    assert [glob.matches(path) for path in paths] == [same.matches(path) for path in paths]


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
def test_a_glob_stays_linear_in_its_length(pattern: str) -> None:
    nodes = parse_glob(pattern)
    for rendered in (render_files(nodes), render_directories(nodes)):
        assert len(rendered) <= 60 * len(pattern)
        assert compile_regex(rendered, shown=pattern, within_lines=False).programsize <= MAX_PROGRAM_SIZE
    assert compile_glob(pattern).matches('b' * 5000 + '/') is False


def test_a_glob_that_compiles_too_large_is_refused() -> None:
    with pytest.raises(InvalidPatternError, match='too large once compiled'):
        compile_glob('{' * 40 + '{' + '?' * 800 + ',b}' + '}/' * 40 + 'a')


def test_a_name_that_is_not_unicode_is_no_error() -> None:
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
def test_the_literal_prefix_is_where_a_walk_starts(pattern: str, prefix: str) -> None:
    assert compile_glob(pattern).literal_prefix == prefix


def test_only_directories_that_may_hold_matches_are_listed(glob_root: Path) -> None:
    tree = DirectoryTree(glob_root)
    glob_tree(tree, 'src/*/*.py')
    assert tree.scanned == ['src', 'src/pkg']


# The walk


def test_an_unreadable_directory_is_reported_and_hides_nothing() -> None:
    tree = FakeTree(
        {'': [('bad', True), ('good', True)], 'bad': PermissionError(13, 'Permission denied'), 'good': [('a', False)]}
    )
    result = glob_tree(tree, '**')
    assert result.paths == ('/good/a',)
    assert result.problems == (SearchProblem(path='/bad', reason='Permission denied'),)
    assert grep_tree(tree, 'alpha').problems == result.problems


def test_an_unreadable_file_is_reported_and_hides_nothing() -> None:
    tree = FakeTree({'': [('a', False)]}, contents=OSError(5, 'Input/output error'))
    result = grep_tree(tree, 'alpha', '/base')
    assert (result.problems, result.files_searched) == (
        (SearchProblem(path='/base/a', reason='Input/output error'),),
        0,
    )


def test_a_directory_that_the_glob_names_may_be_missing_but_the_root_may_not() -> None:
    assert glob_tree(FakeTree({}), 'src/*.py').problems == ()
    assert glob_tree(FakeTree({}), '*.py', '/r').problems == (
        SearchProblem(path='/r', reason='No such file or directory'),
    )


def test_a_walk_stops_at_its_budget_and_says_so() -> None:
    tree = FakeTree({'': [('a', False), ('b', True), ('c', False)], 'b': [('d', False), ('e', False)]})
    result = glob_tree(tree, '**', max_entries=4)
    assert result.paths == ('/a', '/b/d', '/c')
    assert result.problems == (
        SearchProblem(path='/', reason='stopped after 4 entries. Search in a smaller directory.'),
    )
    assert glob_tree(tree, '**', max_entries=5).problems == ()
    assert glob_tree(tree, '**', max_entries=2).paths == ('/a',)
    assert len(grep_tree(tree, 'alpha', max_entries=4).problems) == 1


@pytest.mark.parametrize(
    ('name', 'shown', 'pattern'),
    [
        ('a\nb.py', r'/r/a\nb.py', '*.py'),
        ('a\\b', r'/r/a\b', '**'),
        ('a\udcff', r'/r/a\udcff', '?*'),
        ('a\x85', r'/r/a\x85', '*'),
    ],
)
def test_a_name_that_is_no_valid_path_is_reported(name: str, shown: str, pattern: str) -> None:
    result = glob_tree(FakeTree({'': [(name, False), ('ok.py', False)]}), pattern, '/r')
    assert result.paths == ('/r/ok.py',)
    assert [problem.path for problem in result.problems] == [shown]
    assert result.problems[0].reason.startswith('not a valid path: it contains')


def test_an_invalid_name_that_nobody_asked_for_is_not_reported() -> None:
    assert glob_tree(FakeTree({'': [('a\nb.py', False)]}), '*.js', '/r').problems == ()


def test_names_that_are_refused_only_at_the_root_are_reported_there() -> None:
    tree = FakeTree({'': [('~$draft.docx', False), ('C:', True)]})
    assert [problem.path for problem in glob_tree(tree, '**').problems] == ['/C:', '/~$draft.docx']
    assert glob_tree(tree, '*', '/r').paths == ('/r/~$draft.docx',)


def test_five_thousand_levels_end_where_paths_end() -> None:
    class Endless:
        def scan(self, directory: str) -> list[tuple[str, bool]]:
            return [('d', True), ('f', False)]

        def read(self, name: str) -> bytes:
            raise AssertionError

    result = glob_tree(Endless(), '**')
    assert len(result.paths) == 2048
    assert len(result.problems) == 2
    assert all('At most 4,096' in problem.reason for problem in result.problems)


def test_unusual_good_names_are_found() -> None:
    names = ['gnp.\u202eexe', 'é', '~', 'a b', '日本']
    assert glob_tree(FakeTree({'': [(name, False) for name in names]}), '*', '/r').paths == tuple(
        sorted(f'/r/{n}' for n in names)
    )


def test_results_do_not_depend_on_the_order_of_listings() -> None:
    entries = [('a', False), ('a-b', True), ('a.d', True)]
    results = [
        glob_tree(FakeTree({'': list(order), 'a-b': [('x', False)], 'a.d': [('x', False)]}), '**')
        for order in permutations(entries)
    ]
    assert {result.paths for result in results} == {('/a', '/a-b/x', '/a.d/x')}


def test_the_walk_is_open_to_backends_of_one_s_own() -> None:
    walk = Walk(compile_glob('*/x'), '/r')
    assert walk.next_directory() == ''
    assert walk.take([('b', True), ('x', False), ('a', True)]) == []
    assert walk.next_directory() == 'a'
    assert walk.take([('x', False)]) == ['x']
    assert walk.paths_of(['x']) == ['/r/a/x']
    assert walk.next_directory() == 'b'
    walk.skip(OSError('odd'))
    assert walk.next_directory() is None
    assert walk.problems == [SearchProblem(path='/r/b', reason='odd')]


def test_an_error_without_text_is_named_by_its_type() -> None:
    assert error_reason(TimeoutError()) == 'TimeoutError'


# Lines


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
def test_lines_of_grep_are_lines_of_split_lines(text: str) -> None:
    expected = [line.removesuffix('\n') for line in split_lines(text.replace('\r\n', '\n'))]
    assert [line for _, line in _lines('.*', text.encode())] == expected


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
def test_each_line_is_matched_as_if_it_were_alone(pattern: str, text: str) -> None:
    try:
        compiled = compile_grep(pattern)
    except InvalidPatternError:
        return
    alone = compile_regex(pattern, shown=pattern, within_lines=True)
    lines = split_lines(text.replace('\r\n', '\n'))
    expected = [number for number, line in enumerate(lines, 1) if alone.search(line.removesuffix('\n').encode())]
    data = text.encode().replace(b'\r\n', b'\n')
    assert [found.line_number for found in compiled.search(data)] == expected
    assert [number for number, _ in _lines(pattern, text.encode())] == expected


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
def test_the_required_literal_is_found_only_where_it_is_certain(pattern: str, literal: bytes) -> None:
    assert required_literal(pattern) == literal


def test_a_file_without_the_literal_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    to_utf8: Callable[[bytes], bytes] = getattr(grep_module, '_to_utf8')  # noqa: B009  # counts calls of a private step

    def counted(data: bytes) -> bytes:
        decoded.append(data)
        return to_utf8(data)

    monkeypatch.setattr(grep_module, '_to_utf8', counted)
    result = _grep('needle', b'hay', b'needle', b'more hay', codecs.BOM_UTF16_LE + 'hay'.encode('utf-16-le'))
    assert result.counts == {'/1': 1}
    assert result.files_searched == 4
    assert len(decoded) == 2


@pytest.mark.parametrize(('pattern', 'matches'), HOSTILE_REGEXES)
def test_a_hostile_expression_compiles_small_and_answers(pattern: str, matches: bool) -> None:
    assert compile_regex(pattern, shown=pattern, within_lines=True).programsize < 10_000
    assert _grep(pattern, b'a' * 100_000 + b'!\n').counts == ({'/0': 1} if matches else {})


# Files


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
def test_contents_become_lines_or_are_binary(data: bytes, lines: list[str] | None) -> None:
    result = grep_file('/f', data, '.*', limit=5000)
    assert result.files_searched == (lines is not None)
    assert [match.line for match in result.matches] == (lines or [])


@pytest.mark.parametrize('search', [StateBackend.grep, grep_backend])
@pytest.mark.parametrize('path', ['/', '/f'])
async def test_no_file_is_searched_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, search: Callable[[StateBackend, str, str], Awaitable[GrepResult]], path: str
) -> None:
    """An expression may cost seconds for a megabyte."""
    threads: list[threading.Thread] = []
    search_text = grep_module.LinePattern.search

    def watched(pattern: grep_module.LinePattern, text: bytes) -> Iterator[grep_module.FoundLine]:
        threads.append(threading.current_thread())
        return search_text(pattern, text)

    monkeypatch.setattr(grep_module.LinePattern, 'search', watched)
    assert (await search(StateBackend({'/f': 'x', '/g': 'y'}), 'x', path)).counts == {'/f': 1}
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize(('limit', 'value'), [('_BATCH_BYTES', 2), ('_BATCH_FILES', 2)])
async def test_files_are_searched_before_all_of_them_are_read(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    backend = StateBackend({f'/{number}': 'x' for number in range(5)})
    whole = await grep_backend(backend, 'x')
    monkeypatch.setattr(f'pydantic_deep_backends.search._backend_search.{limit}', value)
    assert await grep_backend(backend, 'x') == whole
    assert len(whole.counts) == 5


def test_a_binary_file_is_not_counted_as_searched() -> None:
    assert _grep('a', b'a\0', b'a').files_searched == 1


def test_a_file_over_the_limit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep_module, 'MAX_FILE_BYTES', 10)
    result = _grep('a', b'a' * 11, b'a' * 10)
    assert result.counts == {'/1': 1}
    assert result.problems == (SearchProblem(path='/0', reason='it has 11 bytes; files over 10 are not searched.'),)


def test_a_line_of_fifty_megabytes_is_searched_once_and_cut() -> None:
    data = b'x' * 25_000_000 + 'ä needle ö'.encode() + b'y' * 25_000_000
    matches = _grep('needle', data).matches
    assert len(matches) == 1
    assert len(matches[0].line) == MAX_LINE_CHARS
    assert matches[0].line.startswith('…xxx')
    assert 'ä needle ö' in matches[0].line
    assert matches[0].line.endswith('yyy…')


@pytest.mark.parametrize('unit', ['x', 'é', '日', '😀'])
@pytest.mark.parametrize('before', [0, 5, 199, 201, 1000, 1990, 1998, 5000])
@pytest.mark.parametrize('after', [0, 5, 201, 1000, 1990, 5000])
def test_a_long_line_is_cut_around_its_match(unit: str, before: int, after: int) -> None:
    line = unit * before + '!' + unit * after
    ((number, shown),) = _lines('!', b'first\n' + line.encode() + b'\nlast')
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
def test_the_limit_keeps_the_first_lines_and_complete_counts(limit: int) -> None:
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
def test_what_is_kept_meanwhile_is_bounded(step: int) -> None:
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


# Any backend


pytestmark = pytest.mark.anyio


async def test_a_glob_in_a_file_is_an_error(grep_root: Path) -> None:
    with pytest.raises(NotADirectoryError, match='is a file'):
        await glob_backend(LocalWorkspaceBackend(grep_root), '*', str(grep_root / 'bom.txt'))


async def test_a_search_in_what_is_missing_is_an_error(grep_root: Path) -> None:
    backend = LocalWorkspaceBackend(grep_root)
    with pytest.raises(FileNotFoundError):
        await glob_backend(backend, '*', str(grep_root / 'missing'))
    with pytest.raises(FileNotFoundError):
        await grep_backend(backend, 'x', str(grep_root / 'missing'))


async def test_a_cycle_of_links_is_not_followed(tmp_path: Path) -> None:
    _written(tmp_path, {'real/a.py': b'alpha\n'})
    (tmp_path / 'real' / 'loop').symlink_to('..')
    (tmp_path / 'link').symlink_to('real')
    (tmp_path / 'file.py').symlink_to('real/a.py')
    backend = LocalWorkspaceBackend(tmp_path)
    result = await glob_backend(backend, '**/*.py', str(tmp_path))
    assert result.paths == (str(tmp_path / 'file.py'), str(tmp_path / 'real/a.py'))
    assert (await glob_backend(backend, 'link/*.py', str(tmp_path))).paths == ()
    assert (await glob_backend(backend, '*.py', str(tmp_path / 'link'))).paths == (str(tmp_path / 'link/a.py'),)
    assert (await grep_backend(backend, 'alpha', str(tmp_path / 'link'))).counts == {str(tmp_path / 'link/a.py'): 1}


async def test_parts_of_a_backend_that_fail_are_reported() -> None:
    backend = FakeFiles(
        {
            '/': [Entry('bad', is_dir=True), Entry('a', size=6), Entry('b'), Entry('huge', size=MAX_FILE_BYTES + 1)],
            '/bad': PermissionError(13, 'Permission denied'),
        },
        {'/a': b'alpha\n', '/b': OSError(5, 'Input/output error')},
    )
    problem = SearchProblem(path='/bad', reason='Permission denied')
    result = await glob_backend(backend, '**')
    assert (result.paths, result.problems) == (('/a', '/b', '/huge'), (problem,))
    found = await grep_backend(backend, 'alpha')
    assert found.matches == (GrepMatch(path='/a', line_number=1, line='alpha'),)
    assert [reported.path for reported in found.problems] == ['/b', '/bad', '/huge']
    assert 'files over 67,108,864 are not searched' in found.problems[2].reason


async def test_a_search_of_a_backend_stops_at_its_budget() -> None:
    backend = FakeFiles({'/': [Entry('a'), Entry('b')]}, {'/a': b'x', '/b': b'x'})
    assert (await glob_backend(backend, '**', max_entries=1)).paths == ('/a',)
    assert len((await grep_backend(backend, 'x', max_entries=1)).problems) == 1


def test_every_backend_is_searchable_by_its_type() -> None:
    def accepts(backend: BackendProtocol) -> SearchableFiles:
        return backend

    assert callable(accepts)
