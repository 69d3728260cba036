"""Fixtures and helpers for tests of trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from pydantic_deep_backends.snapshots import FileVersion, Tree, digest_of, merge_trees


def version_of(data: bytes, mode: int = 0o644) -> FileVersion:
    return FileVersion(digest=digest_of(data), size=len(data), mode=mode)


def tree_of(files: Mapping[str, bytes]) -> Tree:
    return Tree.of({path: version_of(data) for path, data in files.items()})


def merge_files(base: Mapping[str, bytes], ours: Mapping[str, bytes], theirs: Mapping[str, bytes]):
    blobs = {digest_of(data): data for files in (base, ours, theirs) for data in files.values()}
    return merge_trees(tree_of(base), tree_of(ours), tree_of(theirs), blobs)


BLOBS = {
    digest_of(text): text for text in (b'', b'1\n2\n3\n4\n5\n', b'one\n2\n3\n4\n5\n', b'1\n2\n3\n4\nfive\n', b'\0')
}


def without_clashes(files: Mapping[str, FileVersion]) -> dict[str, FileVersion]:
    """Leave out files at the path of another file's parent."""
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
