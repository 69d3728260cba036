"""The pending approvals of all agents of a store: listed, and answered once each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from pydantic_ai import DeferredToolRequests

from pydantic_deep._checks import check_name, check_names, check_store
from pydantic_deep._messages.deferred_metadata import Preview
from pydantic_deep._spans import VERSION_ID, open_span
from pydantic_deep.approvals import ApprovalView, Decision, check_decisions, view_approval
from pydantic_deep.store import ApprovalRecord, ApprovalStatus, Store, utc_datetime
from pydantic_deep.versions._frozen_json import FrozenJson, freeze

from ._answers import decode_decision, encode_decision
from ._pause import decode_pause


@dataclass(frozen=True, kw_only=True)
class InboxItem:
    """An approval of a tool call, pending or answered."""

    id: str
    """The id of the approval, a UUIDv7 that is unique in the store."""
    version_id: str
    """The version with the pending approval. `VersionedAgent.load` it, and `resume` it when all of its approvals are
    answered.
    """
    pending_id: str
    """The `id` of the `PendingApproval` in that version."""
    conversation_id: str
    """The conversation of the version."""
    agent_name: str
    """The name of the agent that requests the approval."""
    path: tuple[str, ...]
    """The names of the subagents that lead to the call."""
    tool: str
    """The name of the tool to call."""
    arguments: Mapping[str, FrozenJson]
    """The arguments of the call, immutable at every level."""
    preview: Preview | None
    """The effect of the call, if a capability can preview it."""
    view: ApprovalView
    """The call as it must be shown to a person, fully escaped."""
    status: ApprovalStatus
    """Whether the approval is pending, and how it was answered if not."""
    decision: Decision | None
    """The answer; `None` if it is pending. An expired approval counts as denied."""
    decided_by: str | None
    """The person who answered."""
    reason: str | None
    """The reason for the answer."""
    decided_at: datetime | None
    """The time of the answer."""
    expires_at: datetime | None
    """The time from which it counts as denied; `None` for never."""
    created_at: datetime
    """The time when the approval was requested."""

    @classmethod
    def from_record(cls, record: ApprovalRecord) -> InboxItem:
        """Return the item for a record of the store."""
        path = tuple(json.loads(record.path))
        arguments: dict[str, Any] = json.loads(record.arguments)
        preview = None if record.preview is None else Preview.model_validate_json(record.preview)
        view = view_approval(
            id=record.pending_id, path=path, tool=record.tool_name, arguments=arguments, preview=preview
        )
        return cls(
            id=record.id,
            version_id=record.version_id,
            pending_id=record.pending_id,
            conversation_id=record.conversation_id,
            agent_name=record.agent_name,
            path=path,
            tool=record.tool_name,
            arguments=cast('Mapping[str, FrozenJson]', freeze(arguments)),
            preview=preview,
            view=view,
            status=record.status,
            decision=decode_decision(record),
            decided_by=record.decided_by,
            reason=record.reason,
            decided_at=None if record.decided_at is None else utc_datetime(record.decided_at),
            expires_at=None if record.expires_at is None else utc_datetime(record.expires_at),
            created_at=utc_datetime(record.created_at),
        )

    @property
    def digest(self) -> str:
        """Identifies the shown call: `Approve(digest=item.digest)` approves only this call with these arguments."""
        return self.view.digest


class ApprovalInbox:
    """The approvals of a store, for all agents and processes.

    An answer starts no run: to resume the version, call `resume` in any process.

    Args:
        store: The store with the approvals.
    """

    def __init__(self, store: Store) -> None:
        check_store(store)
        self._store = store

    async def list(
        self, *, status: ApprovalStatus | None = 'pending', agent_name: str | None = None, limit: int = 100
    ) -> list[InboxItem]:
        """Return approvals, oldest first.

        Args:
            status: The status to list; `None` for all.
            agent_name: Only those of one agent.
            limit: The maximum number of approvals.
        """
        check_names(agent_name=agent_name)
        records = await self._store.approvals(status=status, agent_name=agent_name, limit=limit)
        return [InboxItem.from_record(record) for record in records]

    async def get(self, id: str) -> InboxItem:
        """Return an approval by its id, or by an unambiguous prefix of at least 8 characters.

        Raises:
            ApprovalNotFoundError: There is no such approval.
        """
        check_name('id', id)
        return InboxItem.from_record(await self._store.approval(id))

    async def answer(
        self, id: str, decision: Decision, *, by: str | None = None, reason: str | None = None
    ) -> InboxItem:
        """Answer an approval, and return it.

        Args:
            id: The id, or an unambiguous prefix of it.
            decision: `Approve()`, `Edit(args)`, `Deny(reason)` or `Respond(content)`.
            by: The person who answers.
            reason: The reason for the answer.

        Raises:
            ApprovalNotFoundError: There is no such approval.
            ApprovalAnsweredError: It is already answered, or has expired; the error has the person and the time.
            InvalidDecisionError: The call does not accept this decision.
            ApprovalChangedError: The decision has the digest of another call.
        """
        check_name('id', id)
        check_names(by=by)
        record = await self._store.approval(id)
        check_decisions(await self._requests(record), {record.pending_id: decision})
        with open_span('answer approvals', {VERSION_ID: record.version_id, 'pydantic_deep.approvals': 1}):
            decided = await self._store.decide([encode_decision(record, decision, by=by, reason=reason)])
        return InboxItem.from_record(decided[0])

    async def _requests(self, record: ApprovalRecord) -> DeferredToolRequests:
        version = await self._store.version(record.version_id)
        return decode_pause(await self._store.read_asset(version.pending or ''))
