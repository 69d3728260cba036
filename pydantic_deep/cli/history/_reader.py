"""Versions of a store as the documents that commands print. Nothing here needs a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import typer
from pydantic import JsonValue
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.usage import RunUsage

from pydantic_deep.cli._metadata import DIRECTORY
from pydantic_deep.cli._schemas import (
    CallRow,
    Difference,
    FileRow,
    OmittedRow,
    ProtectedRow,
    RequestRow,
    SubagentRow,
    Usage,
    VersionDetails,
    VersionRow,
)
from pydantic_deep.cli.approvals._policy import GATED_TOOLS
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.filesystem import exit_code_of
from pydantic_deep.store import Store, VersionFilter, VersionKind, VersionRecord
from pydantic_deep.streaming import approval_of
from pydantic_deep.versions import SubagentThread, VersionDiff, VersionedAgent
from pydantic_deep.versions._subagent_threads import runs_of
from pydantic_deep.versions._turn import ALL_RUNS
from pydantic_deep.versions.files._backend_descriptions import workspace_key
from pydantic_deep.versions.recovery._suspended_runs import last_version
from pydantic_deep_backends import Tree

from ._revisions import Revisions
from ._turn_lineages import TurnLineage, TurnLineages, is_pending

LISTED_KINDS: tuple[VersionKind, ...] = ('root', 'turn', 'pause', 'edit', 'merge')
"""Everything but steps."""


def create_reading_agent(store: Store) -> VersionedAgent[DeepAgentDeps, Any]:
    """Return an agent without a model, to load versions and to create them without a run."""
    agent = Agent(None, name='reader', deps_type=DeepAgentDeps, output_type=[str, DeferredToolRequests])
    return VersionedAgent(agent, store)


@dataclass(kw_only=True)
class VersionReader:
    """Loads versions of a store as documents."""

    revisions: Revisions
    versions: VersionedAgent[DeepAgentDeps, Any]
    _turns: TurnLineages = field(init=False)
    _trees: dict[str, Tree] = field(default_factory=dict[str, Tree])

    def __post_init__(self) -> None:
        self._turns = TurnLineages(store=self.store)

    @property
    def store(self) -> Store:
        """The store."""
        return self.revisions.store

    async def page(
        self, *, conversation_id: str | None, everything: bool, steps: bool, limit: int
    ) -> list[VersionRecord]:
        """Return the newest versions.

        Args:
            conversation_id: Those of one conversation.
            everything: Those of all directories; else those of this one.
            steps: Also those in the middle of turns. Without, only those where a turn was left are among them: that of
                `HEAD`, and those that others came from.
            limit: At most how many.
        """
        kinds = None if steps else LISTED_KINDS
        if conversation_id is not None:
            wanted = VersionFilter(conversation_id=conversation_id)
        else:
            wanted = VersionFilter() if everything else VersionFilter(metadata={DIRECTORY: self.revisions.directory})
        found = await self.store.versions(replace(wanted, kinds=kinds), limit=limit)
        head = await self.revisions.find_head()
        if not found and head is not None and conversation_id is None:
            wanted = VersionFilter(conversation_id=head.conversation_id)
            found = await self.store.versions(replace(wanted, kinds=kinds), limit=limit)
        return found if steps else await self._with_abandoned_steps(found, head, limit)

    async def turn_bases(self, records: Sequence[VersionRecord]) -> dict[str, str]:
        """Return the version that the turn of each step began from, for steps whose parent is not among the records."""
        shown = {record.id for record in records}
        alone = [record for record in records if record.kind == 'step' and record.parent_id not in shown]
        turn_bases = {record.id: (await self._turns.lineage(record)).base for record in alone}
        return {id: begin.id for id, begin in turn_bases.items() if begin is not None}

    async def rows(self, records: Sequence[VersionRecord]) -> list[VersionRow]:
        """Return versions as they are printed."""
        self._turns.cache(records)
        head = await self.revisions.find_head()
        return [await self._row(record, None if head is None else head.id) for record in records]

    async def row(self, record: VersionRecord) -> VersionRow:
        """Return a version as it is printed."""
        return (await self.rows([record]))[0]

    async def details(self, record: VersionRecord) -> VersionDetails:
        """Return what happened in the turn of a version, up to it."""
        version, lineage = await self.versions.load(record.id), await self._turns.lineage(record)
        before = version if lineage.base is None else await self.versions.load(lineage.base.id)
        messages = await version.messages(start=await self._turns.first_message_index(lineage))
        row = await self.row(record)
        parts = [await self.versions.load(id) for id in {each.run_id: each.id for each in lineage.versions}.values()]
        steps = {step.id: None for part in parts for step in await part.steps()}
        subagents = {each.conversation_id: _subagent_row(each) for part in parts for each in await part.subagents()}
        return VersionDetails(
            version=row,
            metadata=json.loads(record.metadata),
            steps=list(steps),
            calls=call_rows(messages),
            output=_partial_answer(record, messages) if record.output is None else _output_text(record.output),
            error=await self._error(record),
            usage=usage_from_run(version.usage),
            requests=await self._requests(lineage),
            files=[] if lineage.base is None else file_rows(await before.diff(version)),
            protected=[ProtectedRow(path=each.path, change=each.change) for each in version.protected_changes],
            omitted_files=[OmittedRow(**asdict(each)) for each in version.omitted_files],
            todos=version.todos,
            subagents=list(subagents.values()),
            pending=[approval_of(call) for call in version.pending] if row.is_waiting else [],
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
            files=file_rows(diff),
            todos_before=list(diff.todos_before),
            todos_after=list(diff.todos_after),
            usage=usage_from_run(diff.usage),
        )

    async def ran_without_approvals(self, record: VersionRecord) -> bool:
        """Return whether the run of a version called a gated tool without an approval."""
        run_ids = await runs_of(self.store, record)
        runs = [run for run_id in run_ids if (run := await self.store.run(run_id)) is not None]
        asked = {
            each.pending_id
            for base_id in {run.base_id for run in runs if run.base_id is not None}
            for each in await self.store.approvals(status=None, version_id=base_id, limit=10_000)
        }
        return any(
            call.tool_name in GATED_TOOLS and call.status != 'deferred' and call.tool_call_id not in asked
            for call in await self.store.calls(run_ids)
        )

    async def print_suspended_runs(self, *, agent_name: str | None = None, everything: bool = True) -> None:
        """Print suspended runs on standard error: those without an end that no process works on.

        Args:
            agent_name: Only those of this agent.
            everything: Those of all directories, or only of this one.
        """
        for run in await self.store.orphans(ALL_RUNS):
            if run.parent_run_id is not None or agent_name not in (None, run.agent_name):
                continue
            version = await last_version(self.store, run)
            place = None if version is None or version.backend is None else workspace_key(version.backend)
            if everything or place == self.revisions.workspace:
                at = 'a version that was deleted' if version is None else f'version {short_id(version.id)}'
                text = (
                    f'Suspended: the run of {run.agent_name} of {iso_timestamp(run.started_at)} has no end. It is at {at}, and '
                    'nothing works on it. Continue after its last step with: pydantic-deep run --continue'
                )
                typer.echo(escape_invisible(text), err=True)

    async def contains(self, record: VersionRecord, other: VersionRecord) -> bool:
        """Return whether a version is another or descends from it, through merges too."""
        seen: dict[str, VersionRecord] = {}
        waiting = [record.id]
        while waiting:
            for each in (await self.store.lineage(waiting.pop())).versions:
                if each.id not in seen and each.merged_from is not None:
                    waiting.append(each.merged_from)
                seen[each.id] = each
        ends = {each.run_id: each.number for each in seen.values()}
        is_step_of_them = other.kind == 'step' and other.number < ends.get(other.run_id, 0)
        return other.id in seen or is_step_of_them

    async def _with_abandoned_steps(
        self, found: Sequence[VersionRecord], head: VersionRecord | None, limit: int
    ) -> list[VersionRecord]:
        """Return versions and the last steps of abandoned turns among them, newest first."""
        self._turns.cache(found)
        conversations = {each.conversation_id for each in found}
        others = [head, *[await self._turns.parent(each) for each in found]]
        left = [
            each
            for each in others
            if each is not None and each.kind == 'step' and each.conversation_id in conversations
        ]
        shown = {each.id: each for each in [*found, *left]}
        return sorted(shown.values(), key=lambda each: each.number, reverse=True)[:limit]

    async def _row(self, record: VersionRecord, head_id: str | None) -> VersionRow:
        parent = await self._turns.parent(record)
        has_turn = record.kind in ('turn', 'pause', 'step')
        return VersionRow(
            id=record.id,
            parent_id=record.parent_id,
            merged_from=record.merged_from,
            kind=record.kind,
            state=record.state,
            is_waiting=await is_pending(self.store, record),
            conversation_id=record.conversation_id,
            branch=record.branch,
            run_id=record.run_id,
            agent_name=record.agent_name,
            name=record.name,
            model=record.model,
            created_at=iso_timestamp(record.created_at),
            message_count=record.message_count,
            prompt=await self._turns.prompt(record) if has_turn else None,
            calls=await self._last_calls(record) if record.kind == 'step' else [],
            files_changed=await self._files_changed(record, parent),
            is_head=record.id == head_id,
        )

    async def _last_calls(self, record: VersionRecord) -> list[str]:
        found = await self._turns.message_bodies(record, record.message_count - 1, record.message_count)
        parts = [part for message in found for part in cast('list[dict[str, Any]]', message.get('parts', []))]
        return [str(part['tool_name']) for part in parts if part.get('part_kind') == 'tool-call']

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

    async def _requests(self, lineage: TurnLineage) -> list[RequestRow]:
        """Return the requests of a turn, as far as its last version."""
        end = lineage.versions[-1]
        run_ids = dict.fromkeys([run_id for each in lineage.versions for run_id in await runs_of(self.store, each)])
        found = [request for run_id in run_ids for request in await self.store.requests(run_id)]
        return [
            RequestRow(
                number=number,
                model=request.model,
                settings=json.loads(request.model_settings),
                input_tokens=request.input_tokens,
                output_tokens=request.output_tokens,
                cost=request.cost,
                seconds=round(request.duration_us / 1e6, 3),
                kind=request.kind,
            )
            for number, request in enumerate(found, start=1)
            if request.started_at <= end.created_at
        ]

    async def _error(self, record: VersionRecord) -> str | None:
        """Return why a run failed; one that a person stopped has not."""
        run = None if record.run_id is None else await self.store.run(record.run_id)
        if run is None or run.state != 'failed' or run.error is None:
            return None
        error: dict[str, str] = json.loads(run.error)
        return f'{error["type"]}: {error["message"]}'


def call_rows(messages: Sequence[ModelMessage]) -> list[CallRow]:
    """Return the tool calls of messages, in order."""
    parts = [part for message in messages for part in message.parts]
    results = {part.tool_call_id: part for part in parts if isinstance(part, ToolReturnPart)}
    return [_call_row(part, results.get(part.tool_call_id)) for part in parts if isinstance(part, ToolCallPart)]


def file_rows(diff: VersionDiff) -> list[FileRow]:
    """Return the files of a diff."""
    return [
        FileRow(
            path=file.path,
            kind=file.kind,
            size_before=file.size_before,
            size_after=file.size_after,
            diff=file.diff,
            view=file.view,
        )
        for file in diff.files
    ]


def usage_from_run(usage: RunUsage) -> Usage:
    """Return the usage of a run as events have it."""
    return Usage(
        requests=usage.requests,
        tool_calls=usage.tool_calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
    )


def iso_timestamp(microseconds: int) -> str:
    """Return microseconds since the epoch as an ISO 8601 timestamp."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec='milliseconds')


def _call_row(part: ToolCallPart, result: ToolReturnPart | None) -> CallRow:
    return CallRow(
        id=part.tool_call_id,
        tool=part.tool_name,
        args=part.args_as_dict(),
        outcome=None if result is None else result.outcome,
        result=None if result is None else result.model_response_str(wrap_if_error=False),
        exit_code=None if result is None else exit_code_of(result),
    )


def _subagent_row(thread: SubagentThread) -> SubagentRow:
    return SubagentRow(
        conversation_id=thread.conversation_id,
        subagent=thread.subagent,
        intent=thread.intent,
        state=thread.state,
        version_id=thread.version_id,
        subagents=[_subagent_row(each) for each in thread.subagents],
    )


def _dump_messages(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    return ModelMessagesTypeAdapter.dump_python(list(messages), mode='json')


def _output_text(output: str) -> str:
    """Return an output as text: a string unchanged, anything else as JSON."""
    value: object = json.loads(output)
    return value if isinstance(value, str) else output


def _partial_answer(record: VersionRecord, messages: Sequence[ModelMessage]) -> str | None:
    """Return the partial answer of a turn that was interrupted or failed; `None` if it has none."""
    last = messages[-1] if messages else None
    if record.state not in ('interrupted', 'failed') or not isinstance(last, ModelResponse) or last.tool_calls:
        return None
    return last.text
