"""Commits and their results, and the report of a garbage collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._approvals import ApprovalRecord
from ._assets import NewAsset
from ._basics import Json
from ._conversations import BranchRecord, ConversationRecord
from ._runs import CallRecord, DelegationRecord, RequestRecord, RunRecord, RunState
from ._versions import VersionRecord
from ._workspaces import WorkspaceRecord


@dataclass(frozen=True, kw_only=True)
class NewMessage:
    """A message to append, new or already stored."""

    id: str
    """A UUIDv7, unique in the store."""
    body: bytes | None
    """The message as JSON; `None` if a message of this id is already stored."""


@dataclass(frozen=True, kw_only=True)
class Append:
    """Messages to append to a branch at position `at`.

    If the branch has grown past `at` meanwhile, the messages go to a new branch that forks there. If `rewrites` is set,
    they always go to a new branch, with the first `at` messages of the old one before them.
    """

    branch_id: str
    """Id of the branch to append to."""
    at: int
    """Number of messages on the branch that precede the new ones."""
    messages: Sequence[NewMessage]
    """The messages, in order."""
    fork_id: str
    """Id of the new branch, in case one is created."""
    fork_name: str | None = None
    """Name of that branch; `None` to generate one."""
    is_fork: bool = False
    """Whether to create a new branch in any case."""
    rewrites: int | None = None
    """Number of messages of the branch that the new one replaces, as by a summary; implies `is_fork`."""


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """The end of a run.

    A run that failed or was cancelled before it made a version releases its claims on approvals.
    """

    run_id: str
    """The run to end."""
    state: RunState
    """How the run ended."""
    usage: Json = '{}'
    """A JSON object with the usage of this run alone."""
    cost: str | None = None
    """US dollars, as a decimal number; `None` if no price is known."""
    error: Json | None = None
    """A JSON object with the `type` and `message` of the failure."""


@dataclass(frozen=True, kw_only=True)
class HeadMove:
    """Moves the head of a conversation from one version to another, if it is still where the caller expects it."""

    conversation_id: str
    """The conversation to change."""
    expected_id: str | None
    """The expected current head; `None` for no head yet."""
    version_id: str
    """The version to become the head."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """Changes that are applied atomically, in the order of these fields.

    A version on the branch of `append` is placed on the branch that receives the messages. Its `message_count` must be
    `at` of the append plus the number of its messages.
    """

    fence: str | None = None
    """A run that this store must still own; otherwise the commit raises `RunTakenOverError`."""
    assets: Sequence[NewAsset] = ()
    """Content to store; existing assets remain as they are."""
    nodes: Mapping[str, bytes] | None = None
    """Tree nodes, keyed by digest, as `Tree.nodes` yields them."""
    conversations: Sequence[ConversationRecord] = ()
    """New conversations; existing ones remain as they are."""
    branches: Sequence[BranchRecord] = ()
    """New branches, without messages of their own."""
    runs: Sequence[RunRecord] = ()
    """New runs. The store sets `owner`."""
    exclusive: bool = False
    """Whether `runs` must be the only active ones that start from their base versions, apart from orphans; otherwise the
    commit raises `VersionBusyError`. Of commits at the same time, one is accepted.
    """
    append: Append | None = None
    """Messages for one branch."""
    settled_calls: Sequence[tuple[str, str, str]] = ()
    """Calls, as (run_id, response_id, tool_call_id), with results that messages of `append` now contain."""
    clears_prompt_of: str | None = None
    """A run with a prompt that a message of `append` now contains."""
    versions: Sequence[VersionRecord] = ()
    """New versions. The store sets `number`."""
    requests: Sequence[RequestRecord] = ()
    """New requests, or stored ones to replace because a message now contains their response."""
    calls: Sequence[CallRecord] = ()
    """New calls, or stored ones with a new status."""
    delegations: Sequence[DelegationRecord] = ()
    """New delegations; existing ones remain as they are."""
    approvals: Sequence[ApprovalRecord] = ()
    """New approvals, each `pending`."""
    supersedes: Mapping[str, str] | None = None
    """Approvals that remain pending under another id: old id to new id."""
    ends: Sequence[RunEnd] = ()
    """Runs to end, with their usage."""
    workspaces: Sequence[WorkspaceRecord] = ()
    """New or updated records of directories."""
    heads: Sequence[HeadMove] = ()
    """Heads to move; a conflict does not undo the rest of the commit."""


@dataclass(frozen=True, kw_only=True)
class Committed:
    """The result of a commit."""

    branch: BranchRecord | None = None
    """The branch that received the messages of `append`."""
    numbers: Mapping[str, int]
    """The number of each new version, keyed by id."""


@dataclass(frozen=True, kw_only=True)
class GarbageReport:
    """The result of a garbage collection."""

    removed: Mapping[str, int]
    """Number of removed rows by kind: `asset`, `node`, `message`, `branch`, `conversation`, `run`; with `blobs` also
    of removed `blob`s."""
    condemned: int
    """Number of unreachable rows that are younger than the grace period or were condemned for the first time."""
    freed_bytes: int
    """Stored size of the removed content."""
