"""`VersionedAgent`: an agent and a store. It makes versions, finds them, and goes on with what was left."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Generic, cast

from pydantic import TypeAdapter
from pydantic_ai import CancellationToken
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from pydantic_deep.approvals import Decision, NothingPendingError
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.store import (
    BranchRecord,
    Commit,
    ConversationRecord,
    GarbageReport,
    HeadMove,
    NewAsset,
    RequestRecord,
    Store,
    VersionFilter,
    VersionKind,
    VersionRecord,
    WorkspaceRecord,
    new_id,
)
from pydantic_deep_backends import BackendProtocol, ReadOnlyBackend, StateBackend, Tree

from . import _answers, _merge, _recover, _replay
from ._at_hand import AtHand
from ._changes import Replay, VersionDiff, diff_files
from ._children import MAIN, root_version
from ._conversation import VersionedConversation
from ._deps_state import DepsState
from ._file_backends import describe_backend, workspace_key
from ._messages import decode_messages, load_history
from ._outputs import output_adapter
from ._recording import Recording, now
from ._requests import RequestLog
from ._restore import checkout_version
from ._run_files import TurnFiles
from ._settings import dump_settings
from ._stream import TurnStream
from ._subagents import SubagentThread, ThreadEvent, load_events, load_subagents, runs_of
from ._turn import OpenTurn, Prompt, TurnRequest, open_files_of, open_turn
from ._version import AgentVersion, DepsT, Lineage, Loaded, OutputT
from .errors import ApprovalsPendingError, ValidationError

VISIBLE_KINDS: tuple[VersionKind, ...] = ('root', 'turn', 'pause', 'edit', 'merge')
"""Everything but steps."""


class VersionedAgent(Generic[DepsT, OutputT]):
    """An agent whose every step is kept: make versions of it, go on from any of them, compare, merge, go back.

    The agent is any pydantic-ai agent and stays stateless; all state is in the store. One object serves any number
    of conversations and users at once.

    Args:
        agent: The agent. Its name is that of its versions.
        store: Where versions live.
        make_deps: Makes the deps of each run, for their live handles; todos, uploads and files come from the version.
            By default `agent.deps_type()` where that is `DeepAgentDeps` or a subclass, else none.
        approval_timeout_seconds: After how long what waits counts as denied; `None` for never.
    """

    def __init__(
        self,
        agent: AbstractAgent[DepsT, OutputT],
        store: Store,
        *,
        make_deps: Callable[[], DepsT] | None = None,
        approval_timeout_seconds: float | None = None,
    ) -> None:
        self.agent = agent
        """The agent."""
        self.store = store
        """Where versions live."""
        self.approval_timeout_seconds = approval_timeout_seconds
        """After how long what waits counts as denied."""
        self._make_deps = make_deps
        self._histories = AtHand[tuple[list[ModelMessage], list[str]]]()
        self._request_logs = AtHand[RequestLog]()
        self._trees = AtHand[Tree]()

    def __repr__(self) -> str:
        return f'VersionedAgent({self.agent.name!r}, {self.store.url!r})'

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self.agent.name or 'agent'

    # What users call

    async def create(
        self,
        *,
        name: str | None = None,
        metadata: Mapping[str, object] | None = None,
        backend: BackendProtocol | None = None,
        deps: DepsT | None = None,
        model: str | None = None,
        model_settings: ModelSettings | None = None,
        conversation_id: str | None = None,
    ) -> AgentVersion[DepsT, OutputT]:
        """Return the root of a new conversation, with the files as they are.

        Args:
            name: A name, to find it by; versions that come from it have it too.
            metadata: What to keep with it, as JSON; versions that come from it have it too.
            backend: The files; by default those of the deps.
            deps: Deps to begin with: their todos, uploads and metadata are part of the version.
            model: The name of the model of all turns, instead of the agent's.
            model_settings: Settings of all turns.
            conversation_id: An id of your own for the conversation.

        Raises:
            ValidationError: A setting cannot be kept.
            ValidationError: The metadata are no JSON, or there is a conversation of that id.
        """
        if conversation_id is not None and await self.store.conversation(conversation_id) is not None:
            raise ValueError(
                f'There is a conversation {conversation_id!r} already. Leave the id out, or go on with it.'
            )
        id = conversation_id or new_id()
        branch = BranchRecord(new_id(), id, MAIN, None, 0, 0, None, None, now())
        given = deps if deps is not None else self.make_deps()
        root = root_version(self.name, branch)._replace(
            name=name,
            metadata=_dump_metadata(metadata),
            model=model,
            model_settings=dump_settings(model_settings, model),
        )
        assets: list[NewAsset] = []
        if isinstance(given, DeepAgentDeps):
            state = DepsState(digest=None)
            assets += await state.dump(given)
            root = root._replace(deps=state.digest)
            backend = backend or given.backend
        nodes: Mapping[str, bytes] = {}
        if backend is not None:
            files = await open_files_of(backend, self.read_asset)
            if files is not None:
                try:
                    new = await TurnFiles(files=files, tree=Tree()).capture(is_full=True)
                finally:
                    await files.aclose()
                assets += new.assets
                nodes = {**dict(Tree().nodes()), **new.nodes}
                root = root._replace(tree=new.tree, backend=describe_backend(backend))
        await self.store.commit(
            Commit(
                assets=assets,
                nodes=nodes,
                conversations=[ConversationRecord(id, self.name, None, now())],
                branches=[branch],
                versions=[root],
                heads=[HeadMove(conversation_id=id, expected_id=None, version_id=root.id)],
                workspaces=_workspaces_of(root),
            )
        )
        return await self._handle(await self.store.version(root.id), backend)

    async def load(self, id: str, *, backend: BackendProtocol | None = None) -> AgentVersion[DepsT, OutputT]:
        """Return a version.

        Args:
            id: Its id, or an unambiguous beginning of it, of at least 8 characters.
            backend: Its files, if the store cannot tell how to open them: it can for `LocalBackend` and
                `SandboxBackend` with its default limits. Without, turns work on a view of the files.

        Raises:
            VersionNotFoundError: There is none, or the beginning fits several.
        """
        return await self._handle(await self.store.version(id), backend)

    async def list(
        self,
        *,
        limit: int = 100,
        offset: int = 0,
        name: str | None = None,
        model: str | None = None,
        metadata: Mapping[str, str | int | float | bool | None] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        conversation_id: str | None = None,
        steps: bool = False,
    ) -> list[AgentVersion[DepsT, OutputT]]:
        """Return versions of this agent, newest first.

        Args:
            limit: At most how many.
            offset: How many to leave out first.
            name: A part of the name, whatever the case.
            model: The model.
            metadata: Values that keys of the metadata have.
            since: Made then or later.
            until: Made before then.
            conversation_id: Those of one conversation.
            steps: Also those in the middle of turns.
        """
        found = await self.store.versions(
            self._filter(name, model, metadata, since, until, conversation_id, steps=steps),
            limit=limit,
            offset=offset,
        )
        return await self._handles(found)

    async def count(
        self,
        *,
        name: str | None = None,
        model: str | None = None,
        metadata: Mapping[str, str | int | float | bool | None] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        conversation_id: str | None = None,
        steps: bool = False,
    ) -> int:
        """Return how many versions of this agent there are; the arguments are those of `list`."""
        return await self.store.count(self._filter(name, model, metadata, since, until, conversation_id, steps=steps))

    async def find_by_name(self, name: str) -> AgentVersion[DepsT, OutputT] | None:
        """Return the newest version with exactly this name; `None` if there is none."""
        found = await self.store.versions(
            VersionFilter(agent_name=self.name, exact_name=name, kinds=VISIBLE_KINDS), limit=1
        )
        return (await self._handles(found))[0] if found else None

    def conversation(self, id: str, *, backend: BackendProtocol | None = None) -> VersionedConversation[DepsT, OutputT]:
        """Return the handle of a conversation, whose head moves with each turn.

        Args:
            id: The `conversation_id` of any of its versions.
            backend: Its files, as for `load`.
        """
        return VersionedConversation(self, id, backend)

    async def thread(self, conversation_id: str) -> list[ModelMessage]:
        """Return the newest messages of a conversation, that of a subagent too: take the `sub_agent_thread_id`.

        Raises:
            LookupError: There is no such conversation.
        """
        newest = await self.store.versions(VersionFilter(conversation_id=conversation_id), limit=1)
        if not newest:
            raise LookupError(f'There is no conversation {conversation_id!r} in this store.')
        return (await self.history(newest[0]))[0]

    async def events(self, conversation_id: str) -> list[ThreadEvent]:
        """Return what a conversation tells of its delegations: `tool_call` with the link to the thread, `tool_response`."""
        return await load_events(self.store, conversation_id)

    async def delete(self, version: AgentVersion[DepsT, OutputT] | str) -> None:
        """Delete one version. Its children stay, and their lineage ends where it was.

        Raises:
            VersionNotFoundError: There is no such version.
        """
        await self.store.delete(version if isinstance(version, str) else version.id)

    async def delete_line(self, head: AgentVersion[DepsT, OutputT] | str) -> int:
        """Delete a version and those above it, up to the first that another came from; return how many.

        Raises:
            VersionNotFoundError: There is no such version.
        """
        return await self.store.delete_line(head if isinstance(head, str) else head.id)

    async def gc(self, grace_seconds: float = 3600) -> GarbageReport:
        """Remove what no version reaches: see `Store.gc`."""
        return await self.store.gc(grace_seconds)

    async def recover(self) -> list[AgentVersion[DepsT, OutputT]]:
        """Go on with the runs of this agent whose process died, and return the versions that they end with.

        What is done is not done again. A call that only reads runs once more; one that may have run and does more than
        read becomes an approval. Call it when a program starts; of several that do, each run is taken by one.
        A run that fails once more is kept as a failed version and does not keep others from being recovered.
        """
        return await _recover.recover(self)

    # What versions call

    async def advance(
        self,
        version: AgentVersion[DepsT, OutputT],
        prompt: Prompt,
        *,
        deps: DepsT | None,
        model: Model | str | None,
        branch: str | None,
        usage_limits: UsageLimits | None,
        model_settings: ModelSettings,
    ) -> AgentVersion[DepsT, OutputT]:
        """See `AgentVersion.advance`."""
        request = self._turn(version, prompt, deps, model, branch, usage_limits, model_settings)
        return await self.run_turn(request)

    def advance_stream(
        self,
        version: AgentVersion[DepsT, OutputT],
        prompt: Prompt,
        *,
        deps: DepsT | None,
        model: Model | str | None,
        branch: str | None,
        usage_limits: UsageLimits | None,
        cancellation_token: CancellationToken | None,
        model_settings: ModelSettings,
    ) -> TurnStream[DepsT, OutputT]:
        """See `AgentVersion.advance_stream`."""
        request = self._turn(version, prompt, deps, model, branch, usage_limits, model_settings)
        return self._stream(partial(open_turn, self, request), version, cancellation_token)

    async def run_turn(self, request: TurnRequest) -> AgentVersion[DepsT, OutputT]:
        """Run a turn, and return the version that it ends with."""
        async with open_turn(self, request) as turn:
            await self.agent.run(**turn.arguments)
        return await self._handle(turn.recording.tip, request.backend)

    async def resume(
        self,
        version: AgentVersion[DepsT, OutputT],
        answers: Mapping[str, Decision],
        *,
        by: str | None,
        reason: str | None,
        deps: DepsT | None,
    ) -> AgentVersion[DepsT, OutputT]:
        """See `AgentVersion.resume`."""
        return await self.run_turn(await self._resumption(version, answers, by, reason, deps, None))

    def resume_stream(
        self,
        version: AgentVersion[DepsT, OutputT],
        answers: Mapping[str, Decision],
        *,
        by: str | None,
        reason: str | None,
        deps: DepsT | None,
        usage_limits: UsageLimits | None,
        cancellation_token: CancellationToken | None,
    ) -> TurnStream[DepsT, OutputT]:
        """See `AgentVersion.resume_stream`."""

        @asynccontextmanager
        async def start() -> AsyncGenerator[OpenTurn]:
            request = await self._resumption(version, answers, by, reason, deps, usage_limits)
            async with open_turn(self, request) as turn:
                yield turn

        return self._stream(start, version, cancellation_token)

    async def _resumption(
        self,
        version: AgentVersion[DepsT, OutputT],
        answers: Mapping[str, Decision],
        by: str | None,
        reason: str | None,
        deps: DepsT | None,
        usage_limits: UsageLimits | None,
    ) -> TurnRequest:
        """Give answers, and return what goes on with them."""
        record, requests = version.record, version.deferred_tool_requests
        if requests is None:
            raise NothingPendingError(f'The version {version.id} waits for nothing: it is {version.state}.')
        if answers:
            await _answers.decide(self.store, record, requests, answers, by=by, reason=reason)
        return TurnRequest(
            base=record,
            claim_results=partial(_answers.claim, self.store, record),
            backend=version.backend,
            deps=deps,
            usage_limits=usage_limits,
        )

    def _stream(
        self,
        start: Callable[[], AbstractAsyncContextManager[OpenTurn]],
        version: AgentVersion[DepsT, OutputT],
        cancellation_token: CancellationToken | None,
    ) -> TurnStream[DepsT, OutputT]:
        def run(turn: OpenTurn) -> AbstractAsyncContextManager[Any]:
            return self.agent.run_stream_events(**turn.arguments, cancellation_token=cancellation_token)

        def version_of(turn: OpenTurn) -> object:
            return self._handle(turn.recording.tip, version.backend)

        return TurnStream(start, run, version_of)

    async def messages_of(self, record: VersionRecord, start: int, stop: int | None) -> list[ModelMessage]:
        """Return messages of a version, read anew: whoever gets them may change them, and those at hand must not."""
        end = record.message_count if stop is None else min(stop, record.message_count)
        return await decode_messages(await self.store.messages(record.branch_id, end, start=start), self.read_asset)

    async def lineage_of(self, record: VersionRecord) -> Lineage[DepsT, OutputT]:
        """See `AgentVersion.lineage`."""
        found = await self.store.lineage(record.id)
        return Lineage(await self._handles(found.versions), found.truncated_at)

    async def children_of(self, record: VersionRecord, *, steps: bool) -> list[AgentVersion[DepsT, OutputT]]:
        """See `AgentVersion.children`."""
        found = await self.store.children(record.id)
        return await self._handles([child for child in found if steps or child.kind != 'step'])

    async def steps_of(self, record: VersionRecord) -> list[AgentVersion[DepsT, OutputT]]:
        """See `AgentVersion.steps`."""
        steps: list[VersionRecord] = []
        for run_id in await runs_of(self.store, record):
            found = await self.store.versions(VersionFilter(run_id=run_id, kinds=['step']), limit=1_000_000)
            steps += [step for step in reversed(found) if step.number < (record.number or step.number + 1)]
        return await self._handles(steps)

    async def clone(self, version: AgentVersion[DepsT, OutputT]) -> AgentVersion[DepsT, OutputT]:
        """See `AgentVersion.clone`."""
        record = version.record
        clone = record._replace(id=new_id(), number=0, cloned_from=record.id, created_at=now())
        approvals = await _answers.fresh_approvals(self.store, record, clone.id)
        await self.store.commit(Commit(versions=[clone], approvals=approvals))
        return await self._handle(await self.store.version(clone.id), version.backend)

    async def edit(
        self,
        version: AgentVersion[DepsT, OutputT],
        *,
        metadata: Mapping[str, object] | None,
        name: str | None,
        model_settings: ModelSettings | None,
    ) -> AgentVersion[DepsT, OutputT]:
        """See `AgentVersion.with_metadata`."""
        record = version.record
        child = record._replace(
            id=new_id(),
            number=0,
            parent_id=record.id,
            cloned_from=None,
            merged_from=None,
            kind='edit',
            run_id=None,
            name=record.name if name is None else name,
            metadata=record.metadata if metadata is None else _dump_metadata(metadata),
            created_at=now(),
        )
        if model_settings is not None:
            child = child._replace(
                model_settings=dump_settings(model_settings, json.loads(record.model_settings).get('model'))
            )
        approvals = await _answers.fresh_approvals(self.store, record, child.id)
        await self.store.commit(Commit(versions=[child], approvals=approvals))
        return await self._handle(await self.store.version(child.id), version.backend)

    async def diff(self, before: AgentVersion[DepsT, OutputT], after: AgentVersion[DepsT, OutputT]) -> VersionDiff:
        """See `AgentVersion.diff`."""
        old, old_ids = await load_history(self.store, before.record)
        new, new_ids = await load_history(self.store, after.record)
        common = next(
            (index for index, (a, b) in enumerate(zip(old_ids, new_ids, strict=False)) if a != b),
            min(len(old_ids), len(new_ids)),
        )
        files = await diff_files(await before.file_tree(), await after.file_tree(), self.read_asset)
        used, more = before.usage, after.usage
        for name in (
            'requests',
            'tool_calls',
            'input_tokens',
            'output_tokens',
            'cache_read_tokens',
            'cache_write_tokens',
        ):
            setattr(more, name, getattr(more, name) - getattr(used, name))
        return VersionDiff(
            messages_common=common,
            messages_removed=old[common:],
            messages_added=new[common:],
            files=files,
            todos_before=before.todos,
            todos_after=after.todos,
            usage=more,
        )

    async def merge(
        self, version: AgentVersion[DepsT, OutputT], other: AgentVersion[DepsT, OutputT]
    ) -> AgentVersion[DepsT, OutputT]:
        """See `AgentVersion.merge`."""
        merged = await _merge.merge_versions(self, version.record, other.record)
        return await self._handle(merged, version.backend)

    async def checkout(
        self, version: AgentVersion[DepsT, OutputT], *, force: bool, backend: BackendProtocol | None
    ) -> None:
        """See `AgentVersion.checkout`."""
        await checkout_version(self, version.record, backend or version.backend, force=force)

    async def files_of(self, record: VersionRecord) -> BackendProtocol:
        """See `AgentVersion.files`."""
        tree = Tree() if record.tree is None else await self.tree(record.tree)
        return ReadOnlyBackend(StateBackend.of(tree, self.read_asset))

    async def subagents_of(self, record: VersionRecord) -> Sequence[SubagentThread]:
        """See `AgentVersion.subagents`."""
        return await load_subagents(self.store, await runs_of(self.store, record))

    async def requests_of(self, record: VersionRecord) -> Sequence[RequestRecord]:
        """See `AgentVersion.requests`."""
        return [each for run_id in await runs_of(self.store, record) for each in await self.store.requests(run_id)]

    async def replay(self, version: AgentVersion[DepsT, OutputT]) -> Replay:
        """See `AgentVersion.replay`."""
        return await _replay.replay(self, version.record)

    def parse_output(self, text: str) -> OutputT:
        """Return an output from its JSON, of the type that the agent answers with."""
        return cast('OutputT', self._output_adapter.validate_json(text))

    @cached_property
    def _output_adapter(self) -> TypeAdapter[Any]:
        return output_adapter(self.agent.output_type)

    # What turns need (`Host`)

    def make_deps(self) -> object:
        """Return fresh deps."""
        if self._make_deps is not None:
            return self._make_deps()
        deps_type = self.agent.deps_type
        return deps_type() if issubclass(deps_type, DeepAgentDeps) else None

    async def history(self, record: VersionRecord) -> tuple[list[ModelMessage], list[str]]:
        """Return the messages of a version and their ids."""
        at_hand = self._histories.get(record.id)
        if at_hand is None:
            at_hand = await load_history(self.store, record)
            self._histories.set(record.id, at_hand)
        return at_hand

    async def tree(self, digest: str) -> Tree:
        """Return a tree."""
        tree = self._trees.get(digest)
        if tree is None:
            tree = Tree.from_nodes(digest, await self.store.nodes(digest))
            self._trees.set(digest, tree)
        return tree

    def request_log(self, record: VersionRecord) -> RequestLog:
        """Return what is known of the requests up to a version, for a run that goes on from it."""
        at_hand = self._request_logs.get(record.id)
        return RequestLog() if at_hand is None else at_hand.for_next_run()

    def keep(self, recording: Recording, tree: Tree | None) -> None:
        """Keep at hand what the next turn will ask for."""
        self._histories.set(recording.tip.id, recording.history)
        self._request_logs.set(recording.tip.id, recording.begin.requests)
        if tree is not None:
            self._trees.set(tree.digest, tree)

    async def read_asset(self, digest: str) -> bytes:
        """Return contents by their digest."""
        return (await self.store.asset(digest)).data

    # Within

    def _turn(
        self,
        version: AgentVersion[DepsT, OutputT],
        prompt: Prompt,
        deps: DepsT | None,
        model: Model | str | None,
        branch: str | None,
        usage_limits: UsageLimits | None,
        model_settings: ModelSettings,
    ) -> TurnRequest:
        if version.state == 'awaiting_approval':
            raise ApprovalsPendingError(version.id, [pending.id for pending in version.pending])
        return TurnRequest(
            base=version.record,
            prompt=prompt,
            backend=version.backend,
            deps=deps,
            model=model,
            model_settings=model_settings,
            branch=branch,
            usage_limits=usage_limits,
        )

    def _filter(
        self,
        name: str | None,
        model: str | None,
        metadata: Mapping[str, str | int | float | bool | None] | None,
        since: datetime | None,
        until: datetime | None,
        conversation_id: str | None,
        *,
        steps: bool,
    ) -> VersionFilter:
        return VersionFilter(
            kinds=None if steps else VISIBLE_KINDS,
            agent_name=self.name,
            name=name,
            model=model,
            metadata=metadata,
            since=None if since is None else int(since.timestamp() * 1e6),
            until=None if until is None else int(until.timestamp() * 1e6),
            conversation_id=conversation_id,
        )

    async def _handle(
        self, record: VersionRecord, backend: BackendProtocol | None = None
    ) -> AgentVersion[DepsT, OutputT]:
        return (await self._handles([record], backend))[0]

    async def _handles(
        self, records: Collection[VersionRecord], backend: BackendProtocol | None = None
    ) -> list[AgentVersion[DepsT, OutputT]]:
        """Return handles, with what they refer to read at once."""
        wanted = {digest for record in records for digest in (record.deps, record.pending) if digest is not None}
        found = await self.store.assets(wanted) if wanted else {}
        data = {digest: asset.data for digest, asset in found.items()}
        # Thousands of versions refer to the same few: a lineage makes these once.
        loaded = {
            key: Loaded(deps=data.get(key[0] or ''), pending=data.get(key[1] or ''))
            for key in {(record.deps, record.pending) for record in records}
        }
        return [
            AgentVersion(_agent=self, _record=record, _loaded=loaded[record.deps, record.pending], _backend=backend)
            for record in records
        ]


def _dump_metadata(metadata: Mapping[str, object] | None) -> str:
    try:
        return json.dumps(dict(metadata or {}), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValidationError('metadata', f'JSON cannot hold this: {error}.') from None


def _workspaces_of(root: VersionRecord) -> list[WorkspaceRecord]:
    """Return that the directory of a new root holds its files: they were taken from there."""
    if root.backend is None:
        return []
    return [WorkspaceRecord(workspace_key(root.backend), root.id, None)]
