"""The files of a turn, shared by the recordings of all of its runs, and the tree of them that was stored last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from pydantic_deep.store import CallRecord, NewAsset
from pydantic_deep_backends import Tree
from pydantic_deep_backends.tracking import OmittedFile

from ._asset_streams import AssetStreams
from ._run_files import RunFiles


@dataclass(frozen=True, kw_only=True)
class NewFiles:
    """The data that a commit must contain for a tree."""

    tree: str
    """The digest of the tree."""
    files: Tree
    """The tree with this digest."""
    nodes: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    assets: tuple[NewAsset, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    """Uncommitted ledger entries of the calls that changed these files."""
    omitted: tuple[OmittedFile, ...] = ()
    """The files that the tree omits."""


@dataclass(kw_only=True)
class TurnFiles:
    """The files of a turn and its subagents. Hold `lock` from the capture until the commit is done."""

    files: RunFiles
    tree: Tree
    """The tree that was captured last."""
    crashed: Tree | None = None
    """The newest tree that a crashed run stored of a directory, if the turn resumes one there. The directory may also
    have the changes of calls without a stored end.
    """
    streams: AssetStreams | None = None
    """The streams of the store, if it has some."""
    known: set[str] = field(default_factory=set[str])
    """The digests of stored nodes, of this tree or an earlier one."""
    omitted: tuple[OmittedFile, ...] = ()
    """The files that the last capture omitted."""
    at: int = 0
    """The time of the last capture, in microseconds since 1970."""
    is_volatile: bool = False
    """Whether the files are lost if the process crashes. Calls that changed them can then run again, on the stored
    files.
    """
    calls: dict[tuple[str, str, str], CallRecord] = field(default_factory=dict[tuple[str, str, str], CallRecord])
    """Uncommitted ledger entries of calls that change files. The commit of a tree includes them."""
    assets: dict[str, NewAsset] = field(default_factory=dict[str, NewAsset])
    """Captured contents that are not stored, keyed by digest."""
    lock: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))

    def __post_init__(self) -> None:
        """Mark the nodes of the initial tree as stored."""
        self.known.update(digest for digest, _ in self.tree.nodes())

    async def capture(self, *, is_full: bool = False) -> NewFiles:
        """Return the present files, with the data that the store does not have. Call `stored` after the commit."""
        captured = await self.files.capture(self.tree, is_full=is_full)
        if self.streams is not None:
            captured = await self.streams.write(captured)
        self.omitted, self.tree = tuple(captured.omitted), captured.tree
        self.assets |= {digest: NewAsset(digest=digest, data=data) for digest, data in captured.blobs.items()}
        tree = self.tree.digest
        return NewFiles(
            tree=tree,
            files=self.tree,
            nodes=dict(self.tree.nodes(self.known)),
            assets=tuple(self.assets.values()),
            calls=tuple(call if call.ended_at is None else call._replace(tree=tree) for call in self.calls.values()),
            omitted=self.omitted,
        )

    @property
    def has_ended_calls(self) -> bool:
        """Whether calls that changed files have ended since the last commit of a tree."""
        return any(call.ended_at is not None for call in self.calls.values())

    def note(self, call: CallRecord) -> None:
        """Record that a call may change files from now on, or how it ended."""
        ended_at = None if call.ended_at is None else self.moment(call.ended_at)
        self.calls[key_of(call)] = call._replace(ended_at=ended_at)

    def stored(self, new: NewFiles) -> None:
        """Mark the result of a capture as stored, after the commit with it."""
        self.known.update(new.nodes)
        for asset in new.assets:
            self.assets.pop(asset.digest, None)
        for call in new.calls:
            if self.calls[key_of(call)].status == call.status:  # otherwise it has ended meanwhile
                del self.calls[key_of(call)]

    def moment(self, now: int) -> int:
        """Return the time of a capture: `now`, or later if the clock was set back, so that times are ordered."""
        self.at = max(now, self.at + 1)
        return self.at


def key_of(call: CallRecord) -> tuple[str, str, str]:
    """Return the key of a call in the store."""
    return call.run_id, call.response_id, call.tool_call_id
