"""`ServerRun`: a running or ended run of this process, with its log."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import anyio
from pydantic_ai import CancellationToken

from pydantic_deep.store import QueuedRunRecord, VersionBusyError, VersionNotFoundError, utc_datetime
from pydantic_deep.streaming import (
    EndEvent,
    EntryEncoder,
    ErrorEvent,
    RunStatus,
    StreamEvent,
    UsageEvent,
)

from ._run_log import RunLog

ServedRunState: TypeAlias = RunStatus | Literal['queued', 'running']
"""The state of a run. A run that can still be resumed is `suspended`, never `failed`."""


def queued_state(record: QueuedRunRecord) -> ServedRunState:
    """Return the state of a run that is queued or claimed, or that ended before it began."""
    if record.state == 'ended':
        return 'failed' if record.cancelled_at is None else 'interrupted'
    return record.state


@dataclass(kw_only=True, eq=False)
class ServerRun:
    """A run. Read its log, wait for its end, or cancel it."""

    id: str
    """The id of the run, which is also its id in the store."""
    conversation_id: str
    """The id of the conversation."""
    base_id: str | None
    """The version that the run started from; `None` if it is the head at its start."""
    owner: str
    """The owner of the conversation."""
    key_id: str | None
    """The key of the request that started the run; `None` if no request did."""
    agent_name: str
    """The name of the agent."""
    session_id: str | None
    """The caller's own session id, if any."""
    log: RunLog
    """The events of the run, as `encode_entry` encodes them. Closed when the run has ended."""
    renderings: dict[str, RunLog]
    """The logs of other encodings, by name."""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When the run started."""
    ended_at: datetime | None = None
    """When the run ended."""
    state: ServedRunState = 'running'
    """The state of the run."""
    version_id: str | None = None
    """The version that the run ended with. `None` until then, and if nothing was committed."""
    output: str | None = None
    """The output of the run as text."""
    error: ErrorEvent | None = None
    """The error of a failed run."""
    usage: UsageEvent = field(default_factory=UsageEvent)
    """The usage of this run alone."""
    token: CancellationToken = field(default_factory=CancellationToken)
    """The token that cancels the run."""
    begun: anyio.Event = field(default_factory=anyio.Event)
    """Set when the run is stored, after which a crash does not lose it, or has ended without being stored."""
    refusal: VersionBusyError | VersionNotFoundError | None = None
    """Why the store refused to begin the run, although it could begin when it was requested."""
    is_mirrored: bool = False
    """Whether a worker executes the run, in this process or another: `RunPool.request_cancel` cancels it."""
    has_stored_end: bool = False
    """Whether the store is known to have the end, even if it is not noted here yet."""
    caught_up: anyio.Event = field(default_factory=anyio.Event)
    """Set when the log has the events that had occurred when this process began to mirror the run."""
    _ended: anyio.Event = field(default_factory=anyio.Event)
    _encoder: EntryEncoder = field(default_factory=EntryEncoder)

    @staticmethod
    def mirrored(record: QueuedRunRecord, log: RunLog) -> ServerRun:
        """Return a run that a worker executes, or will."""
        run = ServerRun(
            id=record.run_id,
            conversation_id=record.conversation_id,
            base_id=record.base_id,
            owner=record.account or '',
            key_id=record.key_id,
            agent_name=record.agent_name,
            session_id=json.loads(record.options).get('session_id'),
            log=log,
            renderings={},
            started_at=utc_datetime(record.started_at or record.submitted_at),
            ended_at=None if record.ended_at is None else utc_datetime(record.ended_at),
            state='queued' if record.state == 'queued' else 'running',  # the log has the end
            is_mirrored=True,
        )
        run.begun.set()  # it is stored
        return run

    def restart(self, log: RunLog) -> None:
        """Replace the log, from its beginning: another process continues the run, and divides its events differently."""
        old, self.log = self.log, log
        old.successor = log
        old.discard()
        self.state, self._encoder = 'running', EntryEncoder()

    def cancel(self) -> None:
        """Cancel a run of this process. Its work is committed. Cancelling an ended run has no effect."""
        self.token.cancel()

    async def wait(self) -> None:
        """Wait until the run has ended, or this process stops to follow it: then it has no `outcome`."""
        await self._ended.wait()

    @property
    def logs(self) -> list[RunLog]:
        """The log and those of its renderings."""
        return [self.log, *self.renderings.values()]

    @property
    def outcome(self) -> RunStatus | None:
        """The state of an ended run, or `None` while it is running."""
        return None if self.state in ('queued', 'running') else self.state

    def emit(self, event: StreamEvent) -> None:
        """Append an event to the log, preceded by a notice if it starts a batch of calls."""
        for entry in self._encoder.encode(event):
            self.log.append(entry)
        self.note(event)

    def note(self, event: StreamEvent) -> None:
        """Update the state of the run by an event."""
        match event:
            case ErrorEvent():
                self.error = event
            case UsageEvent():
                self.usage = event
            case EndEvent():
                self.state = event.status or 'complete'
                self.version_id, self.output = event.version_id, event.output
            case _:
                pass

    def release(self) -> None:
        """Discard the log and wake all waiting tasks, although the run has not ended: this process stops to follow it.

        Renderings of the log end with an error.
        """
        self.log.discard()
        self.caught_up.set()
        self._ended.set()

    def mark_ended(self) -> None:
        """Close the log and wake all waiting tasks. Renderings close their own logs."""
        self.ended_at = self.ended_at or datetime.now(UTC)
        self.log.close()
        self.begun.set()
        self._ended.set()
