"""`Store`: what keeps versions. Strangers implement it, and prove it with `conformance.StoreSuite`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from .operations._backup import Progress
from .operations._check import Damage
from .records import (
    ApprovalRecord,
    ApprovalStatus,
    AssetRecord,
    BranchRecord,
    CallRecord,
    Commit,
    Committed,
    ConversationRecord,
    Decision,
    DelegationRecord,
    GarbageReport,
    LineageRecord,
    MessageRecord,
    RequestRecord,
    RunRecord,
    RunState,
    VersionFilter,
    VersionRecord,
    WorkspaceRecord,
)


@runtime_checkable
class Store(Protocol):
    """Where versions, conversations, runs, files and approvals live.

    Append-only: a version that is there never changes. What was acknowledged survives `kill -9` and power loss, as far
    as the engine says so. Many tasks, and many processes on one place, may use it at once. Every method may raise
    `StoreUnavailableError`, and `StoreClosedError` after `aclose`.
    """

    @property
    def url(self) -> str:
        """What `open_store` would open it again with, without a password."""
        ...

    @property
    def owner(self) -> str:
        """Names this open store among all that are open on the same place."""
        ...

    async def commit(self, commit: Commit) -> Committed:
        """Make everything in `commit` true at once, durably; on any error nothing of it is.

        Raises:
            RunTakenOverError: The run of the fence is not ours any more.
            VersionConflictError: A head was elsewhere. Everything else of the commit *is* true then.
            BranchExistsError: The name of a branch is taken.
            VersionNotFoundError: Something refers to a version that is not there, and is not the run of the fence that
                goes on from one which was deleted meanwhile.
        """
        ...

    async def version(self, id: str) -> VersionRecord:
        """Return a version; an unambiguous beginning of the id, of at least 8 characters, is enough.

        Raises:
            VersionNotFoundError: There is none, or the beginning fits several.
        """
        ...

    async def versions(
        self, filter: VersionFilter = ..., *, limit: int = 100, offset: int = 0, before: int | None = None
    ) -> list[VersionRecord]:
        """Return versions, newest first.

        Args:
            filter: Which.
            limit: At most how many.
            offset: How many to leave out first.
            before: Only those with a lower number: a page that stays where it is while versions are added.
        """
        ...

    async def count(self, filter: VersionFilter = ...) -> int:
        """Return how many versions there are."""
        ...

    async def lineage(self, id: str) -> LineageRecord:
        """Return the version and all above it, root first, by one query.

        Raises:
            VersionNotFoundError: There is no such version, or one that it came from is missing and was not deleted.
        """
        ...

    async def children(self, id: str) -> list[VersionRecord]:
        """Return the versions that came from this one, steps among them, oldest first."""
        ...

    async def messages(self, branch_id: str, stop: int, *, start: int = 0) -> list[MessageRecord]:
        """Return messages of a branch in their order, from the `start`th to before the `stop`th, by one query."""
        ...

    async def branches(self, conversation_id: str) -> list[BranchRecord]:
        """Return the branches of a conversation, oldest first."""
        ...

    async def conversation(self, id: str) -> ConversationRecord | None:
        """Return a conversation, if there is one of this id."""
        ...

    async def conversations(self, *, limit: int = 100, offset: int = 0) -> list[ConversationRecord]:
        """Return conversations, newest first."""
        ...

    async def run(self, id: str) -> RunRecord | None:
        """Return a run, if there is one of this id."""
        ...

    async def runs(
        self,
        *,
        conversation_id: str | None = None,
        parent_run_id: str | None = None,
        states: Collection[RunState] | None = None,
        limit: int = 1000,
    ) -> list[RunRecord]:
        """Return runs, newest first."""
        ...

    async def orphans(self, limit: int = 1000) -> list[RunRecord]:
        """Return the runs that are `running` and whose owner is not: their process died. Children come after parents."""
        ...

    async def claim_run(self, run_id: str) -> bool:
        """Make this process the owner of an orphaned run; return `False` if another process owns it.

        The run stays `running` until a commit ends it. If this process crashes first, the run is an orphan again. The
        directory that it worked in becomes free.
        """
        ...

    def mark_orphaned(self, run_id: str) -> None:
        """Treat a run of this process, whose end could not be written, as an orphan until it is claimed.

        Nothing is written: other processes see a live run until this store is closed.
        """
        ...

    async def requests(self, run_id: str) -> list[RequestRecord]:
        """Return the requests of a run in their order."""
        ...

    async def calls(self, run_ids: Sequence[str]) -> list[CallRecord]:
        """Return the tool calls of runs, in the order in which they started."""
        ...

    async def delegations(
        self, *, parent_run_id: str | None = None, child_conversation_id: str | None = None
    ) -> list[DelegationRecord]:
        """Return delegations, oldest first."""
        ...

    async def approvals(
        self,
        *,
        status: ApprovalStatus | None = 'pending',
        version_id: str | None = None,
        agent_name: str | None = None,
        limit: int = 100,
    ) -> list[ApprovalRecord]:
        """Return approvals, oldest first. One whose time is over is `expired`, whether or not anybody has looked."""
        ...

    async def approval(self, id: str) -> ApprovalRecord:
        """Return an approval; an unambiguous beginning of the id, of at least 8 characters, is enough.

        Raises:
            ApprovalNotFoundError: There is none.
        """
        ...

    async def decide(self, decisions: Sequence[Decision]) -> list[ApprovalRecord]:
        """Answer approvals, all or none.

        Raises:
            ApprovalNotFoundError: There is no such approval.
            ApprovalAnsweredError: One is not pending any more; says who was first.
            ValueError: A decision is for other arguments than the approval has.
        """
        ...

    async def claim_approvals(self, version_id: str, run_id: str) -> list[ApprovalRecord]:
        """Let one run act on the answers of a version: return its approvals, all of them, and note the run.

        Raises:
            ApprovalAnsweredError: Another run has acted on an answer already.
        """
        ...

    async def workspace(self, backend: str) -> WorkspaceRecord | None:
        """Return what is known of a directory."""
        ...

    async def claim_workspace(self, backend: str, run_id: str, version_id: str | None) -> bool:
        """Let one run, or what has a `checkout_claim`, work in a directory; return whether it may.

        It may if nothing that lives works in it and the directory has the files of `version_id`, or of no version yet.

        Raises:
            UnfinishedCheckoutError: A checkout into it was cut off, and `run_id` is not the claim of another one.
        """
        ...

    async def asset(self, digest: str) -> AssetRecord:
        """Return contents. Raises `AssetNotFoundError`."""
        ...

    async def assets(self, digests: Collection[str]) -> dict[str, AssetRecord]:
        """Return those of several contents that are there, by digest."""
        ...

    async def has_assets(self, digests: Collection[str]) -> set[str]:
        """Return those of the digests that are there."""
        ...

    async def nodes(self, digest: str) -> dict[str, bytes]:
        """Return all nodes of a tree by digest, as `Tree.from_nodes` takes them. Raises `AssetNotFoundError`."""
        ...

    async def delete(self, id: str) -> None:
        """Delete one version. Its children stay, and their lineage ends where it was.

        With the end of a turn go those of its steps that no other version came from, and what it waits for. A run that
        goes on from it is kept as well.

        Raises:
            VersionNotFoundError: There is no such version.
        """
        ...

    async def delete_line(self, head_id: str) -> int:
        """Delete a version and those above it up to the first that something else came from; return how many.

        Steps go with their turns as for `delete`, and are not counted.

        Raises:
            VersionNotFoundError: There is no such version.
        """
        ...

    async def gc(self, grace_seconds: float = 3600) -> GarbageReport:
        """Remove what no version reaches, in one transaction.

        The conversation of a subagent is reached by the message that delegated to it, by a version of the run that did,
        and by versions of its own that somebody made by hand.

        Two collections are needed: what the first finds unreached it condemns, and what a later one, at least
        `grace_seconds` after, finds still condemned goes. What a turn in flight stores is safe that way; with 0 the
        first removes it at once, which is safe only while nothing is written.
        """
        ...

    async def aclose(self) -> None:
        """Close it. What runs ends first; a second call does nothing."""
        ...


@runtime_checkable
class SupportsBackup(Protocol):
    """A store that can look for damage in itself, and be copied to a file, as `SqlStore` can."""

    async def check(self) -> list[Damage]:
        """Read everything, and return what is damaged."""
        ...

    async def backup(self, path: str | os.PathLike[str], *, on_progress: Progress = ...) -> int:
        """Write everything, as it is at one moment, to a file that `restore_store` takes; return how many rows."""
        ...
