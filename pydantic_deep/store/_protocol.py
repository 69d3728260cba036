"""`Store`: the protocol of version storage. Test an implementation of your own with `conformance.StoreSuite`."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, Collection, Sequence
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
    """Storage of versions, conversations, runs, files and approvals.

    Append-only: a stored version never changes. An acknowledged commit survives `kill -9` and power loss, within the
    guarantees of the engine. Many tasks and processes may use the same database concurrently. Every method may raise
    `StoreUnavailableError`, and `StoreClosedError` after `aclose`.
    """

    @property
    def url(self) -> str:
        """The URL that opens this store again with `open_store`, without the password."""
        ...

    @property
    def owner(self) -> str:
        """A name that is unique among all open stores on the same database."""
        ...

    async def commit(self, commit: Commit) -> Committed:
        """Apply everything in `commit` atomically and durably.

        After any error other than `VersionConflictError` and `UnknownCommitError`, nothing of it has been applied.

        Raises:
            RunTakenOverError: Another process has taken over the run of the fence.
            VersionConflictError: A head had moved. Everything else in the commit has been applied.
            BranchExistsError: The name of a branch is taken.
            VersionNotFoundError: The commit refers to a version that does not exist. (The run of the fence may continue
                a version that was deleted meanwhile.)
        """
        ...

    async def version(self, id: str) -> VersionRecord:
        """Return a version by its id, or by an unambiguous prefix of at least 8 characters.

        Raises:
            VersionNotFoundError: No version matches, or the prefix is ambiguous.
        """
        ...

    async def versions(
        self, filter: VersionFilter = ..., *, limit: int = 100, offset: int = 0, before: int | None = None
    ) -> list[VersionRecord]:
        """Return versions, newest first.

        Args:
            filter: The conditions that a version must meet.
            limit: Maximum number of versions.
            offset: Number of versions to skip.
            before: Only versions with a lower number, for pages that stay stable while versions are added.
        """
        ...

    async def newest_by_metadata(
        self, key: str, filter: VersionFilter = ..., *, limit: int = 100, before: int | None = None
    ) -> list[VersionRecord]:
        """Return the newest version for each value of a metadata key, newest first, in one query.

        Of versions without the key, it is the newest one of each conversation.

        Args:
            key: The metadata key.
            filter: The conditions that a version must meet.
            limit: Maximum number of versions.
            before: As for `versions`. A value with a newer version is not in a later page.
        """
        ...

    async def count(self, filter: VersionFilter = ...) -> int:
        """Return the number of versions."""
        ...

    async def lineage(self, id: str) -> LineageRecord:
        """Return the version and all its ancestors, root first, in one query.

        Raises:
            VersionNotFoundError: No such version exists, or an ancestor is missing without having been deleted.
        """
        ...

    async def children(self, id: str) -> list[VersionRecord]:
        """Return the children of this version, including steps, oldest first."""
        ...

    async def messages(self, branch_id: str, stop: int, *, start: int = 0) -> list[MessageRecord]:
        """Return the messages of a branch from position `start` up to, not including, `stop`, in one query."""
        ...

    async def branches(self, conversation_id: str) -> list[BranchRecord]:
        """Return the branches of a conversation, oldest first."""
        ...

    async def conversation(self, id: str) -> ConversationRecord | None:
        """Return a conversation; `None` if no conversation has this id."""
        ...

    async def conversations(self, *, limit: int = 100, offset: int = 0) -> list[ConversationRecord]:
        """Return conversations, newest first."""
        ...

    async def run(self, id: str) -> RunRecord | None:
        """Return a run; `None` if no run has this id."""
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
        """Return the `running` runs of crashed owners, parents before their children."""
        ...

    async def claim_run(self, run_id: str) -> bool:
        """Make this process the owner of an orphaned run; return `False` if another process owns it.

        The run stays `running` until a commit ends it. If this process crashes first, the run is an orphan again. The
        claim on its working directory is released.
        """
        ...

    def mark_orphaned(self, run_id: str) -> None:
        """Treat a run of this process as an orphan until it is claimed or begins, because its end could not be written.

        Nothing is written: other processes see a live run until this store is closed.
        """
        ...

    async def requests(self, run_id: str) -> list[RequestRecord]:
        """Return the requests of a run, in order."""
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
        """Return approvals, oldest first. An approval past its deadline has the status `expired`."""
        ...

    async def approval(self, id: str) -> ApprovalRecord:
        """Return an approval by its id, or by an unambiguous prefix of at least 8 characters.

        Raises:
            ApprovalNotFoundError: No approval matches.
        """
        ...

    async def decide(self, decisions: Sequence[Decision]) -> list[ApprovalRecord]:
        """Store decisions on approvals, all or none.

        Raises:
            ApprovalNotFoundError: No such approval exists.
            ApprovalAnsweredError: An approval is no longer pending; the error names who answered it.
            ValueError: The arguments digest of a decision differs from that of the approval.
        """
        ...

    async def claim_approvals(self, version_id: str, run_id: str) -> list[ApprovalRecord]:
        """Claim the answers of a version for one run, and return all its approvals.

        Raises:
            ApprovalAnsweredError: Another run has already acted on an answer.
        """
        ...

    async def workspace(self, backend: str) -> WorkspaceRecord | None:
        """Return the record of a directory; `None` if the store has none."""
        ...

    async def claim_workspace(self, backend: str, run_id: str, version_id: str | None) -> bool:
        """Claim a directory for a run or a checkout (see `checkout_claim`); return whether the claim succeeded.

        It succeeds if no live run works in the directory and its files are those of `version_id`, or of no known
        version.

        Raises:
            UnfinishedCheckoutError: A checkout into the directory was interrupted, and `run_id` is not the claim of
                another checkout.
        """
        ...

    async def asset(self, digest: str) -> AssetRecord:
        """Return an asset. Raises `AssetNotFoundError`."""
        ...

    async def read_asset(self, digest: str) -> bytes:
        """Return the content of an asset. Raises `AssetNotFoundError`."""
        ...

    async def assets(self, digests: Collection[str]) -> dict[str, AssetRecord]:
        """Return the existing assets among these digests, keyed by digest."""
        ...

    async def has_assets(self, digests: Collection[str]) -> set[str]:
        """Return the digests of existing assets among these."""
        ...

    async def nodes(self, digest: str) -> dict[str, bytes]:
        """Return all nodes of a tree, keyed by digest, as `Tree.from_nodes` takes them. Raises `AssetNotFoundError`."""
        ...

    async def delete(self, id: str, *, exclusive: bool = False) -> None:
        """Delete one version. Its children remain, and their lineage ends at the deleted version.

        Deleting the end of a turn also deletes its pending approvals, and those steps of the turn that no other version
        descends from. A run that continues from the version is preserved.

        Args:
            id: The version.
            exclusive: Whether to refuse this while a run that starts from the version is active.

        Raises:
            VersionNotFoundError: No such version exists.
            VersionBusyError: The deletion is `exclusive`, and a run is active.
        """
        ...

    async def delete_line(self, head_id: str) -> int:
        """Delete a version and its ancestors, up to the first that must remain; return the number deleted.

        An ancestor remains if it has other descendants, or if a run that is `running` continues from it. Steps are
        deleted with their turns, as by `delete`, and are not counted.

        Raises:
            VersionNotFoundError: No such version exists.
        """
        ...

    async def gc(self, grace_seconds: float = 3600) -> GarbageReport:
        """Remove everything that no version reaches, in short transactions: others may write meanwhile.

        A subagent's conversation is reachable from the message that delegated to it, from a version of the delegating
        run, and from manually created versions of its own.

        Removal takes two collections: the first condemns unreachable rows, and a later one, at least `grace_seconds`
        after, removes those that are still unreachable. This protects rows stored by turns in progress. With 0 the
        first collection removes them at once, which is safe only while no turn is in progress.

        A collection that fails or is cancelled has removed a part, and the next one continues. One that finds that a row
        to be removed has been stored again meanwhile leaves the rest to the next one.
        """
        ...

    async def aclose(self) -> None:
        """Close the store after the operations in progress. A second call does nothing."""
        ...


@runtime_checkable
class SupportsStreams(Protocol):
    """A store that can write and read contents in chunks, which need not fit in memory."""

    @property
    def max_stream_bytes(self) -> int:
        """Maximum size of content for `write_asset`; 0 if this store cannot write contents in chunks."""
        ...

    async def write_asset(self, digest: str, chunks: AsyncIterable[bytes], *, media_type: str = ...) -> None:
        """Store content, in a transaction of its own.

        Commit a version that names it within the grace period of `gc`. Content that exists is not read.

        Raises:
            ValueError: The chunks have another digest; nothing was stored.
        """
        ...

    def stream_asset(self, digest: str) -> AsyncGenerator[bytes]:
        """Yield the content of an asset in chunks, and verify its digest after the last one.

        Raises:
            AssetNotFoundError: No such asset exists.
            StoreCorruptedError: The chunks so far are not the content, or it is missing.
        """
        ...


@runtime_checkable
class SupportsBackup(Protocol):
    """A store that can verify its own integrity and be backed up to a file, such as `SqlStore`."""

    async def check(self) -> list[Damage]:
        """Read everything, and return all damage."""
        ...

    async def backup(self, path: str | os.PathLike[str], *, on_progress: Progress = ...) -> int:
        """Write a consistent snapshot to a file for `restore_store`; return the number of rows."""
        ...
