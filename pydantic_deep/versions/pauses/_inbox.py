"""What waits for people, of all agents of a store: listed, and answered once each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from pydantic_ai import DeferredToolRequests

from pydantic_deep._checks import check_name, check_names
from pydantic_deep._messages.deferred_metadata import Preview
from pydantic_deep._spans import VERSION_ID, open_span
from pydantic_deep.approvals import ApprovalView, Decision, answer_approvals, view_approval
from pydantic_deep.store import ApprovalRecord, ApprovalStatus, Store
from pydantic_deep.versions._frozen_json import FrozenJson, freeze

from ._answers import decode_decision, encode_decision
from ._pause import decode_pause


@dataclass(frozen=True, kw_only=True)
class InboxItem:
    """A call that waits for a person, or has waited."""

    id: str
    """A UUIDv7, of this approval among all."""
    version_id: str
    """The version that waits: `VersionedAgent.load` it and `resume` it when all is answered."""
    pending_id: str
    """The `id` of the `PendingApproval` in that version."""
    conversation_id: str
    """The conversation of that version."""
    agent_name: str
    """The agent that asks."""
    path: tuple[str, ...]
    """The names of the subagents that lead to the call."""
    tool: str
    """The tool that it would call."""
    arguments: Mapping[str, FrozenJson]
    """With what. They cannot be changed at any level."""
    preview: Preview | None
    """What the call would do, if a room could tell."""
    view: ApprovalView
    """What a person is to be shown of the call, all of it escaped."""
    status: ApprovalStatus
    """What became of it."""
    decision: Decision | None
    """What was answered; an expired one counts as denied."""
    decided_by: str | None
    """Who answered."""
    reason: str | None
    """Why it was answered so."""
    decided_at: datetime | None
    """When it was answered."""
    expires_at: datetime | None
    """When it counts as denied; `None` for never."""
    created_at: datetime
    """When it was asked."""

    @classmethod
    def from_record(cls, record: ApprovalRecord) -> InboxItem:
        """Return the approval of a record of the store."""
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
            decided_at=_moment(record.decided_at),
            expires_at=_moment(record.expires_at),
            created_at=cast('datetime', _moment(record.created_at)),
        )

    @property
    def digest(self) -> str:
        """Names what is shown: `Approve(digest=item.digest)` is for this call with these arguments only."""
        return self.view.digest


class ApprovalInbox:
    """What waits in a store, whichever agent and process it comes from.

    Answering does not run anything: whoever runs the agent calls `resume` on the version, in any process.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(
        self, *, status: ApprovalStatus | None = 'pending', agent_name: str | None = None, limit: int = 100
    ) -> list[InboxItem]:
        """Return approvals, oldest first.

        Args:
            status: Which; `None` for all.
            agent_name: Those of one agent.
            limit: At most how many.
        """
        check_names(agent_name=agent_name)
        found = await self._store.approvals(status=status, agent_name=agent_name, limit=limit)
        return [InboxItem.from_record(record) for record in found]

    async def get(self, id: str) -> InboxItem:
        """Return an approval by its id, or an unambiguous beginning of it of at least 8 characters.

        Raises:
            ApprovalNotFoundError: There is none.
        """
        check_name('id', id)
        return InboxItem.from_record(await self._store.approval(id))

    async def answer(
        self, id: str, decision: Decision, *, by: str | None = None, reason: str | None = None
    ) -> InboxItem:
        """Answer an approval, and return it.

        Args:
            id: Its id, or an unambiguous beginning of it.
            decision: `Approve()`, `Edit(args)`, `Deny(reason)` or `Respond(content)`.
            by: Who answers.
            reason: Why.

        Raises:
            ApprovalNotFoundError: There is none.
            ApprovalAnsweredError: Somebody was faster, or it expired; says who and when.
            InvalidDecisionError: The call does not take this decision.
            ApprovalChangedError: The decision carries the digest of another call.
        """
        check_name('id', id)
        check_names(by=by)
        record = await self._store.approval(id)
        check_decision(await self._requests(record), record.pending_id, decision)
        with open_span('answer approvals', {VERSION_ID: record.version_id, 'pydantic_deep.approvals': 1}):
            decided = await self._store.decide([encode_decision(record, decision, by=by, reason=reason)])
        return InboxItem.from_record(decided[0])

    async def _requests(self, record: ApprovalRecord) -> DeferredToolRequests:
        version = await self._store.version(record.version_id)
        return decode_pause((await self._store.asset(version.pending or '')).data)


def check_decision(requests: DeferredToolRequests, pending_id: str, decision: Decision) -> None:
    """Refuse an answer that does not fit.

    Raises:
        ApprovalError: It does not.
    """
    answer_approvals(requests, {pending_id: decision})


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC)
