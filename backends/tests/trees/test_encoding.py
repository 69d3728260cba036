"""References of tree nodes, for garbage collection."""

from __future__ import annotations

import pytest

from pydantic_deep_backends.snapshots import FileVersion, Tree, digest_of, node_references


def test_node_references_cover_all_nodes_and_files() -> None:
    files = {f'/d{n % 3}/f{n}': FileVersion(digest=digest_of(b'%d' % n), size=n, mode=0o644) for n in range(5000)}
    tree = Tree.of(files)
    nodes = dict(tree.nodes())
    references = [node_references(data) for data in nodes.values()]
    assert {digest for below, _ in references for digest in below} == nodes.keys() - {tree.digest}
    assert {digest for _, found in references for digest in found} == {file.digest for file in files.values()}


def test_invalid_node_is_refused() -> None:
    with pytest.raises(ValueError, match='node'):
        node_references(b'something else')
