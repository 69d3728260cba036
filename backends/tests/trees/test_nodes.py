"""Tree nodes: their encoding, and the nodes needed for a change or a comparison."""

from __future__ import annotations

import hashlib
import importlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydantic_deep_backends.snapshots import FileVersion, Tree, digest_of

from .conftest import FILES, NUMBERS, TREES, numbered, tree_of, version_of


@pytest.mark.slow
@given(FILES.flatmap(lambda files: st.tuples(st.just(files), st.permutations(list(files.items())))))
def test_equal_files_make_equal_trees_in_any_order(
    drawn: tuple[dict[str, FileVersion], list[tuple[str, FileVersion]]],
) -> None:
    files, shuffled = drawn
    tree = Tree()
    for path, version in shuffled:
        tree = tree.set(path, version)
    assert tree == Tree.of(files)
    assert hash(tree) == hash(Tree.of(files))


@given(NUMBERS, NUMBERS)
def test_directory_around_the_split_size_has_one_canonical_form(one: set[int], two: set[int]) -> None:
    tree = numbered(one)
    for number in two - one:
        tree = tree.set(f'/d/{number}', version_of(b'%d' % number))
    assert tree.digest == numbered(one | two).digest
    for number in one:
        tree = tree.remove(f'/d/{number}')
    assert tree.digest == numbered(two - one).digest
    assert list(tree) == sorted(f'/d/{number}' for number in two - one)


def ten_thousand(directory_count: int) -> Tree:
    return tree_of({f'/src/d{i % directory_count}/file-{i}.py': b'%d' % i for i in range(10_000)})


@pytest.mark.parametrize(
    ('directory_count', 'new_nodes', 'new_bytes'), [(100, 6, 10_000), (1, 5, 5_000)], ids=['many', 'one']
)
def test_one_changed_file_among_ten_thousand_adds_few_nodes(
    directory_count: int, new_nodes: int, new_bytes: int
) -> None:
    tree = ten_thousand(directory_count)
    known = {digest for digest, _ in tree.nodes()}
    changed = tree.set('/src/d0/file-0.py', version_of(b'changed'))
    new = list(changed.nodes(known))
    assert len(new) <= new_nodes
    assert sum(len(encoding) for _, encoding in new) <= new_bytes


def test_diff_opens_only_unequal_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
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
    # The root, /src with its splits, /src/d0 with its splits, and the file.
    assert len(opened) <= 8


def test_large_directory_is_split() -> None:
    nodes = dict(numbered(range(10_000)).nodes())
    assert max(len(encoding) for encoding in nodes.values()) < 8_000


def test_encoding_matches_the_documentation() -> None:
    """Written by hand: a change of the encoding breaks every store with trees."""
    tree = Tree.of({'/a/é': version_of(b'abc', 0o755), '/b': version_of(b'')})
    raw = hashlib.sha256(b'abc').digest()
    below = b'pdt1c' + b'x' + b'\0\2' + 'é'.encode() + b'\6sha256' + b'\x20' + raw + b'\0' * 7 + b'\3'
    raw_below, raw_empty = hashlib.sha256(below).digest(), hashlib.sha256(b'').digest()
    root = b'pdt1c' + b'd' + b'\0\1a' + b'\6sha256' + b'\x20' + raw_below + b'\0' * 7 + b'\1'
    root += b'f' + b'\0\1b' + b'\6sha256' + b'\x20' + raw_empty + b'\0' * 8
    assert list(tree.nodes()) == [(digest_of(below), below), (digest_of(root), root)]
    assert tree.digest == digest_of(root)


def test_split_encoding_matches_the_documentation() -> None:
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


def test_tree_is_loaded_from_new_nodes_and_a_known_tree() -> None:
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


def test_known_nodes_and_their_descendants_are_omitted() -> None:
    tree = tree_of({'/a/b/x': b'', '/c': b''})
    assert list(tree.nodes({tree.digest})) == []
    assert [digest for digest, _ in tree.nodes({tree.subtree('/a').digest})] == [tree.digest]


def test_missing_node_is_named() -> None:
    tree = tree_of({'/a/x': b''})
    nodes = dict(tree.nodes())
    missing = tree.subtree('/a').digest
    del nodes[missing]
    with pytest.raises(KeyError, match=missing):
        Tree.from_nodes(tree.digest, nodes)


def test_node_with_a_wrong_digest_is_refused() -> None:
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
def test_malformed_nodes_are_refused(node: bytes, message: str) -> None:
    nodes = dict(numbered(range(2_000)).nodes())
    nodes |= {digest_of(node): node, digest_of(EMPTY_NODE): EMPTY_NODE}
    with pytest.raises(ValueError, match=message):
        Tree.from_nodes(digest_of(node), nodes)


def test_tree_with_too_many_files_to_count_is_refused() -> None:
    """A few kilobytes of nodes can describe any number of files: each directory contains the one below many times."""
    node, nodes = b'pdt1cf\0\1a' + DIGEST + b'\0' * 8, dict[str, bytes]()
    for _ in range(12):
        nodes[digest_of(node)] = node
        reference = b'\6sha256\x20' + bytes.fromhex(digest_of(node)[7:])
        node = b'pdt1c' + b''.join(b'd\0\1%c' % (48 + n) + reference + b'\0' * 7 + b'\1' for n in range(64))
    nodes[digest_of(node)] = node
    with pytest.raises(ValueError, match='that many files'):
        Tree.from_nodes(digest_of(node), nodes)
