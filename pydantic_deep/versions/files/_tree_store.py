"""Loads file trees from a store."""

from __future__ import annotations

from pydantic_deep.store import Store
from pydantic_deep.versions._lru import LRUCache
from pydantic_deep_backends import Tree

from ._asset_streams import AssetStreams


class TreeStore:
    """Loads file trees from a store, and caches recent ones."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._trees = LRUCache[Tree]()
        self.streams: AssetStreams | None = AssetStreams.of(store)
        """The streams of the store; `None` if it has none."""

    async def load(self, digest: str | None) -> Tree:
        """Return a tree by digest; an empty one for `None`, which stands for files that are not versioned."""
        if digest is None:
            return Tree()
        tree = self._trees.get(digest)
        return self.cache(Tree.from_nodes(digest, await self.store.nodes(digest))) if tree is None else tree

    def cache(self, tree: Tree) -> Tree:
        """Cache a tree that is in the store, and return it."""
        return self._trees.set(tree.digest, tree)
