"""`VersionContent`: the content of a version, as stored, with the files and requests that are read on demand.

Not here: the operations that create versions or return others (`_version`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, Self, cast

from pydantic import JsonValue
from pydantic_ai import DeferredToolRequests, ToolDefinition
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage

from pydantic_deep._checks import LOAD_VERSION, check_index, check_model, check_object
from pydantic_deep._messages.usage_json import load_usage
from pydantic_deep.approvals import PendingApproval, pending_approvals
from pydantic_deep.deps import Upload
from pydantic_deep.store import RequestRecord, Store, VersionKind, VersionRecord, VersionState
from pydantic_deep.todos import Todo
from pydantic_deep_backends import BackendProtocol, ProtectedChange, ReadOnlyBackend, StateBackend, Tree
from pydantic_deep_backends.tracking import OmittedFile

from ._frozen_json import FrozenJson, freeze
from ._messages import decode_messages, load_history
from ._run_options import external_tools_of
from ._session import DepsT, OutputT, Session
from ._settings import load_agent_instructions, load_instructions, load_settings
from ._subagent_threads import SubagentThread, attempt_ids, load_requests, load_subagents
from .comparison._replay import load_prompt, replay
from .comparison._version_diff import FileDiff, Replay, VersionDiff, diff_files
from .files._backend_descriptions import omitted_in
from .files._open_files import refuse_replaced
from .files._protected_files import load_changes
from .pauses._pause import decode_pause
from .recording._presummary_history import earlier_messages


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The assets that a version refers to, read together with its record."""

    deps: bytes | None = None
    pending: bytes | None = None


async def load_assets(store: Store, records: Collection[VersionRecord]) -> list[Loaded]:
    """Return the assets of each version. Those that several share are read once."""
    digests = {digest for record in records for digest in (record.deps, record.pending) if digest is not None}
    assets = await store.assets(digests) if digests else {}
    data = {digest: asset.data for digest, asset in assets.items()}
    # Thousands of versions in a lineage share few assets: create each `Loaded` once.
    loaded = {
        key: Loaded(deps=data.get(key[0] or ''), pending=data.get(key[1] or ''))
        for key in {(record.deps, record.pending) for record in records}
    }
    return [loaded[record.deps, record.pending] for record in records]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VersionContent(Generic[DepsT, OutputT]):
    """The content of a version: its properties, and its messages, files, requests and delegations.

    Versions with the same id are equal.
    """

    _session: Session[DepsT, OutputT]
    record: VersionRecord
    """The record of the version in the store."""
    _loaded: Loaded = field(default_factory=Loaded)
    backend: BackendProtocol | None = None
    """The files, if the caller has opened them."""

    @property
    def id(self) -> str:
        """A UUIDv7, which reveals the creation time. It identifies the version and grants no permission."""
        return self.record.id

    @property
    def parent_id(self) -> str | None:
        """The id of the parent, even if that version was deleted since; `None` for a root."""
        return self.record.parent_id

    @property
    def cloned_from(self) -> str | None:
        """The id of the version that this one is a clone of; `None` if it is not a clone."""
        return self.record.cloned_from

    @property
    def merged_from(self) -> str | None:
        """The id of the second parent; `None` unless this is a merge."""
        return self.record.merged_from

    @property
    def kind(self) -> VersionKind:
        """How the version was created: `root`, `step`, `turn`, `pause`, `edit` or `merge`."""
        return self.record.kind

    @property
    def state(self) -> VersionState:
        """The state of its turn: `complete`, `awaiting_approval`, `interrupted` or `failed`."""
        return self.record.state

    @property
    def conversation_id(self) -> str:
        """The id of the conversation that the version belongs to."""
        return self.record.conversation_id

    @property
    def branch(self) -> str:
        """The name of the branch of its messages. The first branch of a conversation is `main`."""
        return self.record.branch

    @property
    def run_id(self) -> str | None:
        """The id of the run that created the version; `None` if no run did."""
        return self.record.run_id

    @property
    def agent_name(self) -> str:
        """The name of the agent that began the conversation, even if an agent of another name has continued it."""
        return self.record.agent_name

    @property
    def name(self) -> str | None:
        """The name of the version, which its children inherit."""
        return self.record.name

    @property
    def metadata(self) -> Mapping[str, FrozenJson]:
        """The caller's metadata, which children inherit. It is immutable at every level."""
        return cast('Mapping[str, FrozenJson]', freeze(json.loads(self.record.metadata)))

    @property
    def model(self) -> str | None:
        """The model that responded last, as `provider:name`; before the first response, the requested model."""
        return self.record.model

    @property
    def model_settings(self) -> ModelSettings:
        """The default model settings of turns from this version."""
        return load_settings(self.record.model_settings)[0]

    @property
    def instructions(self) -> Sequence[str]:
        """Instructions of the conversation, in addition to those of the agent; see `VersionedAgent.create`."""
        return load_instructions(self.record.model_settings)

    @property
    def agent_instructions(self) -> str:
        """The agent's own literal instructions in the turn that created the version; empty if it had none."""
        return load_agent_instructions(self.record.model_settings)

    @property
    def usage(self) -> RunUsage:
        """The usage of the conversation up to this version."""
        return load_usage(self.record.usage)

    @property
    def output(self) -> OutputT | None:
        """The output of the turn; `None` for a version without one."""
        text = self.record.output
        return None if text is None else self._session.parse_output(text)

    @property
    def pending(self) -> list[PendingApproval]:
        """The pending approvals, including those of subagents."""
        return pending_approvals(self.deferred_tool_requests)

    @property
    def deferred_tool_requests(self) -> DeferredToolRequests | None:
        """The pending calls as pydantic-ai's `DeferredToolRequests`, without the histories of subagents."""
        return None if self._loaded.pending is None else decode_pause(self._loaded.pending)

    @property
    def todos(self) -> list[Todo]:
        """The todos of the plan, in order."""
        if self._loaded.deps is None:
            return []
        return [Todo(**todo) for todo in json.loads(self._loaded.deps).get('todos', [])]

    @property
    def uploads(self) -> Mapping[str, Upload]:
        """The user's uploads, keyed by name."""
        if self._loaded.deps is None:
            return {}
        return {name: Upload(**upload) for name, upload in json.loads(self._loaded.deps).get('uploads', {}).items()}

    @property
    def protected_changes(self) -> tuple[ProtectedChange, ...]:
        """The changes of its turn to protected files, which programs of the host run or obey, such as `.git/config`.

        Versions do not contain `.git`, so no diff shows these changes and no checkout reverts them.
        """
        return () if self._loaded.deps is None else load_changes(json.loads(self._loaded.deps), self.run_id)

    @property
    def tree(self) -> str | None:
        """The digest of its file tree; `None` if the files are not versioned."""
        return self.record.tree

    @property
    def omitted_files(self) -> Sequence[OmittedFile]:
        """The files of its directory that it omits because they are too large, unreadable or have an invalid path.

        Contains the first 100 by path. Files that a `.gitignore` matches are omitted on purpose and not listed.
        """
        return omitted_in(self.record.backend)

    @property
    def message_count(self) -> int:
        """The number of messages in its history."""
        return self.record.message_count

    @property
    def created_at(self) -> datetime:
        """The time of creation, in UTC."""
        return datetime.fromtimestamp(self.record.created_at / 1e6, UTC)

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, VersionContent) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        name = f' {self.name!r}' if self.name else ''
        return (
            f'<{type(self).__name__} {self.id}{name}: '
            f'{self.kind}, {self.state}, {self.message_count} messages, {self.branch}>'
        )

    async def check_directory(self) -> None:
        """Check that a turn can work in the directory of the files, before starting one.

        Raises:
            WorkspaceReplacedError: The path leads to another directory, which has files of its own.
        """
        await refuse_replaced(self._session.trees, self.record, self.backend)

    async def messages(self, *, start: int = 0, stop: int | None = None) -> list[ModelMessage]:
        """Return the history, or its messages from index `start` up to but not including `stop`.

        Raises:
            ValidationError: An index is negative or not an integer.
        """
        check_index('start', start)
        if stop is not None:
            check_index('stop', stop)
        # Read from the store: the caller may change the messages, and cached ones must not change.
        end = self.message_count if stop is None else min(stop, self.message_count)
        records = await self._session.store.messages(self.record.branch_id, end, start=start)
        return await decode_messages(records, self._session.store.read_asset)

    async def earlier_messages(self) -> list[ModelMessage]:
        """Return the messages that summaries have replaced in the history, oldest first, without the summaries."""
        return await earlier_messages(self._session.store, self.record)

    async def diff(self, other: Self) -> VersionDiff:
        """Return the differences from this version to `other`: messages, files as unified diffs, todos, usage."""
        self._check_version(other)
        old, old_ids = await load_history(self._session.store, self.record)
        new, new_ids = await load_history(self._session.store, other.record)
        common = next(
            (index for index, (a, b) in enumerate(zip(old_ids, new_ids, strict=False)) if a != b),
            min(len(old_ids), len(new_ids)),
        )
        return VersionDiff(
            messages_common=common,
            messages_removed=old[common:],
            messages_added=new[common:],
            files=await self.diff_files(other),
            todos_before=self.todos,
            todos_after=other.todos,
            usage=other.usage - self.usage,
        )

    async def diff_files(self, other: Self) -> list[FileDiff]:
        """Return the files that differ in `other`, as unified diffs. Unlike `diff`, this reads no messages."""
        self._check_version(other)
        return await diff_files(await self.file_tree(), await other.file_tree(), self._session.store.read_asset)

    async def files(self) -> BackendProtocol:
        """Return the files, read-only. Contents are fetched when they are read."""
        return ReadOnlyBackend(StateBackend.of(await self.file_tree(), self._session.store.read_asset))

    async def file_tree(self) -> Tree:
        """Return the file tree; empty if the files are not versioned."""
        return await self._session.trees.load(self.tree)

    async def prompt(self) -> str | Sequence[UserContent] | None:
        """Return the user prompt of its run; `None` for a run that resumed a pause, or if no run made the version."""
        return await load_prompt(self._session, self.record)

    async def requests(self) -> Sequence[RequestRecord]:
        """Return the model requests of its turn, each with model, effective settings, tokens, cost and duration."""
        return await load_requests(self._session.store, self.record)

    async def request_parameters(self) -> Mapping[str, JsonValue] | None:
        """Return the parameters of the last model request up to this version, without messages; `None` if there was
        none.

        `instructions` is a text, `tools` contains the tool schemas, and `options` all other parameters that affect a
        response.
        """
        store = self._session.store
        for record in reversed((await store.lineage(self.id)).versions):
            requests = [request for request in await load_requests(store, record) if request.kind != 'summary']
            digests = [request.parameters for request in requests if request.parameters]
            if digests:
                return json.loads(await self._session.store.read_asset(digests[-1]))
        return None

    async def external_tools(self) -> Sequence[ToolDefinition]:
        """Return the external tools of the turn that created the version; see `TurnOptions.external_tools`."""
        run = None if self.run_id is None else await self._session.store.run(self.run_id)
        return () if run is None else external_tools_of(run)

    async def subagents(self, *, whole_conversation: bool = False) -> Sequence[SubagentThread]:
        """Return the delegations of its turn as a tree: each thread contains the threads that it delegated to.

        Args:
            whole_conversation: Whether to return the delegations of all turns up to this version, oldest first.
        """
        store = self._session.store
        records = (await store.lineage(self.id)).versions if whole_conversation else (self.record,)
        records = {record.run_id: record for record in records}.values()
        run_ids = [run_id for record in records for run_id in await attempt_ids(store, record)]
        return await load_subagents(store, list(dict.fromkeys(run_ids)))

    async def replay(self, *, run_tools: bool = False, model: Model | None = None) -> Replay:
        """Run its turn again with the recorded responses and results, without calling a model.

        The result shows whether every request equals the recorded one, and the first difference if not.

        Args:
            run_tools: Whether to run the tools that declare that they only read, or change files and todos, on a copy
                of the files, and to compare their results. Subagents are replayed too. Results of other tools come from
                the recording, and so does everything that the model receives.
            model: The model that the requests are prepared for, which is not called; by default the recorded one.

        Raises:
            ValueError: The version is not the end of a turn.
        """
        check_model('model', model)
        return await replay(self._session, self.record, run_tools=run_tools, model=model)

    def _check_version(self, other: object) -> None:
        check_object('other', other, type(self), LOAD_VERSION)
