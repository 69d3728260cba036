"""`ServerRun`: a running or ended run of this process, with its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import anyio
from pydantic_ai import CancellationToken

from pydantic_deep.streaming import (
    EndEvent,
    EntryEncoder,
    ErrorEvent,
    RunStatus,
    StreamEvent,
    UsageEvent,
)

from ._run_log import RunLog

ServedRunState: TypeAlias = RunStatus | Literal['running']
"""The state of a run. A run that can still be resumed is `suspended`, never `failed`."""


@dataclass(kw_only=True, eq=False)
class ServerRun:
    """A run. Read its log, wait for its end, or cancel it."""

    id: str
    """The id of the run, which is also its id in the store."""
    conversation_id: str
    """The id of the conversation."""
    base_id: str
    """The version that the run started from."""
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
    renderings: Mapping[str, RunLog]
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
    _ended: anyio.Event = field(default_factory=anyio.Event)
    _encoder: EntryEncoder = field(default_factory=EntryEncoder)

    def cancel(self) -> None:
        """Cancel the run. Its work is committed. Cancelling an ended run has no effect."""
        self.token.cancel()

    async def wait(self) -> None:
        """Wait until the run has ended."""
        await self._ended.wait()

    @property
    def outcome(self) -> RunStatus | None:
        """The state of an ended run, or `None` while it is running."""
        return None if self.state == 'running' else self.state

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
            case EndEvent():
                self.state = event.status or 'complete'
                self.version_id, self.output = event.version_id, event.output
            case _:
                pass

    def mark_ended(self) -> None:
        """Close the log and wake all waiting tasks. Renderings close their own logs."""
        self.ended_at = datetime.now(UTC)
        self.log.close()
        self.begun.set()
        self._ended.set()
