"""The rules about snapshots fail for a backend that violates them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from backends.tests.conformance.conftest import FAILURES, RULES
from pydantic_deep_backends import ReadBlob, StateBackend, Tree

pytestmark = pytest.mark.anyio


class HalfRestored(StateBackend):
    """Does not remove files missing from the tree, unless they block a path of the tree."""

    async def restore(self, tree: Tree, read_blob: ReadBlob | None = None) -> None:
        for path, version in (await self.snapshot()).items():
            if path not in tree and not tree.is_dir(path) and tree.file_above(path) is None:
                tree = tree.set(path, version)
        await super().restore(tree, read_blob)


class Hasty(StateBackend):
    """Removes files before it has the contents to write."""

    async def restore(self, tree: Tree, read_blob: ReadBlob | None = None) -> None:
        await super().restore(Tree())
        await super().restore(tree, read_blob)


@pytest.mark.parametrize(
    ('backend', 'rule'),
    [
        (HalfRestored(), RULES.test_restore_restores_every_file),
        (HalfRestored(), RULES.test_restoring_an_empty_tree_removes_every_file),
    ],
)
async def test_partial_restore_violates_a_rule(
    backend: StateBackend, rule: Callable[[StateBackend, str], Awaitable[None]]
) -> None:
    with pytest.raises(FAILURES):
        await rule(backend, '/conformance')


async def test_restore_that_changes_files_without_contents_violates_a_rule() -> None:
    backend = Hasty()
    with pytest.raises(FAILURES):
        await RULES.test_restore_with_missing_contents_changes_nothing(backend, '/conformance', '/conformance')
