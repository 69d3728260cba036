"""`StoreReader`: loads views from a store, regardless of the agent and process that wrote it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, ToolCallPart, ToolReturnPart

from pydantic_deep._requests.prices import window_of
from pydantic_deep.approvals import Deny, Edit, Respond
from pydantic_deep.audit import redact
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.filesystem import exit_code_of
from pydantic_deep.store import (
    ApprovalRecord,
    ConversationRecord,
    Store,
    VersionNotFoundError,
    VersionRecord,
    utc_datetime,
)
from pydantic_deep.versions import AgentVersion, InboxItem, VersionedAgent

from ._approvals import StoredApproval
from ._conversations import ContextSize, ConversationDetails, ConversationSummary
from ._repeats import repeat_of
from ._turn_lineages import TurnLineage, TurnLineages, is_pending
from ._usage import Usage
from ._versions import Difference, StoredRequest, SubagentTree, ToolCall, Version, VersionDetails


class StoreReader:
    """Loads views from a store, without running an agent or calling a model.

    Args:
        store: The store.
        hidden_metadata: Metadata keys to omit from views.
        shows_errors: Whether views contain exception messages, which may reveal internals of an application. Otherwise,
            they contain only the names of the exceptions.
    """

    def __init__(self, store: Store, *, hidden_metadata: Collection[str] = (), shows_errors: bool = True) -> None:
        agent = Agent(None, name='reader', deps_type=DeepAgentDeps, output_type=[str, DeferredToolRequests])
        self.store = store
        """The store that views are loaded from."""
        self.agent: VersionedAgent[DeepAgentDeps, Any] = VersionedAgent(agent, store)
        """An agent without a model, for loading versions and creating versions without a run."""
        self._hidden_metadata = hidden_metadata
        self._shows_errors = shows_errors

    async def versions(self, records: Sequence[VersionRecord]) -> list[Version]:
        """Return versions in the order of the records."""
        turns = TurnLineages(store=self.store)
        turns.cache(records)
        return await self._versions(await self.agent.wrap(records), turns)

    async def version(self, record: VersionRecord) -> Version:
        """Return one version."""
        return (await self.versions([record]))[0]

    async def details(self, record: VersionRecord) -> VersionDetails:
        """Return a version with its turn so far. Subagents and the error are those of the whole run."""
        turns = TurnLineages(store=self.store)
        [version], lineage = await self.agent.wrap([record]), await turns.lineage(record)
        [summary] = await self._versions([version], turns)
        messages = await version.messages(start=await turns.first_message_index(lineage))
        parts = await self.agent.wrap(list({member.run_id: member for member in lineage.versions}.values()))
        base = None if lineage.base is None else (await self.agent.wrap([lineage.base]))[0]
        subagents = {tree.conversation_id: tree for part in parts for tree in await part.subagents()}
        return VersionDetails(
            **dict(summary),
            metadata=self.metadata(record),
            steps=list({step.id: None for part in parts for step in await part.steps()}),
            tool_calls=_tool_calls(messages),
            output=_partial_answer(record, messages) if record.output is None else stored_output_text(record),
            error=await self._error(record),
            requests=await self._requests(lineage, parts),
            files=[] if base is None else await base.diff_files(version),
            todos=version.todos,
            subagents=[SubagentTree.model_validate(tree) for tree in subagents.values()],
            approvals=await self.approvals_of(version),
        )

    async def difference(self, before: VersionRecord, after: VersionRecord) -> Difference:
        """Return the differences from one version to another."""
        one, other = await self.agent.wrap([before, after])
        diff = await one.diff(other)
        return Difference.of(
            diff,
            before=before.id,
            after=after.id,
            messages_removed=_dump_messages(diff.messages_removed),
            messages_added=_dump_messages(diff.messages_added),
        )

    async def approvals(self, records: Sequence[ApprovalRecord]) -> list[StoredApproval]:
        """Return approvals in the order of the records. Each version is loaded once."""
        versions: dict[str, AgentVersion[Any, Any] | None] = {}
        for id in dict.fromkeys(record.version_id for record in records):
            try:
                versions[id] = await self.agent.load(id)
            except VersionNotFoundError:  # answered approvals outlive their version
                versions[id] = None
        return [_approval(record, versions[record.version_id]) for record in records]

    async def approvals_of(self, version: AgentVersion[Any, Any]) -> list[StoredApproval]:
        """Return the approvals of a version, pending and answered."""
        if version.state != 'awaiting_approval':
            return []
        records = await self.store.approvals(status=None, version_id=version.id, limit=10_000)
        return [_approval(record, version) for record in records]

    async def conversation(
        self,
        record: ConversationRecord,
        *,
        newest: VersionRecord,
        running: Sequence[str] = (),
        suspended: Sequence[str] = (),
    ) -> ConversationDetails:
        """Return a conversation with its state at the head.

        Args:
            record: The conversation.
            newest: Its newest version, for the name and the metadata if the head was deleted.
            running: Ids of its running runs.
            suspended: Ids of its suspended runs.
        """
        head = None if record.head_id is None else await self.agent.load(record.head_id)
        known = newest if head is None else head.record
        return ConversationDetails(
            **dict(self.conversation_summary(record, known)),
            metadata=self.metadata(known),
            state=None if head is None else head.state,
            branch=None if head is None else head.branch,
            running=list(running),
            suspended=list(suspended),
            todos=[] if head is None else head.todos,
            approvals=[] if head is None else await self.approvals_of(head),
            usage=Usage() if head is None else Usage.model_validate(head.usage),
            context=None if head is None else await _context(head),
        )

    def conversation_summary(self, record: ConversationRecord, version: VersionRecord) -> ConversationSummary:
        """Return a conversation for a list, with the name stored in one of its versions, usually the head."""
        return ConversationSummary(
            id=record.id,
            agent=record.agent_name,
            name=version.name,
            head=record.head_id,
            created_at=utc_datetime(record.created_at),
        )

    def metadata(self, record: VersionRecord) -> dict[str, JsonValue]:
        """Return the metadata of a version without the hidden keys."""
        metadata: dict[str, JsonValue] = json.loads(record.metadata)
        return {key: value for key, value in metadata.items() if key not in self._hidden_metadata}

    async def _versions(self, versions: Sequence[AgentVersion[Any, Any]], turns: TurnLineages) -> list[Version]:
        heads: dict[str, str | None] = {}
        for id in dict.fromkeys(version.conversation_id for version in versions):
            conversation = await self.store.conversation(id)
            heads[id] = None if conversation is None else conversation.head_id
        return [await self._version(version, turns, heads[version.conversation_id]) for version in versions]

    async def _version(self, version: AgentVersion[Any, Any], turns: TurnLineages, head_id: str | None) -> Version:
        record, parent = version.record, await turns.parent(version.record)
        return Version.of(
            record,
            agent=record.agent_name,
            is_pending=await is_pending(self.store, record),
            prompt=await turns.prompt(record) if record.kind in ('turn', 'pause', 'step') else None,
            calls=await _last_calls(record, turns) if record.kind == 'step' else [],
            usage=version.usage,
            files_changed=await self._files_changed(version, parent),
            protected_changes=version.protected_changes,
            omitted_files=version.omitted_files,
            is_head=record.id == head_id,
            created_at=utc_datetime(record.created_at),
        )

    async def _files_changed(self, version: AgentVersion[Any, Any], parent: VersionRecord | None) -> list[str] | None:
        if version.tree is None or (parent is None and version.parent_id is not None):
            return None
        if parent is None or parent.tree == version.tree:
            return []
        before = await self.agent.session.trees.load(parent.tree)
        diff = before.diff(await version.file_tree())
        return sorted([*diff.added, *diff.removed, *diff.changed])

    async def _requests(self, lineage: TurnLineage, parts: Sequence[AgentVersion[Any, Any]]) -> list[StoredRequest]:
        """Return the model requests of a turn up to its last version."""
        end = lineage.versions[-1]
        requests = {(request.run_id, request.number): request for part in parts for request in await part.requests()}
        return [
            StoredRequest.of(
                request,
                number=number,
                settings=redact(json.loads(request.model_settings)),
                seconds=round(request.duration_us / 1e6, 3),
            )
            for number, request in enumerate(requests.values(), start=1)
            if request.started_at <= end.created_at
        ]

    async def _error(self, record: VersionRecord) -> str | None:
        """Return why a run failed, or `None` if a person stopped it."""
        run = None if record.run_id is None else await self.store.run(record.run_id)
        if run is None or run.state != 'failed' or run.error is None:
            return None
        error: Mapping[str, str] = json.loads(run.error)
        return f'{error["type"]}: {error["message"]}' if self._shows_errors else error['type']


def stored_output_text(record: VersionRecord) -> str | None:
    """Return the output of a version as text: strings unchanged, anything else as JSON. `None` without an output."""
    if record.output is None:
        return None
    value: object = json.loads(record.output)
    return value if isinstance(value, str) else record.output


def _approval(record: ApprovalRecord, version: AgentVersion[Any, Any] | None) -> StoredApproval:
    item = InboxItem.from_record(record)
    decision = item.decision
    pending = [] if version is None else version.pending
    args = json.loads(record.arguments)
    return StoredApproval.of(
        item,
        agent=item.agent_name,
        args=args,
        repeat=repeat_of(item.tool, args, item.view),
        decisions=[kind for approval in pending if approval.id == item.pending_id for kind in approval.decisions],
        reason=item.reason or (decision.given_reason if isinstance(decision, Deny) else None),
        edited_args=decision.args if isinstance(decision, Edit) else None,
        response=decision.content if isinstance(decision, Respond) else None,
    )


def _tool_calls(messages: Sequence[ModelMessage]) -> list[ToolCall]:
    parts = [part for message in messages for part in message.parts]
    results = {part.tool_call_id: part for part in parts if isinstance(part, ToolReturnPart)}
    return [_tool_call(part, results.get(part.tool_call_id)) for part in parts if isinstance(part, ToolCallPart)]


def _tool_call(part: ToolCallPart, result: ToolReturnPart | None) -> ToolCall:
    return ToolCall(
        id=part.tool_call_id,
        name=part.tool_name,
        args=part.args if isinstance(part.args, str) else json.dumps(part.args or {}, ensure_ascii=False),
        outcome=None if result is None else result.outcome,
        content=None if result is None else result.model_response_str(wrap_if_error=False),
        exit_code=None if result is None else exit_code_of(result),
    )


async def _last_calls(record: VersionRecord, turns: TurnLineages) -> list[str]:
    messages = await turns.message_bodies(record, record.message_count - 1, record.message_count)
    parts = [part for message in messages for part in cast('list[dict[str, Any]]', message.get('parts', []))]
    return [str(part['tool_name']) for part in parts if part.get('part_kind') == 'tool-call']


def _partial_answer(record: VersionRecord, messages: Sequence[ModelMessage]) -> str | None:
    """Return the partial answer of an interrupted or failed turn, or `None` if there is none."""
    last = messages[-1] if messages else None
    if record.state not in ('interrupted', 'failed') or not isinstance(last, ModelResponse) or last.tool_calls:
        return None
    return last.text


async def _context(head: AgentVersion[Any, Any]) -> ContextSize | None:
    """Return the size of the last request and its response. Only a request with tool results can follow the response."""
    messages = await head.messages(start=max(0, head.record.message_count - 2))
    last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
    if last is None or not last.usage.input_tokens:
        return None
    return ContextSize(tokens=last.usage.input_tokens + last.usage.output_tokens, window=window_of(last))


def _dump_messages(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    return ModelMessagesTypeAdapter.dump_python(list(messages), mode='json')
