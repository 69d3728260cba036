"""Makes the bodies of answers from runs, versions and approvals."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, UserPromptPart
from pydantic_ai.usage import RunUsage

from pydantic_deep._escapes import escape
from pydantic_deep.server._state import OWNER, ServerState
from pydantic_deep.server.access._ownership import OwnConversation, OwnRun, ServedVersion
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.server.runs._stored_run_events import StoredRun, suspended_in, working_in
from pydantic_deep.store import ApprovalRecord, ApprovalStatus, Store, VersionNotFoundError
from pydantic_deep.streaming._parts import output_text
from pydantic_deep.versions import VersionDiff
from pydantic_deep.versions.pauses._inbox import inbox_item
from pydantic_deep.versions.recording._recorded_run import load_usage
from pydantic_deep_backends import Tree

from ._schemas import (
    ApprovalShape,
    ConversationShape,
    DiffShape,
    FileDiffShape,
    OmittedFileShape,
    ProtectedChangeShape,
    RunShape,
    UsageShape,
    VersionShape,
)


def usage_shape(usage: RunUsage) -> UsageShape:
    """Return usage."""
    return UsageShape(**{name: getattr(usage, name) for name in UsageShape.model_fields})


def approval_shape(record: ApprovalRecord, version: ServedVersion) -> ApprovalShape:
    """Return an approval of a version."""
    pending = next((each for each in version.pending if each.id == record.pending_id), None)
    item = inbox_item(record)
    return ApprovalShape(
        id=record.id,
        pending_id=record.pending_id,
        version_id=record.version_id,
        conversation_id=record.conversation_id,
        agent=record.agent_name,
        path=list(item.path),
        tool=record.tool_name,
        args=json.loads(record.arguments),
        view=item.view,
        decisions=[] if pending is None else list(pending.decisions),
        status=record.status,
        decided_by=record.decided_by,
        reason=record.reason,
        decided_at=None if record.decided_at is None else moment(record.decided_at),
        expires_at=None if record.expires_at is None else moment(record.expires_at),
        created_at=moment(record.created_at),
    )


async def approvals_of(
    store: Store, version: ServedVersion | None, status: ApprovalStatus | None = None
) -> list[ApprovalShape]:
    """Return what a version waits for, or has waited for: what became of it does not matter if no status is given."""
    if version is None or version.state != 'awaiting_approval':
        return []
    found = await store.approvals(status=status, version_id=version.id, limit=10_000)
    return [approval_shape(each, version) for each in found]


async def conversation_shape(state: ServerState, own: OwnConversation, head: ServedVersion | None) -> ConversationShape:
    """Return a conversation, as it is at its head."""
    metadata: dict[str, JsonValue] = json.loads((own.newest if head is None else head.record).metadata)
    return ConversationShape(
        id=own.id,
        agent=own.record.agent_name,
        name=own.newest.name if head is None else head.name,
        metadata={key: value for key, value in metadata.items() if key != OWNER},
        head=own.record.head_id,
        state=None if head is None else head.state,
        branch=None if head is None else head.branch,
        running=await running_in(state, own.id),
        suspended=[run.id for run in await suspended_in(state, own.id)],
        todos=[] if head is None else head.todos,
        approvals=await approvals_of(state.store, head),
        usage=UsageShape() if head is None else usage_shape(head.usage),
        created_at=moment(own.record.created_at),
    )


async def running_in(state: ServerState, conversation_id: str) -> list[str]:
    """Return the ids of the runs that work in a conversation now, here or in another process, oldest first."""
    here = {run.id for run in state.hub.runs_in(conversation_id)}
    return sorted(here | {run.id for run in await working_in(state, conversation_id)})


async def run_shape(state: ServerState, own: OwnRun) -> RunShape:
    """Return a run."""
    newest = None if own.stored is None or own.stored.version is None else own.stored.version.id
    version = None if newest is None else await own.agent.load(newest)
    if own.here is not None:
        has_moved_on = own.stored is not None and own.stored.has_moved_on
        return await _shape_here(state, own.here, version, has_moved_on=has_moved_on)
    return await _shape_stored(state, cast('StoredRun', own.stored), version)


async def _shape_here(
    state: ServerState, run: ServerRun, version: ServedVersion | None, *, has_moved_on: bool
) -> RunShape:
    return RunShape(
        id=run.id,
        conversation_id=run.conversation_id,
        agent=run.agent_name,
        state=run.state,
        has_moved_on=has_moved_on,
        base_id=run.base_id,
        version_id=run.version_id if run.outcome else None if version is None else version.id,
        output=run.output,
        error=run.error,
        approvals=await approvals_of(state.store, version),
        usage=usage_shape(run.usage),
        session_id=run.session_id,
        is_here=True,
        attempts=1,
        started_at=run.started_at,
        ended_at=run.ended_at,
    )


async def _shape_stored(state: ServerState, run: StoredRun, version: ServedVersion | None) -> RunShape:
    return RunShape(
        id=run.id,
        conversation_id=run.last.conversation_id,
        agent=run.last.agent_name,
        state=run.state,
        has_moved_on=run.has_moved_on,
        base_id=run.base_id,
        version_id=None if version is None else version.id,
        output=output_text(version.output if version is not None and run.is_over else None),
        error=run.error,
        approvals=await approvals_of(state.store, version),
        usage=usage_shape(load_usage(run.last.usage)),
        session_id=None,
        is_here=False,
        attempts=len(run.attempts),
        started_at=moment(run.attempts[0].started_at),
        ended_at=None if run.last.ended_at is None else moment(run.last.ended_at),
    )


async def version_shape(state: ServerState, version: ServedVersion, *, head_id: str | None) -> VersionShape:
    """Return a version, with what its turn began with and which files it changed."""
    parent = await _parent_of(state, version)
    return VersionShape(
        id=version.id,
        parent_id=version.parent_id,
        merged_from=version.merged_from,
        conversation_id=version.conversation_id,
        agent=version.agent_name,
        kind=version.kind,
        state=version.state,
        branch=version.branch,
        name=version.name,
        prompt=await _prompt_of(version, parent),
        run_id=version.run_id,
        message_count=version.message_count,
        model=version.model,
        usage=usage_shape(version.usage),
        files_changed=await _changed(version, parent),
        protected_changes=[
            ProtectedChangeShape(path=each.path, change=each.change) for each in version.protected_changes
        ],
        omitted_files=[OmittedFileShape(**asdict(each)) for each in version.omitted_files],
        is_head=version.id == head_id,
        created_at=version.created_at,
    )


async def _parent_of(state: ServerState, version: ServedVersion) -> ServedVersion | None:
    if version.parent_id is None:
        return None
    try:
        return await state.agents[version.agent_name].load(version.parent_id)
    except VersionNotFoundError:
        return None


async def _prompt_of(version: ServedVersion, parent: ServedVersion | None) -> str | None:
    """Return what the user said since the parent."""
    if version.run_id is None or version.kind == 'step' or version.message_count == 0:
        return None
    known = 0 if parent is None else parent.message_count
    is_longer = known < version.message_count  # a summary may have made it shorter
    messages = await version.messages(start=known, stop=known + 1) if is_longer else await version.messages()
    said = [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    return None if not said else said[-1] if isinstance(said[-1], str) else _text_of(said[-1])


def _text_of(content: object) -> str:
    return ' '.join(each for each in cast('list[object]', content) if isinstance(each, str))


async def _changed(version: ServedVersion, parent: ServedVersion | None) -> list[str]:
    if version.tree == (None if parent is None else parent.tree):
        return []
    before = Tree() if parent is None else await parent.file_tree()
    changes = before.diff(await version.file_tree())
    return sorted([*changes.added, *changes.removed, *changes.changed])


def diff_shape(before: ServedVersion, after: ServedVersion, diff: VersionDiff) -> DiffShape:
    """Return what is different."""
    return DiffShape(
        before=before.id,
        after=after.id,
        messages_common=diff.messages_common,
        messages_removed=dump_messages(list(diff.messages_removed)),
        messages_added=dump_messages(list(diff.messages_added)),
        files=[
            FileDiffShape(
                path=file.path,
                shown_path=escape(file.path, one_line=True),
                kind=file.kind,
                diff=file.diff,
                view=file.view,
                size_before=file.size_before,
                size_after=file.size_after,
            )
            for file in diff.files
        ],
        todos_before=list(diff.todos_before),
        todos_after=list(diff.todos_after),
        usage=usage_shape(diff.usage),
    )


def dump_messages(messages: list[ModelMessage]) -> list[JsonValue]:
    """Return messages as JSON."""
    return cast('list[JsonValue]', ModelMessagesTypeAdapter.dump_python(messages, mode='json'))


async def head_of(store: Store, conversation_id: str) -> str | None:
    """Return where the head of a conversation is now."""
    record = await store.conversation(conversation_id)
    return None if record is None else record.head_id


def moment(microseconds: int) -> datetime:
    """Return a moment from the microseconds since 1970."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC)
