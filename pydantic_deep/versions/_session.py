"""`Session`: what versions call to go on from them, and what a turn needs. Users call `VersionedAgent` and versions."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Generic, cast

from pydantic import JsonValue, TypeAdapter
from pydantic_ai import CancellationToken
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from pydantic_deep._checks import check_model, check_names, check_prompt
from pydantic_deep.agent import literal_instructions
from pydantic_deep.approvals import Decision, NothingPendingError
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.store import (
    Commit,
    RequestRecord,
    Store,
    VersionFilter,
    VersionRecord,
    new_id,
    now,
)
from pydantic_deep_backends import BackendProtocol, ReadOnlyBackend, StateBackend, Tree

from ._instructions_check import warn_of_other_instructions
from ._lru import LRUCache
from ._messages import decode_messages, load_history
from ._output_types import output_adapter
from ._settings import (
    check_settings,
    dump_settings,
    listed,
    load_agent_instructions,
    load_instructions,
    load_settings,
    with_agent_instructions,
)
from ._state_edit import with_upload, without_upload
from ._subagent_threads import SubagentThread, attempt_ids, load_subagents
from ._turn import OpenTurn, TurnOutcome, TurnRequest, open_turn
from ._turn_stream import TurnStream
from ._version import AgentVersion, DepsT, Lineage, Loaded, OutputT
from .comparison import _merge, _replay
from .comparison._version_diff import Replay, VersionDiff, diff_files
from .errors import ApprovalsPendingError, ValidationError
from .files._version_checkout import checkout_version
from .pauses import _answers
from .recording._prompts import Prompt
from .recording._recorded_run import RecordedRun
from .recording._request_log import RequestLog


class Session(Generic[DepsT, OutputT]):
    """An agent with its store and caches, shared by all versions of the agent."""

    def __init__(
        self,
        agent: AbstractAgent[DepsT, OutputT],
        store: Store,
        *,
        make_deps: Callable[[], DepsT] | None,
        approval_timeout_seconds: float | None,
    ) -> None:
        self.agent = agent
        """The agent."""
        self.store = store
        """Where versions live."""
        self.approval_timeout_seconds = approval_timeout_seconds
        """After how long what waits counts as denied."""
        self._make_deps = make_deps
        self._histories = LRUCache[tuple[list[ModelMessage], list[str]]]()
        self._request_logs = LRUCache[RequestLog]()
        self._trees = LRUCache[Tree]()

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self.agent.name or 'agent'

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
        run_id: str | None,
        moves_head: bool,
        model_settings: ModelSettings,
    ) -> TurnStream[DepsT, OutputT]:
        """See `AgentVersion.advance_stream`."""
        check_names(run_id=run_id)
        request = self._turn(version, prompt, deps, model, branch, usage_limits, model_settings)
        request = replace(request, run_id=run_id or new_id(), head_id=version.id if moves_head else None)
        return self._stream(partial(open_turn, self, request), version, cancellation_token, request.outcome)

    async def run_turn(self, request: TurnRequest) -> AgentVersion[DepsT, OutputT]:
        """Run a turn, and return the version that it ends with."""
        async with open_turn(self, request) as turn:
            await self.agent.run(**turn.arguments)
        return await self.handle(turn.recording.tip, request.backend)

    async def resume(
        self,
        version: AgentVersion[DepsT, OutputT],
        answers: Mapping[str, Decision],
        *,
        by: str | None,
        reason: str | None,
        deps: DepsT | None,
        usage_limits: UsageLimits | None,
    ) -> AgentVersion[DepsT, OutputT]:
        """See `AgentVersion.resume`."""
        return await self.run_turn(await self._resumption(version, answers, by, reason, deps, usage_limits))

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
        run_id: str | None,
        moves_head: bool,
    ) -> TurnStream[DepsT, OutputT]:
        """See `AgentVersion.resume_stream`."""
        check_names(run_id=run_id, by=by)
        outcome = TurnOutcome()

        @asynccontextmanager
        async def start() -> AsyncGenerator[OpenTurn]:
            request = await self._resumption(version, answers, by, reason, deps, usage_limits)
            head_id = version.id if moves_head else None
            request = replace(request, run_id=run_id or new_id(), head_id=head_id, outcome=outcome)
            async with open_turn(self, request) as turn:
                yield turn

        return self._stream(start, version, cancellation_token, outcome)

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
        check_names(by=by)
        record, requests = version.record, version.deferred_tool_requests
        if requests is None:
            raise NothingPendingError(f'The version {version.id} waits for nothing: it is {version.state}.')
        await self.store.version(version.id)  # it may have been deleted, and what waited in it with it
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
        outcome: TurnOutcome,
    ) -> TurnStream[DepsT, OutputT]:
        def run(turn: OpenTurn) -> AbstractAsyncContextManager[Any]:
            return self.agent.run_stream_events(**turn.arguments, cancellation_token=cancellation_token)

        def version_of(turn: OpenTurn) -> object:
            return self.handle(turn.recording.tip, version.backend)

        return TurnStream(start, run, version_of, outcome)

    async def messages_of(self, record: VersionRecord, start: int, stop: int | None) -> list[ModelMessage]:
        """Return messages of a version, read anew: whoever gets them may change them, and those at hand must not."""
        end = record.message_count if stop is None else min(stop, record.message_count)
        return await decode_messages(await self.store.messages(record.branch_id, end, start=start), self.read_asset)

    async def lineage_of(self, record: VersionRecord) -> Lineage[DepsT, OutputT]:
        """See `AgentVersion.lineage`."""
        found = await self.store.lineage(record.id)
        return Lineage(await self.handles(found.versions), found.truncated_at)

    async def children_of(self, record: VersionRecord, *, steps: bool) -> list[AgentVersion[DepsT, OutputT]]:
        """See `AgentVersion.children`."""
        found = await self.store.children(record.id)
        return await self.handles([child for child in found if steps or child.kind != 'step'])

    async def steps_of(self, record: VersionRecord) -> list[AgentVersion[DepsT, OutputT]]:
        """See `AgentVersion.steps`."""
        steps: list[VersionRecord] = []
        for run_id in await attempt_ids(self.store, record):
            found = await self.store.versions(VersionFilter(run_id=run_id, kinds=['step']), limit=1_000_000)
            steps += [step for step in reversed(found) if step.number < (record.number or step.number + 1)]
        return await self.handles(steps)

    async def clone(self, version: AgentVersion[DepsT, OutputT]) -> AgentVersion[DepsT, OutputT]:
        """See `AgentVersion.clone`."""
        record = await self.store.version(version.id)
        clone = record._replace(id=new_id(), number=0, cloned_from=record.id, created_at=now())
        approvals = await _answers.fresh_approvals(self.store, record, clone.id)
        await self.store.commit(Commit(versions=[clone], approvals=approvals))
        return await self.handle(await self.store.version(clone.id), version.backend)

    async def edit(
        self,
        version: AgentVersion[DepsT, OutputT],
        *,
        metadata: Mapping[str, object] | None,
        name: str | None,
        model_settings: ModelSettings | None,
        instructions: str | Sequence[str] | None,
    ) -> AgentVersion[DepsT, OutputT]:
        """See `AgentVersion.with_metadata`."""
        check_names(name=name)
        record = await self.store.version(version.id)
        settings, model = load_settings(record.model_settings)
        kept = load_instructions(record.model_settings) if instructions is None else listed(instructions)
        child = record.child(
            'edit',
            name=record.name if name is None else name,
            metadata=record.metadata if metadata is None else dump_metadata(metadata),
            model_settings=with_agent_instructions(
                dump_settings(settings if model_settings is None else model_settings, model, kept),
                load_agent_instructions(record.model_settings),
            ),
        )
        approvals = await _answers.fresh_approvals(self.store, record, child.id)
        await self.store.commit(Commit(versions=[child], approvals=approvals))
        return await self.handle(await self.store.version(child.id), version.backend)

    async def upload(
        self, version: AgentVersion[DepsT, OutputT], name: str, data: bytes, *, moves_head: bool
    ) -> AgentVersion[DepsT, OutputT]:
        """See `AgentVersion.upload`."""
        child = await with_upload(self, version.record, version.backend, name, data, moves_head=moves_head)
        return await self.handle(child, version.backend)

    async def remove_upload(
        self, version: AgentVersion[DepsT, OutputT], name: str, *, moves_head: bool
    ) -> AgentVersion[DepsT, OutputT]:
        """See `AgentVersion.remove_upload`."""
        child = await without_upload(self, version.record, version.backend, name, moves_head=moves_head)
        return await self.handle(child, version.backend)

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
        return await self.handle(merged, version.backend)

    async def checkout(
        self, version: AgentVersion[DepsT, OutputT], *, force: bool, backend: BackendProtocol | None
    ) -> None:
        """See `AgentVersion.checkout`."""
        await checkout_version(self, version.record, backend or version.backend, force=force)

    async def files_of(self, record: VersionRecord) -> BackendProtocol:
        """See `AgentVersion.files`."""
        tree = Tree() if record.tree is None else await self.tree(record.tree)
        return ReadOnlyBackend(StateBackend.of(tree, self.read_asset))

    async def subagents_of(
        self, record: VersionRecord, *, whole_conversation: bool = False
    ) -> Sequence[SubagentThread]:
        """See `AgentVersion.subagents`."""
        records = (await self.store.lineage(record.id)).versions if whole_conversation else (record,)
        records = {each.run_id: each for each in records}.values()
        run_ids = [run_id for each in records for run_id in await attempt_ids(self.store, each)]
        return await load_subagents(self.store, list(dict.fromkeys(run_ids)))

    async def requests_of(self, record: VersionRecord) -> Sequence[RequestRecord]:
        """See `AgentVersion.requests`."""
        return [each for run_id in await attempt_ids(self.store, record) for each in await self.store.requests(run_id)]

    async def request_parameters_of(self, record: VersionRecord) -> Mapping[str, JsonValue] | None:
        """See `AgentVersion.request_parameters`."""
        for version in reversed(await self.lineage_of(record)):
            requests = [each for each in await self.requests_of(version.record) if each.kind != 'summary']
            found = [request.parameters for request in requests if request.parameters]
            if found:
                return json.loads(await self.read_asset(found[-1]))
        return None

    async def replay(self, version: AgentVersion[DepsT, OutputT]) -> Replay:
        """See `AgentVersion.replay`."""
        return await _replay.replay(self, version.record)

    def parse_output(self, text: str) -> OutputT:
        """Return an output from its JSON, of the type that the agent answers with."""
        return cast('OutputT', self._output_adapter.validate_json(text))

    @cached_property
    def _output_adapter(self) -> TypeAdapter[Any]:
        return output_adapter(self.agent.output_type)

    # What turns need (`TurnSession`)

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

    def keep_history(self, version_id: str, messages: list[ModelMessage], ids: list[str]) -> None:
        """Keep a history at hand that no run has made."""
        self._histories.set(version_id, (messages, ids))

    def keep(self, recording: RecordedRun, tree: Tree | None) -> None:
        """Keep at hand what the next turn will ask for."""
        self._histories.set(recording.tip.id, recording.history)
        self._request_logs.set(recording.tip.id, recording.start.requests)
        if tree is not None:
            self._trees.set(tree.digest, tree)

    async def read_asset(self, digest: str) -> bytes:
        """Return contents by their digest."""
        return (await self.store.asset(digest)).data

    async def load(self, id: str, backend: BackendProtocol | None = None) -> AgentVersion[DepsT, OutputT]:
        """Return a version; warn if it was made with other instructions of the agent than it has now."""
        record = await self.store.version(id)
        instructions = literal_instructions(self.agent)
        if instructions is not None:
            warn_of_other_instructions(self.store, record, instructions)
        return await self.handle(record, backend)

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
        check_prompt('prompt', prompt)
        check_model('model', model)
        check_names(branch=branch)
        check_settings(model_settings)
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

    async def handle(
        self, record: VersionRecord, backend: BackendProtocol | None = None
    ) -> AgentVersion[DepsT, OutputT]:
        """Return the handle of a version."""
        return (await self.handles([record], backend))[0]

    async def handles(
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
            AgentVersion(_session=self, _record=record, _loaded=loaded[record.deps, record.pending], _backend=backend)
            for record in records
        ]


def dump_metadata(metadata: Mapping[str, object] | None) -> str:
    """Return metadata as a version keeps them.

    Raises:
        ValidationError: They are no JSON.
    """
    try:
        text = json.dumps(dict(metadata or {}), sort_keys=True, allow_nan=False)
        json.dumps(json.loads(text), ensure_ascii=False).encode()  # no half of a surrogate pair
        return text
    except (TypeError, ValueError) as error:
        raise ValidationError('metadata', f'JSON cannot hold this: {error}.') from None
