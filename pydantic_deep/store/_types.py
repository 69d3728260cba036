"""The values that go in and out of a store. All are immutable to the last level: what is structured is JSON text.

A store knows nothing of agents. Messages, settings, todos and outputs are JSON that somebody else writes and reads;
ids are text; moments are microseconds since 1970, UTC.

Records are named tuples because a lineage has thousands of them: a tuple takes a sixth of the time of a frozen
dataclass, and a seal covers its values in order. Only `sql/_rows.py` relies on the order. Elsewhere, pass keywords and
read fields by name.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, TypedDict

from typing_extensions import Unpack

from ._ids import new_id

RequestKind: TypeAlias = Literal['answer', 'rejected', 'interrupted', 'skipped', 'summary', 'failed', 'superseded']
"""What became of an answer: the run went on with it; a hook or a validator sent it back to the model; it was cut off, as
by a cancelled stream; a capability gave it in place of the model, which was not asked; it is the summary of a history;
it was billed and the run could not use it, like that of a model that a fallback replaced; it was lost in a crash, and the
model was asked again."""

VersionKind: TypeAlias = Literal['root', 'step', 'turn', 'pause', 'edit', 'merge']
"""How a version came to be: with its conversation; in the middle of a turn; as the end of one; as the end of one that
waits for a person; without a turn; from two others."""

VersionState: TypeAlias = Literal['complete', 'awaiting_approval', 'interrupted', 'failed']
"""What became of the turn that it ends; a step is `interrupted` until its turn has another end."""

RunState: TypeAlias = Literal['running', 'complete', 'awaiting_approval', 'interrupted', 'failed']
"""What became of a run. `interrupted` is a run that was cancelled, or whose process died and that was recovered."""

CallStatus: TypeAlias = Literal['started', 'done', 'failed', 'deferred', 'superseded']
"""What is known of a tool call: it may have run; it has, with a result; it has, without; it waits; it may have run in a
process that crashed, and is made again by a later run."""

ApprovalStatus: TypeAlias = Literal['pending', 'approved', 'edited', 'denied', 'responded', 'expired', 'superseded']
"""What became of an approval. `superseded` is one that waits on in a later version, under another id."""

Json: TypeAlias = str
"""A JSON document."""


def now() -> int:
    """Return the current moment as records store it, in microseconds since 1970."""
    return time.time_ns() // 1000


class VersionChanges(TypedDict, total=False):
    """The fields in which a child of a version may differ from its parent: see `VersionRecord`."""

    parent_id: str
    merged_from: str
    state: VersionState
    branch_id: str
    message_count: int
    run_id: str | None
    name: str | None
    metadata: Json
    model: str | None
    model_settings: Json
    usage: Json
    output: Json | None
    pending: str | None
    deps: str | None
    tree: str | None
    backend: Json | None


class VersionRecord(NamedTuple):
    """A version as it is stored: what was true of one conversation, its files and its todos, at one moment."""

    id: str
    """A UUIDv7 (RFC 9562): whoever sees it learns when it was made."""
    number: int
    """Its place in the order of commits, from 1; 0 before it is stored. It grows, and may leave gaps."""
    parent_id: str | None
    """The version that it came from, also when that one was deleted since; `None` for a root."""
    cloned_from: str | None
    """The version that it is a clone of."""
    merged_from: str | None
    """The second parent of a merge."""
    kind: VersionKind
    """How it came to be."""
    state: VersionState
    """What became of the turn that it ends."""
    conversation_id: str
    """The conversation."""
    branch_id: str
    """The branch that its messages are on."""
    branch: str
    """The name of the branch; a name is unique within its conversation."""
    message_count: int
    """How many messages its history has: it ends after as many on its branch."""
    run_id: str | None
    """The run that made it."""
    agent_name: str
    """The name of the agent."""
    name: str | None
    """The name that it was given."""
    metadata: Json
    """An object."""
    model: str | None
    """The model that answered last, as `provider:name`."""
    model_settings: Json
    """The defaults of its turns, an object."""
    usage: Json
    """What the conversation has used up to here, an object."""
    output: Json | None
    """What the turn answered with."""
    pending: str | None
    """The digest of the asset with the calls that wait."""
    deps: str | None
    """The digest of the asset with the deps: todos and uploads among them."""
    tree: str | None
    """The digest of the tree of files."""
    backend: Json | None
    """Which backend the files belong to: an object with `provider` and `id`."""
    created_at: int
    """When it was made."""

    def child(self, kind: VersionKind, **changes: Unpack[VersionChanges]) -> VersionRecord:
        """Return a new version that continues this one, to be committed.

        It has an id of its own, and no run, clone or second parent unless `changes` says so. Everything else is as in
        this version.

        Args:
            kind: How it comes to be.
            **changes: The fields that differ.
        """
        child = self._replace(
            id=new_id(),
            number=0,
            parent_id=self.id,
            cloned_from=None,
            merged_from=None,
            kind=kind,
            run_id=None,
            created_at=now(),
        )
        return child._replace(**changes)


class MessageRecord(NamedTuple):
    """A message in its place."""

    id: str
    """A UUIDv7; the same message on two branches has one."""
    seq: int
    """Its place in the history, from 0."""
    body: bytes
    """JSON. Bytes of media are not in it but in assets."""


class BranchRecord(NamedTuple):
    """A line of messages: those of its parent up to a point, then its own."""

    id: str
    """A UUIDv7."""
    conversation_id: str
    """The conversation."""
    name: str
    """Unique within the conversation."""
    parent_id: str | None
    """The branch that it comes from; `None` for the first of a conversation."""
    fork_seq: int
    """How many messages it has from its parent."""
    tip_seq: int
    """How many messages it has in all."""
    rewrites_id: str | None
    """The branch whose history it tells anew, such as by a summary."""
    rewrites_seq: int | None
    """How many messages of that branch it stands for."""
    created_at: int
    """When it was made."""


class ConversationRecord(NamedTuple):
    """All turns of one dialogue."""

    id: str
    """A UUIDv7, or what its creator chose."""
    agent_name: str
    """The name of the agent."""
    head_id: str | None
    """The version that the handle of the conversation points at."""
    created_at: int
    """When it was made."""


class RunRecord(NamedTuple):
    """One run of an agent, that of a subagent too."""

    id: str
    """A UUIDv7."""
    conversation_id: str
    """The conversation."""
    base_id: str | None
    """The version that it began from."""
    agent_name: str
    """The name of the agent."""
    attempt_of: str | None
    """The run of a dead process that it goes on with."""
    parent_run_id: str | None
    """The run whose tool call started it."""
    state: RunState
    """What became of it."""
    owner: str | None
    """Which open store works on it, while it is `running`."""
    prompt: bytes | None
    """What the user said, as JSON, until a message has it."""
    options: Json
    """What else it was started with, for whoever recovers it: an object."""
    usage: Json
    """What it has used by itself, an object."""
    cost: str | None
    """US dollars, as a decimal number; `None` where no price is known."""
    error: Json | None
    """Why it failed: an object with `type` and `message`."""
    trace_id: str | None
    """The trace that it is part of, 32 hexadecimal digits."""
    started_at: int
    """When it began."""
    ended_at: int | None
    """When it ended; `None` as long as it runs."""


class RequestRecord(NamedTuple):
    """One request to a model that was answered, or one that a capability answered in its place."""

    run_id: str
    """The run."""
    number: int
    """From 1, within the run."""
    response_id: str
    """The message that answered it; an id of its own where no message of a version has the answer."""
    model: str
    """The model that answered, as `provider:name`."""
    model_settings: Json
    """The effective settings, an object."""
    parameters: str | None
    """The digest of the asset with what was sent besides messages: tools, instructions, output mode."""
    digest: str
    """Of the whole request in its canonical form."""
    message_digests: str | None
    """The digest of the asset that says what the history does not: the prompt where a capability has rewritten it, and the
    messages that were sent where they are not those of the history. `None` if the history tells all."""
    input_tokens: int
    """What was sent, as the provider counts."""
    output_tokens: int
    """What came back."""
    cache_read_tokens: int
    """What of the input came from the cache of the provider."""
    cache_write_tokens: int
    """What of the input went into it."""
    cost: str | None
    """US dollars, as a decimal number."""
    duration_us: int
    """How long it took, in microseconds."""
    started_at: int
    """When it was sent."""
    kind: RequestKind = 'answer'
    """What its answer was for. Every kind but `failed` counts as a request in the usage of a version."""


class CallRecord(NamedTuple):
    """One tool call: an entry of the ledger."""

    run_id: str
    """The run."""
    response_id: str
    """The message that asked for it. Ids of calls repeat, within a conversation and even within a run."""
    tool_call_id: str
    """Its id in that message."""
    tool_name: str
    """The tool."""
    arguments: str
    """As the model wrote them."""
    effect: str
    """`read`, `write` or `external`; `external` where the tool does not say."""
    status: CallStatus
    """What is known of it."""
    result: Json | None
    """What it returned, until a message has it."""
    tree: str | None
    """The digest of the tree of files afterwards; `None` if it is not known, as of a call that only reads."""
    error: str | None
    """The class of the error of a failed one."""
    started_at: int
    """When it began."""
    ended_at: int | None
    """When it ended; `None` where that is not known."""


class DelegationRecord(NamedTuple):
    """A tool call that another conversation works on."""

    parent_run_id: str
    """The run that made the call."""
    response_id: str
    """The message that asked for it."""
    tool_call_id: str
    """The call."""
    child_conversation_id: str
    """On the wire: `sub_agent_thread_id`."""
    subagent: str
    """The name that the subagent was called by."""
    intent: str
    """What the subagent was asked to do."""
    arguments: str
    """Those of the tool call."""
    created_at: int
    """When it was made."""


class ApprovalRecord(NamedTuple):
    """One call that waits for a person, or has waited."""

    id: str
    """A UUIDv7, of this approval among all."""
    version_id: str
    """The version that waits."""
    pending_id: str
    """Its id among what that version waits for: ids of tool calls, with `/` between."""
    conversation_id: str
    """The conversation."""
    agent_name: str
    """The name of the agent."""
    path: Json
    """The names of the subagents on the way to it, an array."""
    tool_name: str
    """The tool."""
    arguments: Json
    """An object."""
    arguments_digest: str
    """Of the tool and the arguments that were shown; a decision is for these."""
    preview: Json | None
    """What was shown besides, an object."""
    status: ApprovalStatus
    """What became of it."""
    decision: Json | None
    """What was decided, an object."""
    decided_by: str | None
    """Who decided."""
    reason: str | None
    """Why."""
    decided_at: int | None
    """When it was decided."""
    resumed_by: str | None
    """The run that acts on the decision."""
    superseded_by: str | None
    """The approval that it waits on as."""
    expires_at: int | None
    """When it counts as denied; `None` for never."""
    created_at: int
    """When it was asked."""


_CHECKOUT: Final = 'checkout:'


def checkout_claim(*version_ids: str) -> str:
    """Return what stands as `run_id` for a checkout, which is no run: another text each time.

    Args:
        version_ids: The version, and those whose checkouts before it were cut off.
    """
    return f'{_CHECKOUT}{",".join(dict.fromkeys(version_ids))}:{new_id()}'


def claimed_checkouts(run_id: str | None) -> tuple[str, ...]:
    """Return the versions of which it is the claim; none if it is a run, or nothing."""
    if run_id is None or not run_id.startswith(_CHECKOUT):
        return ()
    return tuple(run_id.removeprefix(_CHECKOUT).partition(':')[0].split(','))


class WorkspaceRecord(NamedTuple):
    """Which version the files of a directory are."""

    backend: Json
    """An object with `provider` and `id`, canonical: sorted keys, no spaces."""
    version_id: str | None
    """The version; `None` if it is not known."""
    run_id: str | None
    """The run that works in it now; for a checkout what `checkout_claim` returns."""
    identity: str | None = None
    """What told the directory from others when it held the version (`SupportsIdentity`); `None` if it is not known."""

    @property
    def checkouts(self) -> tuple[str, ...]:
        """The version that is put there now, or was to be when that was cut off, and others before it that were."""
        return claimed_checkouts(self.run_id)


@dataclass(frozen=True, kw_only=True)
class NewAsset:
    """Contents to be kept, once however often they come."""

    digest: str
    """`digest_of` the contents."""
    data: bytes
    """The contents."""
    media_type: str = 'application/octet-stream'
    """What they are."""


@dataclass(frozen=True, kw_only=True)
class AssetRecord:
    """Contents that are kept."""

    digest: str
    """`digest_of` the contents."""
    data: bytes
    """The contents."""
    media_type: str
    """What they are, as whoever stored them first said."""
    size_bytes: int
    """How many bytes the contents have."""
    created_at: int
    """When they were stored first."""


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
class VersionFilter:
    """Which versions are wanted; what is `None` does not matter."""

    kinds: Sequence[VersionKind] | None = None
    """How they came to be."""
    name: str | None = None
    """A part of the name, whatever the case."""
    exact_name: str | None = None
    """The name, and the case matters."""
    agent_name: str | None = None
    """The name of the agent."""
    model: str | None = None
    """The model."""
    metadata: Mapping[str, str | int | float | bool | None] | None = None
    """Values that keys of the metadata have."""
    conversation_id: str | None = None
    """The conversation."""
    run_id: str | None = None
    """The run that made them."""
    states: Sequence[VersionState] | None = None
    """What became of their turns."""
    since: int | None = None
    """Made at this moment or later."""
    until: int | None = None
    """Made before this moment."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a person decided of one approval."""

    approval_id: str
    """The approval."""
    status: Literal['approved', 'edited', 'denied', 'responded']
    """What is decided."""
    decision: Json
    """What goes with it, an object: other arguments, or what the model is told."""
    arguments_digest: str
    """Of what the person was shown: a decision for something else is refused."""
    by: str | None = None
    """Who decides."""
    reason: str | None = None
    """Why."""


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """The way from the root to a version."""

    versions: tuple[VersionRecord, ...]
    """Root first."""
    truncated_at: str | None
    """The id of the deleted version at which it ends; `None` if it reaches a root."""


@dataclass(frozen=True, kw_only=True)
class GarbageReport:
    """What a garbage collection has done."""

    removed: Mapping[str, int]
    """How many rows went, by kind: `asset`, `node`, `message`, `branch`, `conversation`, `run`."""
    condemned: int
    """How much is unreached and younger than the grace period, or was found so for the first time."""
    freed_bytes: int
    """The size of the contents that went, as stored."""
