"""Three-way merges of trees: properties and conflicts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given

from pydantic_deep_backends.errors import MissingBlobError
from pydantic_deep_backends.snapshots import Conflict, FileVersion, Tree, digest_of, merge_trees, needed_for_merge

from .conftest import BLOBS, TREES, merge_files, tree_of, version_of


@given(TREES, TREES)
def test_merge_with_the_base_returns_the_other_side(base: Tree, other: Tree) -> None:
    assert merge_trees(base, other, base, {}).tree == other
    assert merge_trees(base, base, other, {}).tree == other
    assert merge_trees(base, other, other, {}).tree == other


@given(TREES, TREES, TREES)
def test_merge_is_symmetric(base: Tree, one: Tree, two: Tree) -> None:
    forth = merge_trees(base, one, two, BLOBS)
    back = merge_trees(base, two, one, BLOBS)
    assert [c.path for c in forth.conflicts] == [c.path for c in back.conflicts]
    assert [(c.ours, c.theirs) for c in forth.conflicts] == [(c.theirs, c.ours) for c in back.conflicts]
    if not forth.conflicts:
        assert forth.tree == back.tree
    assert forth.blobs == back.blobs


@given(TREES, TREES, TREES)
def test_conflict_keeps_ours(base: Tree, ours: Tree, theirs: Tree) -> None:
    result = merge_trees(base, ours, theirs, BLOBS)
    for conflict in result.conflicts:
        assert result.tree.get(conflict.path) == conflict.ours == ours.get(conflict.path)
        assert conflict.theirs == theirs.get(conflict.path)
        assert conflict.base == base.get(conflict.path)


@given(TREES, TREES, TREES)
def test_every_change_of_theirs_is_merged_or_reported(base: Tree, ours: Tree, theirs: Tree) -> None:
    result = merge_trees(base, ours, theirs, BLOBS)
    reported = tuple(conflict.path for conflict in result.conflicts)
    diff = base.diff(theirs)
    for path in (*diff.added, *diff.changed, *diff.removed):
        taken = result.tree.get(path) == theirs.get(path)
        merged = base.get(path) is not None and ours.get(path) != base.get(path)
        above = any(path == r or path.startswith(f'{r}/') or r.startswith(f'{path}/') for r in reported)
        assert taken or merged or above


@given(TREES, TREES, TREES)
def test_merge_reads_only_the_needed_contents(base: Tree, ours: Tree, theirs: Tree) -> None:
    needed = needed_for_merge(base, ours, theirs)
    contents = {digest: BLOBS[digest] for digest in needed}
    assert merge_trees(base, ours, theirs, contents).tree == merge_trees(base, ours, theirs, BLOBS).tree


def test_merge_result_with_known_contents_adds_no_blobs() -> None:
    result = merge_files({'/f': b'1\n2\n3\n', '/g': b''}, {'/f': b'1\n2\n', '/g': b''}, {'/f': b'2\n3\n', '/g': b'2\n'})
    assert result.tree == tree_of({'/f': b'2\n', '/g': b'2\n'})
    assert result.blobs == {}


def kinds_of(base: Mapping[str, bytes], ours: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> dict[str, str]:
    return {conflict.path: conflict.kind for conflict in merge_files(base, ours, theirs).conflicts}


def test_changes_of_one_line_conflict() -> None:
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
def test_incompatible_changes_conflict(
    base: dict[str, bytes], ours: dict[str, bytes], theirs: dict[str, bytes], kinds: dict[str, str]
) -> None:
    assert kinds_of(base, ours, theirs) == kinds
    assert merge_files(base, ours, theirs).tree == tree_of(ours)


def test_exchange_of_file_and_directory_on_one_side_is_taken() -> None:
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


def test_mode_change_merges_with_a_content_change() -> None:
    assert modes_after(0o644, 0o644, 0o755) == (version_of(b'1', 0o755), ())
    assert modes_after(0o755, 0o755, 0o644) == (version_of(b'1', 0o644), ())
    assert modes_after(0o755, 0o644, 0o644) == (version_of(b'1', 0o644), ())


def test_content_change_of_theirs_merges_with_a_mode_change_of_ours() -> None:
    base, ours, theirs = version_of(b'0'), version_of(b'0', 0o755), version_of(b'1')
    result = merge_trees(Tree.of({'/f': base}), Tree.of({'/f': ours}), Tree.of({'/f': theirs}), {})
    assert result.tree.get('/f') == version_of(b'1', 0o755)


def test_missing_contents_are_named_by_path() -> None:
    base, ours, theirs = (tree_of({'/d/f': data, '/g': b'same'}) for data in (b'1', b'2', b'3'))
    with pytest.raises(MissingBlobError) as caught:
        merge_trees(base, ours, theirs, {})
    assert caught.value.paths == ('/d/f',)
    assert needed_for_merge(base, ours, theirs) == {digest_of(data) for data in (b'1', b'2', b'3')}


def test_nothing_is_needed_if_only_one_side_changed() -> None:
    base, ours = tree_of({'/f': b'1'}), tree_of({'/f': b'2'})
    assert needed_for_merge(base, ours, base) == frozenset()
    assert needed_for_merge(base, ours, ours) == frozenset()
    assert needed_for_merge(Tree(), ours, base) == frozenset()
