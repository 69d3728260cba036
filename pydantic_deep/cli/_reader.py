"""What the store says of versions, as values to be printed. No model is needed for any of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from pydantic import JsonValue
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.usage import RunUsage

from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.store import Store, VersionFilter, VersionKind, VersionNotFoundError, VersionRecord
from pydantic_deep.versions import SubagentThread, VersionDiff, VersionedAgent
from pydantic_deep.versions._rewritten import earlier_records
from pydantic_deep_backends import Tree

from ._approvals import GATED_TOOLS, approval_of
from ._events import Usage
from ._names import DIRECTORY, Names
from ._prompts import text_of_json
from ._shapes import CallRow, Difference, FileRow, RequestRow, SubagentRow, VersionDetails, VersionRow

VISIBLE: tuple[VersionKind, ...] = ('root', 'turn', 'pause', 'edit', 'merge')
"""Everything but steps."""


def open_reader(store: Store) -> VersionedAgent[DeepAgentDeps, Any]:
    """Return an agent that only reads versions, and makes some without running."""
    agent = Agent(None, name='reader', deps_type=DeepAgentDeps, output_type=[str, DeferredToolRequests])
    return VersionedAgent(agent, store)


@dataclass(kw_only=True)
class Reader:
    """Reads the versions of a store."""

    names: Names
    versions: VersionedAgent[DeepAgentDeps, Any]
    _records: dict[str, VersionRecord | None] = field(default_factory=dict[str, 'VersionRecord | None'])
    _trees: dict[str, Tree] = field(default_factory=dict[str, Tree])

    @property
    def store(self) -> Store:
        """The store."""
        return self.names.store

    async def page(
        self, *, conversation_id: str | None, everything: bool, steps: bool, limit: int
    ) -> list[VersionRecord]:
        """Return the newest versions.

        Args:
            conversation_id: Those of one conversation.
            everything: Those of all directories; else those of this one.
            steps: Also those in the middle of turns.
            limit: At most how many.
        """
        kinds = None if steps else VISIBLE
        if conversation_id is not None:
            return await self.store.versions(VersionFilter(conversation_id=conversation_id, kinds=kinds), limit=limit)
        if everything:
            return await self.store.versions(VersionFilter(kinds=kinds), limit=limit)
        here = VersionFilter(metadata={DIRECTORY: self.names.directory}, kinds=kinds)
        found = await self.store.versions(here, limit=limit)
        head = None if found else await self.names.find_head()
        if head is None:
            return found
        return await self.store.versions(VersionFilter(conversation_id=head.conversation_id, kinds=kinds), limit=limit)

    async def rows(self, records: Sequence[VersionRecord]) -> list[VersionRow]:
        """Return versions as they are printed."""
        self._records |= {record.id: record for record in records}
        head = await self.names.find_head()
        return [await self._row(record, None if head is None else head.id) for record in records]

    async def row(self, record: VersionRecord) -> VersionRow:
        """Return a version as it is printed."""
        return (await self.rows([record]))[0]

    async def details(self, record: VersionRecord) -> VersionDetails:
        """Return what happened in the turn of a version."""
        version = await self.versions.load(record.id)
        parent = await self._begin(record)
        begin = 0 if parent is None else min(parent.message_count, record.message_count)
        run = None if record.run_id is None else await self.store.run(record.run_id)
        error: dict[str, str] = {} if run is None or run.error is None else json.loads(run.error)
        before = version if parent is None else await self.versions.load(parent.id)
        return VersionDetails(
            version=await self.row(record),
            metadata=json.loads(record.metadata),
            steps=[step.id for step in await version.steps()],
            calls=calls_of(await version.messages(start=begin)),
            output=_text_of(record.output),
            error=f'{error["type"]}: {error["message"]}' if error else None,
            usage=usage_of(version.usage),
            requests=[] if record.run_id is None else await self._requests(record.run_id),
            files=[] if parent is None else files_of(await before.diff(version)),
            todos=version.todos,
            subagents=[_subagent(thread) for thread in await version.subagents()],
            pending=[approval_of(call) for call in version.pending],
        )

    async def difference(self, before: VersionRecord, after: VersionRecord) -> Difference:
        """Return what is different between two versions."""
        one, other = await self.versions.load(before.id), await self.versions.load(after.id)
        diff = await one.diff(other)
        return Difference(
            before=before.id,
            after=after.id,
            messages_common=diff.messages_common,
            messages_removed=_dump_messages(diff.messages_removed),
            messages_added=_dump_messages(diff.messages_added),
            files=files_of(diff),
            todos_before=list(diff.todos_before),
            todos_after=list(diff.todos_after),
            usage=usage_of(diff.usage),
        )

    async def was_allowed(self, record: VersionRecord) -> bool:
        """Return whether the run of a version could do without asking what asks otherwise: it has done so."""
        if record.run_id is None:
            return False
        run = await self.store.run(record.run_id)
        base_id = None if run is None else run.base_id
        known = [] if base_id is None else await self.store.approvals(status=None, version_id=base_id, limit=10_000)
        asked = {each.pending_id for each in known}
        return any(
            call.tool_name in GATED_TOOLS and call.status != 'deferred' and call.tool_call_id not in asked
            for call in await self.store.calls([record.run_id])
        )

    async def _row(self, record: VersionRecord, head_id: str | None) -> VersionRow:
        parent = await self._parent(record)
        has_turn = record.kind in ('turn', 'pause')
        return VersionRow(
            id=record.id,
            parent_id=record.parent_id,
            merged_from=record.merged_from,
            kind=record.kind,
            state=record.state,
            is_waiting=record.state == 'awaiting_approval' and await is_waiting(self.store, record),
            conversation_id=record.conversation_id,
            branch=record.branch,
            run_id=record.run_id,
            agent_name=record.agent_name,
            name=record.name,
            model=record.model,
            created_at=moment(record.created_at),
            message_count=record.message_count,
            prompt=await self._prompt(record, parent) if has_turn else None,
            calls=await self._last_calls(record) if record.kind == 'step' else [],
            files_changed=await self._files_changed(record, parent),
            is_head=record.id == head_id,
        )

    async def _parent(self, record: VersionRecord) -> VersionRecord | None:
        """Return the parent, unless there is none or it was deleted."""
        id = record.parent_id
        if id is None:
            return None
        if id not in self._records:
            try:
                self._records[id] = await self.store.version(id)
            except VersionNotFoundError:
                self._records[id] = None
        return self._records[id]

    async def _begin(self, record: VersionRecord) -> VersionRecord | None:
        """Return the version from which the turn began: of one that was resumed, that before the pause."""
        parent = await self._parent(record)
        while parent is not None and parent.state == 'awaiting_approval':
            parent = await self._parent(parent)
        return parent

    async def _prompt(self, record: VersionRecord, parent: VersionRecord | None) -> str | None:
        """Return what began the turn: it stands where the messages of the parent end, give or take a repaired one.

        Where a summary was made in the turn, it stands after that, or among what it replaced.
        """
        begin = 0 if parent is None else max(0, parent.message_count - 2)
        found = _prompt_in(await self._bodies(record, begin, min(begin + 6, record.message_count)), record.run_id)
        if found is None and parent is not None and record.branch_id != parent.branch_id:
            found = _prompt_in(await self._bodies(record, 0, record.message_count), record.run_id)
        if found is None and parent is not None and record.branch_id != parent.branch_id:
            earlier = await earlier_records(self.store, record)
            found = _prompt_in([json.loads(each.body) for each in earlier], record.run_id)
        return found

    async def _last_calls(self, record: VersionRecord) -> list[str]:
        found = await self._bodies(record, record.message_count - 1, record.message_count)
        parts = [part for message in found for part in cast('list[dict[str, Any]]', message.get('parts', []))]
        return [str(part['tool_name']) for part in parts if part.get('part_kind') == 'tool-call']

    async def _bodies(self, record: VersionRecord, start: int, stop: int) -> list[dict[str, Any]]:
        found = await self.store.messages(record.branch_id, stop, start=start)
        return [json.loads(each.body) for each in found]

    async def _files_changed(self, record: VersionRecord, parent: VersionRecord | None) -> int | None:
        if record.tree is None:
            return None
        if parent is None or parent.tree is None or parent.tree == record.tree:
            return 0
        diff = (await self._tree(parent.tree)).diff(await self._tree(record.tree))
        return len(diff.added) + len(diff.removed) + len(diff.changed)

    async def _tree(self, digest: str) -> Tree:
        if digest not in self._trees:
            self._trees[digest] = Tree.from_nodes(digest, await self.store.nodes(digest))
        return self._trees[digest]

    async def _requests(self, run_id: str) -> list[RequestRow]:
        return [
            RequestRow(
                number=request.number,
                model=request.model,
                settings=json.loads(request.model_settings),
                input_tokens=request.input_tokens,
                output_tokens=request.output_tokens,
                cost=request.cost,
                seconds=round(request.duration_us / 1e6, 3),
            )
            for request in await self.store.requests(run_id)
        ]


async def is_waiting(store: Store, record: VersionRecord) -> bool:
    """Return whether nothing has gone on with the answers to what a version waits for."""
    approvals = await store.approvals(status=None, version_id=record.id, limit=10_000)
    return any(each.resumed_by is None and each.status != 'superseded' for each in approvals)


def parents_of(rows: Sequence[VersionRow]) -> list[list[str]]:
    """Return the parents of versions as far as they are among these; a turn comes after its last step here.

    Args:
        rows: Newest first.
    """
    shown = {row.id for row in rows}
    last_steps = {row.run_id: row.id for row in reversed(rows) if row.kind == 'step'}
    found: list[list[str]] = []
    for row in rows:
        first = last_steps.get(row.run_id, row.parent_id) if row.kind in ('turn', 'pause') else row.parent_id
        found.append([id for id in (first, row.merged_from) if id is not None and id in shown])
    return found


def calls_of(messages: Sequence[ModelMessage]) -> list[CallRow]:
    """Return the tool calls of messages, in their order."""
    parts = [part for message in messages for part in message.parts]
    results = {part.tool_call_id: part for part in parts if isinstance(part, ToolReturnPart)}
    return [_call(part, results.get(part.tool_call_id)) for part in parts if isinstance(part, ToolCallPart)]


def files_of(diff: VersionDiff) -> list[FileRow]:
    """Return the files of a diff."""
    return [
        FileRow(
            path=file.path,
            kind=file.kind,
            size_before=file.size_before,
            size_after=file.size_after,
            diff=file.diff,
        )
        for file in diff.files
    ]


def usage_of(usage: RunUsage) -> Usage:
    """Return what was used, as events have it."""
    return Usage(
        requests=usage.requests,
        tool_calls=usage.tool_calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
    )


def moment(microseconds: int) -> str:
    """Return a moment as ISO 8601."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec='milliseconds')


def _call(part: ToolCallPart, result: ToolReturnPart | None) -> CallRow:
    return CallRow(
        id=part.tool_call_id,
        tool=part.tool_name,
        args=part.args_as_dict(),
        outcome=None if result is None else result.outcome,
        result=None if result is None else result.model_response_str(wrap_if_error=False),
    )


def _subagent(thread: SubagentThread) -> SubagentRow:
    return SubagentRow(
        conversation_id=thread.conversation_id,
        subagent=thread.subagent,
        intent=thread.intent,
        state=thread.state,
        version_id=thread.version_id,
        subagents=[_subagent(each) for each in thread.subagents],
    )


def _dump_messages(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    return ModelMessagesTypeAdapter.dump_python(list(messages), mode='json')


def _text_of(output: str | None) -> str | None:
    """Return an answer: text as it is, all else as JSON."""
    value: object = None if output is None else json.loads(output)
    return value if isinstance(value, str) else output


def _prompt_in(messages: Sequence[Mapping[str, Any]], run_id: str | None) -> str | None:
    """Return the first prompt of a run in messages as they are stored; `None` if it is not among them."""
    for message in messages:
        if message.get('kind') == 'request' and message.get('run_id') == run_id:
            for part in cast('list[dict[str, Any]]', message.get('parts', [])):
                if part.get('part_kind') == 'user-prompt':
                    return text_of_json(part.get('content'))
    return None
