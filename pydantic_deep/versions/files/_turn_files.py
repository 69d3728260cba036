"""What all recordings of one turn share: the files, and the tree of them that the store has last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from pydantic_deep.store import CallRecord, NewAsset
from pydantic_deep_backends import Tree

from ._run_files import OmittedFile, RunFiles


@dataclass(frozen=True, kw_only=True)
class NewFiles:
    """What a commit has to bring for a tree."""

    tree: str
    """Its digest."""
    files: Tree
    """It."""
    nodes: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    assets: tuple[NewAsset, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    """What became of the calls that changed them, where no commit has told of that."""
    omitted: tuple[OmittedFile, ...] = ()
    """The files that it does not have."""


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
    is_volatile: bool = False
    """Whether the files are gone with the process: what changed them can be done again then, on those of the store."""
    calls: dict[tuple[str, str, str], CallRecord] = field(default_factory=dict[tuple[str, str, str], CallRecord])
    """The calls that change volatile files, as far as no commit has told of them: who commits a tree tells of them too."""
    lock: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))

    def __post_init__(self) -> None:
        """Take the nodes of the tree as known."""
        self.known.update(digest for digest, _ in self.tree.nodes())

    async def capture(self, *, is_full: bool = False) -> NewFiles:
        """Return the files now, with what the store does not have of them; tell `stored` when it has."""
        captured = await self.files.capture(self.tree, is_full=is_full)
        self.omitted = tuple(captured.omitted)
        tree = captured.tree.digest
        calls = tuple(call if call.ended_at is None else call._replace(tree=tree) for call in self.calls.values())
        if tree == self.tree.digest:
            return NewFiles(tree=tree, files=self.tree, calls=calls, omitted=self.omitted)
        nodes = dict(captured.tree.nodes(self.known))
        assets = tuple(NewAsset(digest=digest, data=data) for digest, data in captured.blobs.items())
        return NewFiles(tree=tree, files=captured.tree, nodes=nodes, assets=assets, calls=calls, omitted=self.omitted)

    def note(self, call: CallRecord) -> None:
        """Note that a call may change volatile files from now on, or what became of it."""
        ended_at = None if call.ended_at is None else self.moment(call.ended_at)
        self.calls[key_of(call)] = call._replace(ended_at=ended_at)

    def stored(self, new: NewFiles) -> None:
        """Take what a capture returned for what the store has: the commit with it is made."""
        self.known.update(new.nodes)
        self.tree = new.files
        for call in new.calls:
            if self.calls[key_of(call)].status == call.status:  # else it has ended meanwhile
                del self.calls[key_of(call)]

    def moment(self, now: int) -> int:
        """Return the moment of a capture: `now`, or later if the clock was set back, so that moments tell the order."""
        self.at = max(now, self.at + 1)
        return self.at


def key_of(call: CallRecord) -> tuple[str, str, str]:
    """Return what names a call in the store."""
    return call.run_id, call.response_id, call.tool_call_id
