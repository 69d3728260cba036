"""Trees: the laws of an immutable map, what a change and a comparison cost, the encoding, and the merge."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydantic_deep_backends.errors import InvalidPathError, MissingBlobError
from pydantic_deep_backends.snapshots import (
    Conflict,
    FileVersion,
    Tree,
    TreeDiff,
    digest_of,
    merge_trees,
    needed_for_merge,
)

BLOBS = {
    digest_of(text): text for text in (b'', b'1\n2\n3\n4\n5\n', b'one\n2\n3\n4\n5\n', b'1\n2\n3\n4\nfive\n', b'\0')
}


def version_of(data: bytes, mode: int = 0o644) -> FileVersion:
    return FileVersion(digest=digest_of(data), size=len(data), mode=mode)


def tree_of(files: Mapping[str, bytes]) -> Tree:
    return Tree.of({path: version_of(data) for path, data in files.items()})


def merge_files(base: Mapping[str, bytes], ours: Mapping[str, bytes], theirs: Mapping[str, bytes]):
    blobs = {digest_of(data): data for files in (base, ours, theirs) for data in files.values()}
    return merge_trees(tree_of(base), tree_of(ours), tree_of(theirs), blobs)


def without_clashes(files: Mapping[str, FileVersion]) -> dict[str, FileVersion]:
    """Leave out the files that stand where a parent of another should be."""
    parents = {path[:end] for path in files for end in range(len(path)) if path[end] == '/'}
    return {path: version for path, version in files.items() if path not in parents}


NAMES = st.sampled_from(['a', 'b', 'a-b', 'a.b', 'é', '\udcff'])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: '/' + '/'.join(parts))
VERSIONS = st.builds(version_of, st.sampled_from(list(BLOBS.values())), st.sampled_from([0o644, 0o755]))
FILES = st.dictionaries(PATHS, VERSIONS, max_size=8).map(without_clashes)
TREES = FILES.map(Tree.of)


def numbers_in(first: int, count: int, flipped: set[int]) -> set[int]:
    return set(range(first, first + count)) ^ flipped


NUMBERS = st.builds(numbers_in, st.integers(0, 60), st.integers(0, 140), st.sets(st.integers(0, 200), max_size=8))
"""Sets around the size at which a directory is split."""


def numbered(numbers: Iterable[int]) -> Tree:
    return tree_of({f'/d/{number}': b'%d' % number for number in numbers})


# Values


def test_a_digest_names_its_algorithm() -> None:
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
def test_a_version_that_no_tree_can_hold_is_refused(digest: str, size: int, mode: int) -> None:
    with pytest.raises(ValueError, match=r'Use|Give'):
        FileVersion(digest=digest, size=size, mode=mode)


def test_versions_compare_by_value() -> None:
    assert version_of(b'a') == version_of(b'a')
    assert hash(version_of(b'a')) == hash(version_of(b'a'))
    assert version_of(b'a') != version_of(b'a', 0o755)
    assert version_of(b'a') != 'a'


def test_a_difference_is_true_if_anything_changed() -> None:
    assert not TreeDiff()
    assert TreeDiff(added=('/a',))
    assert TreeDiff(removed=('/a',))
    assert TreeDiff(changed=('/a',))


# The map


def test_the_empty_tree_has_no_files() -> None:
    assert len(Tree()) == 0
    assert list(Tree()) == []
    assert Tree() == Tree.of({})
    assert Tree().get('/a') is None


@given(FILES)
def test_a_tree_reads_as_the_mapping_it_was_made_of(files: dict[str, FileVersion]) -> None:
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


@given(FILES.flatmap(lambda files: st.tuples(st.just(files), st.permutations(list(files.items())))))
def test_equal_files_make_equal_trees_whatever_the_order(
    drawn: tuple[dict[str, FileVersion], list[tuple[str, FileVersion]]],
) -> None:
    files, shuffled = drawn
    tree = Tree()
    for path, version in shuffled:
        tree = tree.set(path, version)
    assert tree == Tree.of(files)
    assert hash(tree) == hash(Tree.of(files))


@given(NUMBERS, NUMBERS)
def test_a_directory_that_grows_and_shrinks_over_the_limit_keeps_one_form(one: set[int], two: set[int]) -> None:
    tree = numbered(one)
    for number in two - one:
        tree = tree.set(f'/d/{number}', version_of(b'%d' % number))
    assert tree.digest == numbered(one | two).digest
    for number in one:
        tree = tree.remove(f'/d/{number}')
    assert tree.digest == numbered(two - one).digest
    assert list(tree) == sorted(f'/d/{number}' for number in two - one)


@given(TREES, TREES)
def test_trees_are_equal_only_if_their_files_are(one: Tree, two: Tree) -> None:
    assert (one == two) == (dict(one.items()) == dict(two.items()))


def test_a_tree_equals_nothing_but_trees() -> None:
    assert Tree() != {}
    assert (Tree() == 1) is False


def test_a_tree_contains_paths_of_files_only() -> None:
    tree = tree_of({'/a/b': b'x'})
    assert '/a/b' in tree
    assert '/a' not in tree
    assert '/a/b/c' not in tree
    with pytest.raises(KeyError, match='/a'):
        tree['/a']
    assert 'a/b' not in tree
    assert 1 not in tree


def test_a_large_directory_has_the_names_it_was_given_and_no_others() -> None:
    tree = numbered(range(1_200))
    assert [number for number in range(4_000) if f'/d/{number}' in tree] == list(range(1_200))
    assert list(tree) == sorted(f'/d/{number}' for number in range(1_200))


def test_the_representation_names_no_file() -> None:
    assert repr(tree_of({'/secret': b'x'})).startswith('<Tree of 1 files, sha256:')
    assert 'secret' not in repr(tree_of({'/secret': b'x'}))


@pytest.mark.parametrize('path', ['', 'a', '/', '/a/', '//a', '/a/./b', '/a/../b', '/..', '/' + 'a' * 16_384])
def test_a_malformed_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidPathError):
        Tree().set(path, version_of(b''))
    with pytest.raises((InvalidPathError, IsADirectoryError)):
        Tree.of({path: version_of(b'')})


def test_a_path_cannot_be_a_file_and_a_directory() -> None:
    tree = tree_of({'/a/b': b'x'})
    with pytest.raises(IsADirectoryError, match="'/a' is a directory"):
        tree.set('/a', version_of(b''))
    with pytest.raises(NotADirectoryError, match='file and a directory at once'):
        tree.set('/a/b/c/d', version_of(b''))
    with pytest.raises(NotADirectoryError, match='file and a directory at once'):
        tree_of({'/a': b'', '/a/b/c': b''})


def test_removing_what_is_no_file_is_an_error() -> None:
    with pytest.raises(KeyError):
        tree_of({'/a/b': b'x'}).remove('/a')


def test_a_path_of_two_thousand_components_is_a_path() -> None:
    path = '/a' * 2000
    tree = tree_of({path: b'x'})
    assert list(tree) == [path]
    assert tree.digest == Tree().set(path, version_of(b'x')).digest
    assert Tree().diff(tree).added == (path,)
    assert tree.remove(path) == Tree()
    assert Tree.from_nodes(tree.digest, dict(tree.nodes())) == tree


# Directories


def test_entries_are_the_names_of_one_directory() -> None:
    tree = tree_of({'/b': b'', '/a/x/y': b'1', '/a-b': b'2'})
    assert tree.entries() == {'a': tree_of({'/x/y': b'1'}), 'a-b': version_of(b'2'), 'b': version_of(b'')}
    assert list(tree.entries()) == ['a', 'a-b', 'b']
    assert list(tree.entries('/a')) == ['x']
    assert tree.entries('/b') == {}
    assert tree.entries('/none') == {}


def test_directories_are_where_files_are_below() -> None:
    tree = tree_of({'/a/b': b''})
    assert [path for path in ('/', '/a', '/a/b', '/c') if tree.is_dir(path)] == ['/', '/a']
    assert Tree().is_dir('/')


def test_a_file_above_a_path_is_found() -> None:
    tree = tree_of({'/a/b': b'', '/c': b''})
    assert tree.file_above('/a/b/c/d') == '/a/b'
    assert tree.file_above('/c/d') == '/c'
    assert [tree.file_above(path) for path in ('/', '/a', '/a/b', '/a/x/y', '/x/y/z')] == [None] * 5


def test_a_subtree_has_paths_of_its_own() -> None:
    tree = tree_of({'/a/b/c': b'1', '/d': b'2'})
    assert tree.subtree('/a') == tree_of({'/b/c': b'1'})
    assert tree.subtree('/') is not None
    assert tree.subtree('/') == tree
    assert tree.subtree('/d') == Tree()


def test_a_graft_replaces_a_directory() -> None:
    tree = tree_of({'/a/b': b'1', '/c': b'2'})
    assert tree.graft('/a', tree_of({'/x': b'3'})) == tree_of({'/a/x': b'3', '/c': b'2'})
    assert tree.graft('/m/n', tree_of({'/x': b'3'})) == tree_of({'/a/b': b'1', '/c': b'2', '/m/n/x': b'3'})
    assert tree.graft('/a', Tree()) == tree_of({'/c': b'2'})
    assert tree.graft('/none/at/all', Tree()) == tree
    assert tree.graft('/', Tree()) == Tree()


@pytest.mark.parametrize('path', ['/c', '/c/d'])
def test_a_graft_never_replaces_a_file(path: str) -> None:
    with pytest.raises(NotADirectoryError):
        tree_of({'/c': b'2'}).graft(path, tree_of({'/x': b'3'}))


@given(TREES, TREES)
def test_what_was_grafted_is_the_subtree(one: Tree, two: Tree) -> None:
    assert one.graft('/mount', two).subtree('/mount') == two
    assert one.graft('/mount', two).graft('/mount', Tree()) == one


# Differences


@given(TREES, TREES)
def test_a_difference_applied_gives_the_other_tree(one: Tree, two: Tree) -> None:
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
def test_a_difference_is_what_dicts_say(one: Tree, two: Tree) -> None:
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


# Costs


def ten_thousand(directory_count: int) -> Tree:
    return tree_of({f'/src/d{i % directory_count}/file-{i}.py': b'%d' % i for i in range(10_000)})


@pytest.mark.parametrize(
    ('directory_count', 'new_nodes', 'new_bytes'), [(100, 6, 10_000), (1, 5, 5_000)], ids=['many', 'one']
)
def test_one_changed_file_among_ten_thousand_costs_a_few_nodes(
    directory_count: int, new_nodes: int, new_bytes: int
) -> None:
    tree = ten_thousand(directory_count)
    known = {digest for digest, _ in tree.nodes()}
    changed = tree.set('/src/d0/file-0.py', version_of(b'changed'))
    new = list(changed.nodes(known))
    assert len(new) <= new_nodes
    assert sum(len(encoding) for _, encoding in new) <= new_bytes


def test_a_comparison_opens_only_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module('pydantic_deep_backends.trees._tree')
    opened: list[object] = []
    original = module.unequal_parts

    def count(before: object, after: object) -> object:
        opened.append(before)
        return original(before, after)

    monkeypatch.setattr(module, 'unequal_parts', count)
    tree = ten_thousand(100)
    same = ten_thousand(100)
    changed = same.set('/src/d0/file-0.py', version_of(b'changed'))
    assert tree.diff(changed).changed == ('/src/d0/file-0.py',)
    # The root, /src with its splits, /src/d0 with its splits, and the file itself.
    assert len(opened) <= 8


def test_a_large_directory_is_split() -> None:
    nodes = dict(numbered(range(10_000)).nodes())
    assert max(len(encoding) for encoding in nodes.values()) < 8_000


# Encoding


def test_the_encoding_is_as_documented() -> None:
    """Spelled out by hand: a change here breaks every store that has trees."""
    tree = Tree.of({'/a/é': version_of(b'abc', 0o755), '/b': version_of(b'')})
    raw = hashlib.sha256(b'abc').digest()
    below = b'pdt1c' + b'x' + b'\0\2' + 'é'.encode() + b'\6sha256' + b'\x20' + raw + b'\0' * 7 + b'\3'
    raw_below, raw_empty = hashlib.sha256(below).digest(), hashlib.sha256(b'').digest()
    root = b'pdt1c' + b'd' + b'\0\1a' + b'\6sha256' + b'\x20' + raw_below + b'\0' * 7 + b'\1'
    root += b'f' + b'\0\1b' + b'\6sha256' + b'\x20' + raw_empty + b'\0' * 8
    assert list(tree.nodes()) == [(digest_of(below), below), (digest_of(root), root)]
    assert tree.digest == digest_of(root)


def test_the_encoding_of_a_split_is_as_documented() -> None:
    tree = tree_of({f'/{number}': b'' for number in range(65)})
    nodes = dict(tree.nodes())
    slots: dict[int, dict[str, FileVersion]] = {}
    for number in range(65):
        slot = hashlib.sha256(str(number).encode()).digest()[0] >> 4
        slots.setdefault(slot, {})[f'/{number}'] = version_of(b'')
    root = b'pdt1s\0'
    for slot in sorted(slots):
        part, count = Tree.of(slots[slot]), len(slots[slot]).to_bytes(8, 'big')
        root += bytes([slot]) + b'\6sha256\x20' + bytes.fromhex(part.digest[7:]) + count + count
    assert nodes[tree.digest] == root


@given(TREES)
def test_a_tree_comes_back_from_its_nodes(tree: Tree) -> None:
    assert Tree.from_nodes(tree.digest, dict(tree.nodes())) == tree


@settings(max_examples=20)
@given(NUMBERS)
def test_a_large_tree_comes_back_from_its_nodes(numbers: set[int]) -> None:
    tree = numbered(numbers)
    back = Tree.from_nodes(tree.digest, dict(tree.nodes()))
    assert dict(back.items()) == dict(tree.items())
    assert len(back) == len(tree)


def test_a_tree_like_a_known_one_needs_only_the_nodes_that_it_has_not() -> None:
    before = Tree.of({f'/{i % 7}/{i}': FileVersion(digest=digest_of(str(i).encode()), size=i) for i in range(900)})
    after = before.set('/3/new', FileVersion(digest=digest_of(b'new'), size=3)).remove('/0/0')
    new = dict(after.nodes(known=dict(before.nodes())))
    assert len(new) < 10
    back = Tree.from_nodes(after.digest, new, before)
    assert back == after
    assert dict(back.items()) == dict(after.items())
    with pytest.raises(KeyError):
        Tree.from_nodes(after.digest, new)


def test_nodes_of_equal_directories_are_yielded_once() -> None:
    assert len(list(tree_of({'/a/x': b'', '/b/x': b''}).nodes())) == 2


def test_what_is_known_is_left_out_with_all_below_it() -> None:
    tree = tree_of({'/a/b/x': b'', '/c': b''})
    assert list(tree.nodes({tree.digest})) == []
    assert [digest for digest, _ in tree.nodes({tree.subtree('/a').digest})] == [tree.digest]


def test_a_missing_node_is_named() -> None:
    tree = tree_of({'/a/x': b''})
    nodes = dict(tree.nodes())
    missing = tree.subtree('/a').digest
    del nodes[missing]
    with pytest.raises(KeyError, match=missing):
        Tree.from_nodes(tree.digest, nodes)


def test_a_node_with_other_contents_than_its_digest_is_refused() -> None:
    tree = tree_of({'/a': b''})
    with pytest.raises(ValueError, match='do not match its digest'):
        Tree.from_nodes(tree.digest, {tree.digest: b'pdt1c'})


DIGEST = b'\6sha256\x20' + hashlib.sha256(b'').digest()
EMPTY_NODE = b'pdt1c'
EMPTY_REFERENCE = b'\6sha256\x20' + hashlib.sha256(EMPTY_NODE).digest()
PART = next(e for _, e in numbered(range(2_000)).nodes() if e.startswith(b'pdt1s\1'))


@pytest.mark.parametrize(
    ('node', 'message'),
    [
        (b'', 'in the middle'),
        (b'other', 'cannot start with'),
        (b'pdt1cf', 'in the middle'),
        (b'pdt1cz\0\1a' + DIGEST + b'\0' * 8, 'of the kind'),
        (b'pdt1cf\0\0' + DIGEST + b'\0' * 8, 'cannot be named'),
        (b'pdt1cf\0\2..' + DIGEST + b'\0' * 8, 'cannot be named'),
        (b'pdt1cf\0\3a/b' + DIGEST + b'\0' * 8, 'cannot be named'),
        (b'pdt1cd\0\1a' + EMPTY_REFERENCE + b'\0' * 8, 'of the kind'),
        (b'pdt1cd\0\1a' + EMPTY_REFERENCE + b'\0' * 7 + b'\1', 'do not form a tree'),
        (b'pdt1s\0\1' + EMPTY_REFERENCE + b'\0' * 16, 'do not form a tree'),
        (b'pdt1cf\0\1b' + DIGEST + b'\0' * 8 + b'f\0\1a' + DIGEST + b'\0' * 8, 'do not form a tree'),
        (b'pdt1s\x20\0' + EMPTY_REFERENCE + b'\0' * 16, '1 slots at level 32'),
        (b'pdt1s\0' + (b'\0' + EMPTY_REFERENCE + b'\0' * 16) * 17, '17 slots at level 0'),
        (PART, 'only a part|a part of one'),
    ],
)
def test_nodes_that_no_tree_has_are_refused(node: bytes, message: str) -> None:
    nodes = dict(numbered(range(2_000)).nodes())
    nodes |= {digest_of(node): node, digest_of(EMPTY_NODE): EMPTY_NODE}
    with pytest.raises(ValueError, match=message):
        Tree.from_nodes(digest_of(node), nodes)


def test_more_files_than_can_be_counted_are_refused() -> None:
    """A few kilobytes of nodes can name any number of files: each directory holds the one below many times."""
    node, nodes = b'pdt1cf\0\1a' + DIGEST + b'\0' * 8, dict[str, bytes]()
    for _ in range(12):
        nodes[digest_of(node)] = node
        reference = b'\6sha256\x20' + bytes.fromhex(digest_of(node)[7:])
        node = b'pdt1c' + b''.join(b'd\0\1%c' % (48 + n) + reference + b'\0' * 7 + b'\1' for n in range(64))
    nodes[digest_of(node)] = node
    with pytest.raises(ValueError, match='that many files'):
        Tree.from_nodes(digest_of(node), nodes)


@given(TREES, TREES)
def test_many_changes_at_once_are_the_same_changes_one_by_one(before: Tree, after: Tree) -> None:
    """Setting and removing files together gives the tree that has them, and those that are not named stay."""
    diff = before.diff(after)
    changes = dict.fromkeys(diff.removed) | {path: after[path] for path in (*diff.added, *diff.changed)}
    assert before.with_changes(changes) == after
    one_by_one = before
    for path in diff.removed:
        one_by_one = one_by_one.remove(path)
    assert before.with_changes(dict.fromkeys(diff.removed)) == one_by_one


def test_changes_of_a_large_directory_are_made_in_it() -> None:
    before = tree_of({f'/d/{n}': b'' for n in range(3_000)})
    after = before.with_changes({'/d/7': None, '/d/new': version_of(b'1'), '/d/8': version_of(b'2')})
    assert (len(after), after.get('/d/7'), after['/d/new'].size, after['/d/8'].size) == (3_000, None, 1, 1)
    assert after == before.remove('/d/7').set('/d/new', version_of(b'1')).set('/d/8', version_of(b'2'))


def test_changes_that_are_a_file_and_a_directory_at_once_are_refused() -> None:
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


# Merge


@given(TREES, TREES)
def test_a_merge_with_the_base_is_the_other_side(base: Tree, other: Tree) -> None:
    assert merge_trees(base, other, base, {}).tree == other
    assert merge_trees(base, base, other, {}).tree == other
    assert merge_trees(base, other, other, {}).tree == other


@given(TREES, TREES, TREES)
def test_a_merge_is_symmetric(base: Tree, one: Tree, two: Tree) -> None:
    forth = merge_trees(base, one, two, BLOBS)
    back = merge_trees(base, two, one, BLOBS)
    assert [c.path for c in forth.conflicts] == [c.path for c in back.conflicts]
    assert [(c.ours, c.theirs) for c in forth.conflicts] == [(c.theirs, c.ours) for c in back.conflicts]
    if not forth.conflicts:
        assert forth.tree == back.tree
    assert forth.blobs == back.blobs


@given(TREES, TREES, TREES)
def test_a_conflict_keeps_ours(base: Tree, ours: Tree, theirs: Tree) -> None:
    result = merge_trees(base, ours, theirs, BLOBS)
    for conflict in result.conflicts:
        assert result.tree.get(conflict.path) == conflict.ours == ours.get(conflict.path)
        assert conflict.theirs == theirs.get(conflict.path)
        assert conflict.base == base.get(conflict.path)


@given(TREES, TREES, TREES)
def test_every_change_of_theirs_is_taken_or_reported(base: Tree, ours: Tree, theirs: Tree) -> None:
    result = merge_trees(base, ours, theirs, BLOBS)
    reported = tuple(conflict.path for conflict in result.conflicts)
    diff = base.diff(theirs)
    for path in (*diff.added, *diff.changed, *diff.removed):
        taken = result.tree.get(path) == theirs.get(path)
        merged = base.get(path) is not None and ours.get(path) != base.get(path)
        above = any(path == r or path.startswith(f'{r}/') or r.startswith(f'{path}/') for r in reported)
        assert taken or merged or above


@given(TREES, TREES, TREES)
def test_a_merge_needs_no_other_contents_than_it_says(base: Tree, ours: Tree, theirs: Tree) -> None:
    needed = needed_for_merge(base, ours, theirs)
    contents = {digest: BLOBS[digest] for digest in needed}
    assert merge_trees(base, ours, theirs, contents).tree == merge_trees(base, ours, theirs, BLOBS).tree


def test_changes_of_different_lines_are_joined() -> None:
    base, ours, theirs = b'1\n2\n3\n4\n5\n', b'one\n2\n3\n4\n5\n', b'1\n2\n3\n4\nfive\n'
    result = merge_files({'/f': base}, {'/f': ours}, {'/f': theirs})
    merged = b'one\n2\n3\n4\nfive\n'
    assert result.tree == tree_of({'/f': merged})
    assert result.blobs == {digest_of(merged): merged}
    assert result.conflicts == ()


@pytest.mark.parametrize('line_count', [300, 3_000])
def test_changes_far_apart_among_repeated_lines_are_joined(line_count: int) -> None:
    base = [b'same\n'] * line_count
    ours, theirs, merged = list(base), list(base), list(base)
    ours[10] = merged[10] = b'ours\n'
    theirs[200] = merged[200] = b'theirs\n'
    result = merge_files({'/f': b''.join(base)}, {'/f': b''.join(ours)}, {'/f': b''.join(theirs)})
    assert list(result.blobs.values()) == [b''.join(merged)]


def test_a_change_of_every_fourth_of_many_lines_is_joined() -> None:
    """`difflib` alone would compare all pairs of the 60,000 lines."""
    base = [b'%d\n' % number for number in range(60_000)]
    ours = [b'ours ' + line if number % 4 == 0 else line for number, line in enumerate(base)]
    theirs, merged = list(base), list(ours)
    theirs[30_002] = merged[30_002] = b'theirs\n'
    result = merge_files({'/f': b''.join(base)}, {'/f': b''.join(ours)}, {'/f': b''.join(theirs)})
    assert list(result.blobs.values()) == [b''.join(merged)]


def test_lines_that_changed_places_are_joined_with_a_change_elsewhere() -> None:
    base, ours, theirs = b'1\n2\n3\n4\n5\n', b'3\n1\n2\n4\n5\n', b'1\n2\n3\n4\nfive\n'
    result = merge_files({'/f': base}, {'/f': ours}, {'/f': theirs})
    assert list(result.blobs.values()) == [b'3\n1\n2\n4\nfive\n']


def test_repeated_lines_that_are_too_many_to_compare_are_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    base = b'x\na\nb\na\nb\na\nb\ny\n'
    ours, theirs = (
        base.replace(b'x\na\n', b'X\nA\n').replace(b'b\ny', b'B\nY'),
        base.replace(b'a\nb\na\nb', b'a\nb\nc\nb'),
    )
    files: tuple[dict[str, bytes], ...] = ({'/f': base}, {'/f': ours}, {'/f': theirs})
    assert list(merge_files(*files).blobs.values()) == [b'X\nA\nb\nc\nb\na\nB\nY\n']
    monkeypatch.setattr('pydantic_deep_backends.lines._MAX_PAIRS', 0)
    assert [conflict.kind for conflict in merge_files(*files).conflicts] == ['content']


Case: TypeAlias = tuple[str, str, str, str | None]

CORPUS: dict[str, list[Case]] = json.loads(Path(__file__).with_name('merge_corpus.json').read_text())
"""Base, ours, theirs and what they were merged to, `None` for a conflict; `about` says how it was made."""


@pytest.mark.parametrize('kind', ['letters', 'texts'])
def test_merges_of_lines_are_those_of_the_corpus(kind: str) -> None:
    """Merging three texts line by line gives, case by case, the text or the conflict that merge3 1.0.0 gave."""

    def contents(text: str) -> bytes:
        return (text if kind == 'texts' else ''.join(f'{letter}\n' for letter in text)).encode()

    for *texts, merged in CORPUS[kind]:
        base, ours, theirs = ({'/f': contents(str(text))} for text in texts)
        result = merge_files(base, ours, theirs)
        found = None if result.conflicts else result.tree['/f'].digest
        assert found == (None if merged is None else digest_of(contents(merged))), texts
    assert len(CORPUS[kind]) >= 150


LINES = st.lists(st.sampled_from([b'a\n', b'b\n', b'\n']), max_size=8)


@given(LINES, LINES, LINES, st.integers(0, 8))
def test_lines_that_one_side_changed_are_taken(head: list[bytes], old: list[bytes], new: list[bytes], cut: int) -> None:
    """Both sides change another part of a text, with a line between that nothing else equals."""
    wall = [b'wall\n']
    base, ours = head + wall + old, new[:cut] + wall + old
    theirs, merged = head + wall + new, new[:cut] + wall + new
    result = merge_files({'/f': b''.join(base)}, {'/f': b''.join(ours)}, {'/f': b''.join(theirs)})
    assert result.tree == tree_of({'/f': b''.join(merged)})
    assert result.conflicts == ()


def test_the_ends_of_lines_stay_as_they_are() -> None:
    result = merge_files({'/f': b'1\r\n2\r\n3\n'}, {'/f': b'1!\r\n2\r\n3\n'}, {'/f': b'1\r\n2\r\n3'})
    assert list(result.blobs.values()) == [b'1!\r\n2\r\n3']


def test_a_merge_that_gives_known_contents_makes_no_new_ones() -> None:
    result = merge_files({'/f': b'1\n2\n3\n', '/g': b''}, {'/f': b'1\n2\n', '/g': b''}, {'/f': b'2\n3\n', '/g': b'2\n'})
    assert result.tree == tree_of({'/f': b'2\n', '/g': b'2\n'})
    assert result.blobs == {}


def kinds_of(base: Mapping[str, bytes], ours: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> dict[str, str]:
    return {conflict.path: conflict.kind for conflict in merge_files(base, ours, theirs).conflicts}


def test_changes_of_one_line_are_a_conflict() -> None:
    result = merge_files({'/f': b'1\n'}, {'/f': b'2\n'}, {'/f': b'3\n'})
    assert result.tree == tree_of({'/f': b'2\n'})
    assert result.conflicts == (
        Conflict(
            path='/f', kind='content', base=version_of(b'1\n'), ours=version_of(b'2\n'), theirs=version_of(b'3\n')
        ),
    )


@pytest.mark.parametrize(
    ('base', 'ours', 'theirs', 'kinds'),
    [
        ({'/f': b'\0001'}, {'/f': b'\0002'}, {'/f': b'\0003'}, {'/f': 'binary'}),
        ({'/f': b'1'}, {'/f': b'2'}, {'/f': b'\0'}, {'/f': 'binary'}),
        ({}, {'/f': b'2'}, {'/f': b'3'}, {'/f': 'add/add'}),
        ({'/f': b'1'}, {}, {'/f': b'3'}, {'/f': 'delete/modify'}),
        ({'/f': b'1'}, {'/f': b'3'}, {}, {'/f': 'modify/delete'}),
        ({}, {'/f': b'1'}, {'/f/x': b'2', '/f/y': b'2'}, {'/f': 'file/directory'}),
        ({}, {'/f/x/z': b'1'}, {'/f': b'2'}, {'/f': 'file/directory'}),
        ({'/f': b'1'}, {'/f': b'2'}, {'/f/x': b'2'}, {'/f': 'file/directory'}),
        ({'/f/x': b'1'}, {'/f': b'2'}, {'/f/x': b'2'}, {'/f': 'file/directory'}),
        ({'/f/x': b'1'}, {'/f/x': b'2'}, {'/f': b'2'}, {'/f': 'file/directory'}),
    ],
)
def test_what_needs_a_decision_is_a_conflict(
    base: dict[str, bytes], ours: dict[str, bytes], theirs: dict[str, bytes], kinds: dict[str, str]
) -> None:
    assert kinds_of(base, ours, theirs) == kinds
    assert merge_files(base, ours, theirs).tree == tree_of(ours)


def test_a_file_that_became_a_directory_on_one_side_is_taken() -> None:
    result = merge_files({'/f': b'1', '/g/x': b'1'}, {'/f': b'1', '/g/x': b'1'}, {'/f/x': b'1', '/g': b'2'})
    assert result.tree == tree_of({'/f/x': b'1', '/g': b'2'})
    assert result.conflicts == ()


def modes_after(base: int, ours: int, theirs: int) -> tuple[FileVersion | None, tuple[Conflict, ...]]:
    """Merge where ours changed the contents from `0` to `1` and theirs at most the mode."""
    result = merge_trees(
        Tree.of({'/f': version_of(b'0', base)}),
        Tree.of({'/f': version_of(b'1', ours)}),
        Tree.of({'/f': version_of(b'0', theirs)}),
        {},
    )
    return result.tree.get('/f'), result.conflicts


def test_a_change_of_mode_joins_a_change_of_contents() -> None:
    assert modes_after(0o644, 0o644, 0o755) == (version_of(b'1', 0o755), ())
    assert modes_after(0o755, 0o755, 0o644) == (version_of(b'1', 0o644), ())
    assert modes_after(0o755, 0o644, 0o644) == (version_of(b'1', 0o644), ())


def test_contents_of_theirs_join_a_mode_of_ours() -> None:
    base, ours, theirs = version_of(b'0'), version_of(b'0', 0o755), version_of(b'1')
    result = merge_trees(Tree.of({'/f': base}), Tree.of({'/f': ours}), Tree.of({'/f': theirs}), {})
    assert result.tree.get('/f') == version_of(b'1', 0o755)


def test_missing_contents_are_named_by_path() -> None:
    base, ours, theirs = (tree_of({'/d/f': data, '/g': b'same'}) for data in (b'1', b'2', b'3'))
    with pytest.raises(MissingBlobError) as caught:
        merge_trees(base, ours, theirs, {})
    assert caught.value.paths == ('/d/f',)
    assert needed_for_merge(base, ours, theirs) == {digest_of(data) for data in (b'1', b'2', b'3')}


def test_nothing_is_needed_where_one_side_changed() -> None:
    base, ours = tree_of({'/f': b'1'}), tree_of({'/f': b'2'})
    assert needed_for_merge(base, ours, base) == frozenset()
    assert needed_for_merge(base, ours, ours) == frozenset()
    assert needed_for_merge(Tree(), ours, base) == frozenset()
