"""Line-by-line merges of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep_backends.snapshots import digest_of

from .conftest import merge_files, tree_of


def test_changes_of_different_lines_are_merged() -> None:
    base, ours, theirs = b'1\n2\n3\n4\n5\n', b'one\n2\n3\n4\n5\n', b'1\n2\n3\n4\nfive\n'
    result = merge_files({'/f': base}, {'/f': ours}, {'/f': theirs})
    merged = b'one\n2\n3\n4\nfive\n'
    assert result.tree == tree_of({'/f': merged})
    assert result.blobs == {digest_of(merged): merged}
    assert result.conflicts == ()


@pytest.mark.parametrize('line_count', [300, 3_000])
def test_distant_changes_among_repeated_lines_are_merged(line_count: int) -> None:
    base = [b'same\n'] * line_count
    ours, theirs, merged = list(base), list(base), list(base)
    ours[10] = merged[10] = b'ours\n'
    theirs[200] = merged[200] = b'theirs\n'
    result = merge_files({'/f': b''.join(base)}, {'/f': b''.join(ours)}, {'/f': b''.join(theirs)})
    assert list(result.blobs.values()) == [b''.join(merged)]


@pytest.mark.slow
def test_change_of_every_fourth_line_is_merged() -> None:
    """`difflib` alone would compare all pairs of the 60,000 lines."""
    base = [b'%d\n' % number for number in range(60_000)]
    ours = [b'ours ' + line if number % 4 == 0 else line for number, line in enumerate(base)]
    theirs, merged = list(base), list(ours)
    theirs[30_002] = merged[30_002] = b'theirs\n'
    result = merge_files({'/f': b''.join(base)}, {'/f': b''.join(ours)}, {'/f': b''.join(theirs)})
    assert list(result.blobs.values()) == [b''.join(merged)]


def test_moved_lines_are_merged_with_a_change_elsewhere() -> None:
    base, ours, theirs = b'1\n2\n3\n4\n5\n', b'3\n1\n2\n4\n5\n', b'1\n2\n3\n4\nfive\n'
    result = merge_files({'/f': base}, {'/f': ours}, {'/f': theirs})
    assert list(result.blobs.values()) == [b'3\n1\n2\n4\nfive\n']


def test_too_many_repeated_lines_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
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
"""Base, ours, theirs and the merged text, or `None` for a conflict. `about` describes how the corpus was made."""


@pytest.mark.parametrize('kind', ['letters', 'texts'])
def test_merges_match_the_corpus(kind: str) -> None:
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
def test_lines_changed_on_one_side_are_taken(head: list[bytes], old: list[bytes], new: list[bytes], cut: int) -> None:
    """Each side changes another part of a text, separated by a unique line."""
    wall = [b'wall\n']
    base, ours = head + wall + old, new[:cut] + wall + old
    theirs, merged = head + wall + new, new[:cut] + wall + new
    result = merge_files({'/f': b''.join(base)}, {'/f': b''.join(ours)}, {'/f': b''.join(theirs)})
    assert result.tree == tree_of({'/f': b''.join(merged)})
    assert result.conflicts == ()


def test_line_ends_are_preserved() -> None:
    result = merge_files({'/f': b'1\r\n2\r\n3\n'}, {'/f': b'1!\r\n2\r\n3\n'}, {'/f': b'1\r\n2\r\n3'})
    assert list(result.blobs.values()) == [b'1!\r\n2\r\n3']
