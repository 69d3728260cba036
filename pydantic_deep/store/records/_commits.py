"""What a commit writes, and what garbage collection removes."""

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
    """A message to be appended: a new one, or one that is there already."""

    id: str
    """A UUIDv7."""
    body: bytes | None
    """`None` for the message of this id that is stored."""


@dataclass(frozen=True, kw_only=True)
class Append:
    """Messages to be put on a branch after its first `at` ones.

    If the branch has more than these by now, somebody was faster: the messages go on a new branch that forks there.
    If `rewrites` is set they go on a new branch anyway, and its history is that up to `at` and then these.
    """

    branch_id: str
    """The branch that they go on."""
    at: int
    """How many messages of the branch they come after."""
    messages: Sequence[NewMessage]
    """What is appended, in its order."""
    fork_id: str
    """The id of the branch that is made if one must be."""
    fork_name: str | None = None
    """Its name; `None` to have one made."""
    is_fork: bool = False
    """Whether a new branch is wanted in any case."""
    rewrites: int | None = None
    """How many messages of the branch the new one stands for; implies `is_fork`."""


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """How a run ended.

    One that failed before it made a version gives back the approvals that it has claimed.
    """

    run_id: str
    """The run."""
    state: RunState
    """What became of it."""
    usage: Json = '{}'
    """What it has used by itself, an object."""
    cost: str | None = None
    """US dollars, as a decimal number; `None` where no price is known."""
    error: Json | None = None
    """Why it failed: an object with `type` and `message`."""


@dataclass(frozen=True, kw_only=True)
class HeadMove:
    """The head of a conversation moves from one version to another, if it is still where it was thought to be."""

    conversation_id: str
    """The conversation."""
    expected_id: str | None
    """Where its head is thought to be; `None` for nowhere yet."""
    version_id: str
    """Where it goes."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """Everything that becomes true at once, or not at all. It is applied in the order of these fields.

    A version that names the branch of an `append` is put on the branch where the messages went. `at` of the append
    plus its messages is the `message_count` of such a version.
    """

    fence: str | None = None
    """A run that this store must still be working on; `RunTakenOverError` if it is not."""
    assets: Sequence[NewAsset] = ()
    """Contents; those that are there already stay as they are."""
    nodes: Mapping[str, bytes] | None = None
    """Nodes of trees by digest, as `Tree.nodes` yields them."""
    conversations: Sequence[ConversationRecord] = ()
    """New ones; one that is there already stays as it is."""
    branches: Sequence[BranchRecord] = ()
    """New ones, without messages of their own."""
    runs: Sequence[RunRecord] = ()
    """New ones. `owner` is set by the store."""
    append: Append | None = None
    """Messages for one branch."""
    settled_calls: Sequence[tuple[str, str, str]] = ()
    """Calls, as (run_id, response_id, tool_call_id), whose result a message of `append` has now."""
    clears_prompt_of: str | None = None
    """A run whose prompt a message of `append` has now."""
    versions: Sequence[VersionRecord] = ()
    """New ones."""
    requests: Sequence[RequestRecord] = ()
    """New ones, or ones that are known and are replaced: their answer has a message now."""
    calls: Sequence[CallRecord] = ()
    """New ones, or ones that are known and have another status now."""
    delegations: Sequence[DelegationRecord] = ()
    """New ones; one that is there already stays as it is."""
    approvals: Sequence[ApprovalRecord] = ()
    """New ones."""
    supersedes: Mapping[str, str] | None = None
    """Approvals that wait on as another: old id to new id."""
    ends: Sequence[RunEnd] = ()
    """How runs ended."""
    workspaces: Sequence[WorkspaceRecord] = ()
    """What is true of directories from now on."""
    heads: Sequence[HeadMove] = ()
    """Heads that move; one that is elsewhere does not undo the rest of the commit."""


@dataclass(frozen=True, kw_only=True)
class Committed:
    """What a commit made."""

    branch: BranchRecord | None = None
    """Where the messages of `append` went."""
    numbers: Mapping[str, int]
    """The number of each version by its id."""


@dataclass(frozen=True, kw_only=True)
class GarbageReport:
    """What a garbage collection has done."""

    removed: Mapping[str, int]
    """How many rows went, by kind: `asset`, `node`, `message`, `branch`, `conversation`, `run`."""
    condemned: int
    """How much is unreached and younger than the grace period, or was found so for the first time."""
    freed_bytes: int
    """The size of the contents that went, as stored."""
