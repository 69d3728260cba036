"""Finds events in the store, and stores a delivery for each webhook that receives them.

The store keeps all that happened, so an event is found after a crash of any process. Runs are listed in the order in
which they were stored; those that have not ended, and pending approvals, are tracked until they are over. Deliveries
have ids that depend on the event alone: they are stored first, and finding an event twice changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic_deep.dispatch import load_attempts
from pydantic_deep.repository import Change, Delete, RowNotFoundError, Upsert
from pydantic_deep.store import ApprovalNotFoundError, ApprovalRecord, RunRecord, SqlStore, VersionFilter

from ._webhooks import EventType, Tracked, Webhook, Webhooks, rows

_POSITION: Final = 'position'

_ALL: Final = 1_000_000
"""An upper bound for the number of approvals of one version."""


class Discovery:
    """The discovery of events, in one process at a time.

    Args:
        store: The store of the runs.
        webhooks: The webhooks.
        owner_key: The key of the owner in the metadata of versions.
        public_url: The URL of the page, for links; `None` for none.
    """

    def __init__(self, store: SqlStore, webhooks: Webhooks, *, owner_key: str, public_url: str | None) -> None:
        self._store = store
        self._webhooks = webhooks
        self._owner_key = owner_key
        self._public_url = public_url
        self._position: int | None = None
        self._open: dict[str, Tracked] = {}
        """The tracked runs and approvals, by id."""

    async def load(self) -> None:
        """Load what the discovery has stored, when this process begins with it."""
        self._open = {
            tracked.id: tracked async for tracked in rows(self._webhooks.tracked) if tracked.kind in ('run', 'approval')
        }
        try:
            self._position = (await self._webhooks.tracked.get(_POSITION)).position
        except RowNotFoundError:
            self._position = None

    async def discover(self, hooks: list[Webhook]) -> None:
        """Store deliveries of what has happened since the last call.

        Args:
            hooks: The webhooks that receive events. Without any, nothing is tracked.
        """
        if not hooks:
            if self._position is not None:
                await self._apply([Delete(id) for id in (*self._open, _POSITION)])
                self._open, self._position = {}, None
            return
        if self._position is None:
            await self._begin()
        await self._track_new_runs()
        running, pending = await self._store.unfinished()
        for tracked in list(self._open.values()):
            if tracked.kind == 'run' and tracked.id not in running:
                await self._report_run(tracked.id, hooks)
            elif tracked.kind == 'approval' and tracked.id not in pending:
                await self._report_answer(tracked.id, hooks)

    async def _begin(self) -> None:
        """Track what is open now, and the runs that begin from now on."""
        _, position = await self._store.runs_after(None)
        running, pending = await self._store.unfinished()
        opened = [Tracked(id=id, kind='run') for id in running]
        opened += [Tracked(id=id, kind='approval') for id in pending]
        await self._track(opened, position)

    async def _track_new_runs(self) -> None:
        while True:
            runs, position = await self._store.runs_after(self._position)
            if position == self._position:
                return
            await self._track([Tracked(id=run.id, kind='run') for run in runs], position)

    async def _track(self, opened: list[Tracked], position: int) -> None:
        place = Tracked(id=_POSITION, kind='position', position=position)
        await self._apply([*map(Upsert, opened), Upsert(place)])
        self._open |= {tracked.id: tracked for tracked in opened}
        self._position = position

    async def _apply(self, changes: list[Change[Tracked]]) -> None:
        await self._webhooks.tracked.apply(changes)

    async def _report_run(self, id: str, hooks: list[Webhook]) -> None:
        """Store the deliveries of a run that ended, and track its pending approvals instead."""
        attempts = await load_attempts(self._store, id)
        opened: list[Tracked] = []
        # A run that another one has resumed after a crash goes on, and the other one is tracked as well.
        if attempts and attempts[-1].id == id and attempts[-1].parent_run_id is None:
            run = attempts[-1]
            newest = await self._store.versions(VersionFilter(run_id=run.id), limit=1)
            version_id = newest[0].id if newest else None
            if run.state == 'awaiting_approval' and version_id is not None:
                for approval in await self._store.approvals(status=None, version_id=version_id, limit=_ALL):
                    await self._add_approval(hooks, 'approval.requested', approval, approval.created_at, {})
                    opened.append(Tracked(id=approval.id, kind='approval'))
            else:
                await self._add_run(hooks, run, first_id=attempts[0].id, version_id=version_id)
        await self._apply([*map(Upsert, opened), Delete(id)])
        self._open |= {tracked.id: tracked for tracked in opened}
        del self._open[id]

    async def _report_answer(self, id: str, hooks: list[Webhook]) -> None:
        """Store the deliveries of an approval that is no longer pending."""
        try:
            approval = await self._store.approval(id)
        except ApprovalNotFoundError:
            approval = None  # its version was deleted
        if approval is not None and approval.status != 'superseded':  # that one is pending under another id
            at = approval.decided_at or approval.expires_at or approval.created_at
            answer = {'status': approval.status, 'decided_by': approval.decided_by}
            await self._add_approval(hooks, 'approval.answered', approval, at, answer)
        await self._apply([Delete(id)])
        del self._open[id]

    async def _add_approval(
        self,
        hooks: list[Webhook],
        type: EventType,
        approval: ApprovalRecord,
        at: int,
        answer: Mapping[str, Any],
    ) -> None:
        data = {
            'approval_id': approval.id,
            'conversation_id': approval.conversation_id,
            'version_id': approval.version_id,
            'agent': approval.agent_name,
            'path': json.loads(approval.path),
            'tool': approval.tool_name,
            'expires_at': None if approval.expires_at is None else _moment(approval.expires_at).isoformat(),
            **answer,
            'url': self._link(f'#/a/{approval.id}'),
        }
        await self._add(hooks, type, approval.id, at, data)

    async def _add_run(self, hooks: list[Webhook], run: RunRecord, *, first_id: str, version_id: str | None) -> None:
        data = {
            'run_id': first_id,
            'conversation_id': run.conversation_id,
            'version_id': version_id,
            'agent': run.agent_name,
            'status': run.state,
            'url': self._link(f'#/c/{run.conversation_id}'),
        }
        await self._add(hooks, 'run.ended', first_id, run.ended_at or run.started_at, data)

    async def _add(self, hooks: list[Webhook], type: EventType, subject: str, at: int, data: Mapping[str, Any]) -> None:
        """Store a delivery for each webhook of the owner of a conversation."""
        newest = await self._store.versions(VersionFilter(conversation_id=data['conversation_id']), limit=1)
        owner = json.loads(newest[0].metadata).get(self._owner_key) if newest else None
        for hook in hooks:
            may_use = hook.agents is None or data['agent'] in hook.agents
            if hook.owner == owner and type in hook.events and may_use:
                await self._webhooks.add(hook, type, subject, _moment(at), data)

    def _link(self, address: str) -> str | None:
        return None if self._public_url is None else f'{self._public_url.rstrip("/")}/{address}'


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)
