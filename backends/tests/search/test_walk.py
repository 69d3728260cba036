"""The walk of a search: listed directories and reported problems."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import pytest

from pydantic_deep_backends.search import SearchProblem, compile_glob, glob_tree, grep_tree
from pydantic_deep_backends.search._walk import Walk, error_reason

from .conftest import DirectoryTree


@dataclass
class FakeTree:
    """A tree with configured names, contents and errors."""

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


def test_only_directories_with_possible_matches_are_listed(glob_root: Path) -> None:
    tree = DirectoryTree(glob_root)
    glob_tree(tree, 'src/*/*.py')
    assert tree.scanned == ['src', 'src/pkg']


def test_unreadable_directory_is_reported_and_does_not_hide_others() -> None:
    tree = FakeTree(
        {'': [('bad', True), ('good', True)], 'bad': PermissionError(13, 'Permission denied'), 'good': [('a', False)]}
    )
    result = glob_tree(tree, '**')
    assert result.paths == ('/good/a',)
    assert result.problems == (SearchProblem(path='/bad', reason='Permission denied'),)
    assert grep_tree(tree, 'alpha').problems == result.problems


def test_unreadable_file_is_reported() -> None:
    tree = FakeTree({'': [('a', False)]}, contents=OSError(5, 'Input/output error'))
    result = grep_tree(tree, 'alpha', '/base')
    assert (result.problems, result.files_searched) == (
        (SearchProblem(path='/base/a', reason='Input/output error'),),
        0,
    )


def test_missing_glob_directory_is_ignored_but_a_missing_root_is_reported() -> None:
    assert glob_tree(FakeTree({}), 'src/*.py').problems == ()
    assert glob_tree(FakeTree({}), '*.py', '/r').problems == (
        SearchProblem(path='/r', reason='No such file or directory'),
    )


def test_walk_stops_at_its_budget_and_reports_it() -> None:
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
def test_invalid_name_is_reported(name: str, shown: str, pattern: str) -> None:
    result = glob_tree(FakeTree({'': [(name, False), ('ok.py', False)]}), pattern, '/r')
    assert result.paths == ('/r/ok.py',)
    assert [problem.path for problem in result.problems] == [shown]
    assert result.problems[0].reason.startswith('not a valid path: it contains')


def test_invalid_name_that_does_not_match_is_not_reported() -> None:
    assert glob_tree(FakeTree({'': [('a\nb.py', False)]}), '*.js', '/r').problems == ()


def test_names_invalid_only_at_the_root_are_reported_there() -> None:
    tree = FakeTree({'': [('~$draft.docx', False), ('C:', True)]})
    assert [problem.path for problem in glob_tree(tree, '**').problems] == ['/C:', '/~$draft.docx']
    assert glob_tree(tree, '*', '/r').paths == ('/r/~$draft.docx',)


def test_endless_directories_end_at_the_maximum_path_length() -> None:
    class Endless:
        def scan(self, directory: str) -> list[tuple[str, bool]]:
            return [('d', True), ('f', False)]

        def read(self, name: str) -> bytes:
            raise AssertionError

    result = glob_tree(Endless(), '**')
    assert len(result.paths) == 2048
    assert len(result.problems) == 2
    assert all('At most 4,096' in problem.reason for problem in result.problems)


def test_unusual_valid_names_are_found() -> None:
    names = ['gnp.\u202eexe', 'é', '~', 'a b', '日本']
    assert glob_tree(FakeTree({'': [(name, False) for name in names]}), '*', '/r').paths == tuple(
        sorted(f'/r/{n}' for n in names)
    )


def test_results_do_not_depend_on_listing_order() -> None:
    entries = [('a', False), ('a-b', True), ('a.d', True)]
    results = [
        glob_tree(FakeTree({'': list(order), 'a-b': [('x', False)], 'a.d': [('x', False)]}), '**')
        for order in permutations(entries)
    ]
    assert {result.paths for result in results} == {('/a', '/a-b/x', '/a.d/x')}


def test_walk_can_be_driven_by_custom_backends() -> None:
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


def test_error_without_text_is_named_by_its_type() -> None:
    assert error_reason(TimeoutError()) == 'TimeoutError'
