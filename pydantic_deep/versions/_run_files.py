"""What all recordings of one turn share: the files, and the tree of them that the store has last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from pydantic_deep.store import NewAsset
from pydantic_deep_backends import Tree

from ._files import OmittedFile, RunFiles


@dataclass(frozen=True, kw_only=True)
class NewFiles:
    """What a commit has to bring for a tree."""

    tree: str
    """Its digest."""
    files: Tree
    """It."""
    nodes: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    assets: tuple[NewAsset, ...] = ()


@dataclass(kw_only=True)
class TurnFiles:
    """The files of a turn, its subagents included. Whoever captures holds `lock` until the commit is made."""

    files: RunFiles
    tree: Tree
    """What the store has."""
    known: set[str] = field(default_factory=set[str])
    """The nodes that the store has of it, or of a tree before."""
    omitted: tuple[OmittedFile, ...] = ()
    """What the last capture left out."""
    at: int = 0
    """The moment of the last capture, in microseconds since 1970."""
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    def __post_init__(self) -> None:
        """Take the nodes of the tree as known."""
        self.known.update(digest for digest, _ in self.tree.nodes())

    async def capture(self, *, is_full: bool = False) -> NewFiles:
        """Return the files now, with what the store does not have of them; tell `stored` when it has."""
        captured = await self.files.capture(self.tree, is_full=is_full)
        self.omitted = tuple(captured.omitted)
        if captured.tree.digest == self.tree.digest:
            return NewFiles(tree=self.tree.digest, files=self.tree)
        nodes = dict(captured.tree.nodes(self.known))
        assets = tuple(NewAsset(digest=digest, data=data) for digest, data in captured.blobs.items())
        return NewFiles(tree=captured.tree.digest, files=captured.tree, nodes=nodes, assets=assets)

    def stored(self, new: NewFiles) -> None:
        """Take what a capture returned for what the store has: the commit with it is made."""
        self.known.update(new.nodes)
        self.tree = new.files

    def moment(self, now: int) -> int:
        """Return the moment of a capture: `now`, or later if the clock was set back, so that moments tell the order."""
        self.at = max(now, self.at + 1)
        return self.at
