"""Trees: properties of an immutable map, and comparison of two trees."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given

from pydantic_deep_backends.errors import InvalidPathError
from pydantic_deep_backends.snapshots import FileVersion, Tree, TreeDiff, digest_of

from .conftest import FILES, NUMBERS, PATHS, TREES, VERSIONS, numbered, tree_of, version_of, without_clashes

# Values


def test_digest_names_its_algorithm() -> None:
    assert digest_of(b'abc') == 'sha256:' + hashlib.sha256(b'abc').hexdigest()


@pytest.mark.parametrize(
    ('digest', 'size', 'mode'),
    [
        ('sha256:' + '0' * 64, 0, 0o600),
        ('sha256:' + '0' * 64, -1, 0o644),
        ('sha256:' + '0' * 64, 2**63, 0o644),
        ('0' * 64, 0, 0o644),
        ('sha256:' + 'G' * 64, 0, 0o644),
        ('sha256:' + '0' * 64 + '\n', 0, 0o644),
    ],
)
def test_invalid_version_is_refused(digest: str, size: int, mode: int) -> None:
    with pytest.raises(ValueError, match=r'Use|Give'):
        FileVersion(digest=digest, size=size, mode=mode)


def test_versions_compare_by_value() -> None:
    assert version_of(b'a') == version_of(b'a')
    assert hash(version_of(b'a')) == hash(version_of(b'a'))
    assert version_of(b'a') != version_of(b'a', 0o755)
    assert version_of(b'a') != 'a'


def test_diff_is_true_if_anything_changed() -> None:
    assert not TreeDiff()
    assert TreeDiff(added=('/a',))
    assert TreeDiff(removed=('/a',))
    assert TreeDiff(changed=('/a',))


# Mapping


def test_empty_tree_has_no_files() -> None:
    assert len(Tree()) == 0
    assert list(Tree()) == []
    assert Tree() == Tree.of({})
    assert Tree().get('/a') is None


@given(FILES)
def test_tree_equals_the_mapping_it_was_made_from(files: dict[str, FileVersion]) -> None:
    tree = Tree.of(files)
    assert list(tree.items()) == sorted(files.items())
    assert len(tree) == len(files)
    assert all(path in tree and tree.get(path) == tree[path] == files[path] for path in files)


@given(FILES, PATHS, VERSIONS)
def test_set_and_remove_agree_with_a_dict(files: dict[str, FileVersion], path: str, version: FileVersion) -> None:
    before = Tree.of(files)
    expected = {**files, path: version}
    if without_clashes(expected) != expected:
        with pytest.raises((IsADirectoryError, NotADirectoryError)):
            before.set(path, version)
        return
    after = before.set(path, version)
    assert dict(after.items()) == expected
    assert dict(before.items()) == files
    assert dict(after.remove(path).items()) == {p: v for p, v in files.items() if p != path}


@given(TREES, TREES)
def test_trees_are_equal_only_if_their_files_are_equal(one: Tree, two: Tree) -> None:
    assert (one == two) == (dict(one.items()) == dict(two.items()))


def test_tree_equals_only_trees() -> None:
    assert Tree() != {}
    assert (Tree() == 1) is False


def test_tree_contains_only_file_paths() -> None:
    tree = tree_of({'/a/b': b'x'})
    assert '/a/b' in tree
    assert '/a' not in tree
    assert '/a/b/c' not in tree
    with pytest.raises(KeyError, match='/a'):
        tree['/a']
    assert 'a/b' not in tree
    assert 1 not in tree


def test_large_directory_contains_exactly_the_given_names() -> None:
    tree = numbered(range(1_200))
    assert [number for number in range(4_000) if f'/d/{number}' in tree] == list(range(1_200))
    assert list(tree) == sorted(f'/d/{number}' for number in range(1_200))


def test_tree_repr_contains_no_file_name() -> None:
    assert repr(tree_of({'/secret': b'x'})).startswith('<Tree of 1 files, sha256:')
    assert 'secret' not in repr(tree_of({'/secret': b'x'}))


@pytest.mark.parametrize('path', ['', 'a', '/', '/a/', '//a', '/a/./b', '/a/../b', '/..', '/' + 'a' * 16_384])
def test_a_malformed_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidPathError):
        Tree().set(path, version_of(b''))
    with pytest.raises((InvalidPathError, IsADirectoryError)):
        Tree.of({path: version_of(b'')})


def test_path_cannot_be_a_file_and_a_directory() -> None:
    tree = tree_of({'/a/b': b'x'})
    with pytest.raises(IsADirectoryError, match="'/a' is a directory"):
        tree.set('/a', version_of(b''))
    with pytest.raises(NotADirectoryError, match='file and a directory at once'):
        tree.set('/a/b/c/d', version_of(b''))
    with pytest.raises(NotADirectoryError, match='file and a directory at once'):
        tree_of({'/a': b'', '/a/b/c': b''})


def test_removing_a_directory_raises() -> None:
    with pytest.raises(KeyError):
        tree_of({'/a/b': b'x'}).remove('/a')


def test_path_with_two_thousand_components_is_valid() -> None:
    path = '/a' * 2000
    tree = tree_of({path: b'x'})
    assert list(tree) == [path]
    assert tree.digest == Tree().set(path, version_of(b'x')).digest
    assert Tree().diff(tree).added == (path,)
    assert tree.remove(path) == Tree()
    assert Tree.from_nodes(tree.digest, dict(tree.nodes())) == tree


# Directories


def test_entries_returns_the_names_of_one_directory() -> None:
    tree = tree_of({'/b': b'', '/a/x/y': b'1', '/a-b': b'2'})
    assert tree.entries() == {'a': tree_of({'/x/y': b'1'}), 'a-b': version_of(b'2'), 'b': version_of(b'')}
    assert list(tree.entries()) == ['a', 'a-b', 'b']
    assert list(tree.entries('/a')) == ['x']
    assert tree.entries('/b') == {}
    assert tree.entries('/none') == {}


def test_directories_exist_only_above_files() -> None:
    tree = tree_of({'/a/b': b''})
    assert [path for path in ('/', '/a', '/a/b', '/c') if tree.is_dir(path)] == ['/', '/a']
    assert Tree().is_dir('/')


def test_file_above_returns_the_file_above_a_path() -> None:
    tree = tree_of({'/a/b': b'', '/c': b''})
    assert tree.file_above('/a/b/c/d') == '/a/b'
    assert tree.file_above('/c/d') == '/c'
    assert [tree.file_above(path) for path in ('/', '/a', '/a/b', '/a/x/y', '/x/y/z')] == [None] * 5


def test_subtree_has_relative_paths() -> None:
    tree = tree_of({'/a/b/c': b'1', '/d': b'2'})
    assert tree.subtree('/a') == tree_of({'/b/c': b'1'})
    assert tree.subtree('/') is not None
    assert tree.subtree('/') == tree
    assert tree.subtree('/d') == Tree()


def test_graft_replaces_a_directory() -> None:
    tree = tree_of({'/a/b': b'1', '/c': b'2'})
    assert tree.graft('/a', tree_of({'/x': b'3'})) == tree_of({'/a/x': b'3', '/c': b'2'})
    assert tree.graft('/m/n', tree_of({'/x': b'3'})) == tree_of({'/a/b': b'1', '/c': b'2', '/m/n/x': b'3'})
    assert tree.graft('/a', Tree()) == tree_of({'/c': b'2'})
    assert tree.graft('/none/at/all', Tree()) == tree
    assert tree.graft('/', Tree()) == Tree()


@pytest.mark.parametrize('path', ['/c', '/c/d'])
def test_graft_never_replaces_a_file(path: str) -> None:
    with pytest.raises(NotADirectoryError):
        tree_of({'/c': b'2'}).graft(path, tree_of({'/x': b'3'}))


@given(TREES, TREES)
def test_grafted_tree_is_the_subtree(one: Tree, two: Tree) -> None:
    assert one.graft('/mount', two).subtree('/mount') == two
    assert one.graft('/mount', two).graft('/mount', Tree()) == one


# Differences


@given(TREES, TREES)
def test_applying_a_diff_gives_the_other_tree(one: Tree, two: Tree) -> None:
    diff = one.diff(two)
    result = one
    for path in diff.removed:
        result = result.remove(path)
    for path in (*diff.changed, *diff.added):
        wanted = two.get(path)
        assert wanted is not None
        result = result.set(path, wanted)
    assert result == two


@given(TREES, TREES)
def test_diff_equals_the_diff_of_dicts(one: Tree, two: Tree) -> None:
    before, after = dict(one.items()), dict(two.items())
    assert one.diff(two) == TreeDiff(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(sorted(path for path in before.keys() & after.keys() if before[path] != after[path])),
    )


@given(NUMBERS, NUMBERS)
def test_large_and_small_directories_are_compared(one: set[int], two: set[int]) -> None:
    diff = numbered(one).diff(numbered(two))
    assert set(diff.added) == {f'/d/{number}' for number in two - one}
    assert set(diff.removed) == {f'/d/{number}' for number in one - two}
    assert diff.changed == ()


# Encoding


@pytest.mark.slow
@given(TREES, TREES)
def test_with_changes_equals_successive_changes(before: Tree, after: Tree) -> None:
    """Setting and removing files together gives the tree with exactly these changes."""
    diff = before.diff(after)
    changes = dict.fromkeys(diff.removed) | {path: after[path] for path in (*diff.added, *diff.changed)}
    assert before.with_changes(changes) == after
    one_by_one = before
    for path in diff.removed:
        one_by_one = one_by_one.remove(path)
    assert before.with_changes(dict.fromkeys(diff.removed)) == one_by_one


def test_with_changes_updates_a_large_directory() -> None:
    before = tree_of({f'/d/{n}': b'' for n in range(3_000)})
    after = before.with_changes({'/d/7': None, '/d/new': version_of(b'1'), '/d/8': version_of(b'2')})
    assert (len(after), after.get('/d/7'), after['/d/new'].size, after['/d/8'].size) == (3_000, None, 1, 1)
    assert after == before.remove('/d/7').set('/d/new', version_of(b'1')).set('/d/8', version_of(b'2'))


def test_with_changes_refuses_a_file_and_directory_at_one_path() -> None:
    before, file = tree_of({'/a/b': b'', '/f': b''}), version_of(b'1')
    with pytest.raises(IsADirectoryError, match="'/a' is a directory"):
        before.with_changes({'/a': file})
    with pytest.raises(NotADirectoryError, match="'/f' would be"):
        before.with_changes({'/f/x': file})
    with pytest.raises(NotADirectoryError, match="'/n' would be"):
        before.with_changes({'/n': file, '/n/x': file})
    replaced = before.with_changes({'/a': file, '/a/b': None, '/f/x': file, '/f': None})
    assert dict(replaced.items()) == {'/a': file, '/f/x': file}
    assert before.with_changes({'/a': None, '/none': None, '/f/x': None, '/none/x/y': None}) == before
