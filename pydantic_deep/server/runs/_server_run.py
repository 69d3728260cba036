"""`ServerRun`: a run that works in this process, or has; who started it is gone or not, that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import anyio
from pydantic_ai import CancellationToken
from pydantic_ai.usage import RunUsage

from pydantic_deep.streaming import STREAM_EVENTS, EndEvent, ErrorEvent, NoticeEvent, RunStatus, StreamEvent
from pydantic_deep.streaming import ToolCallDeltaEvent as CallDelta
from pydantic_deep.streaming import ToolCallEvent as Call
from pydantic_deep.streaming._lines import NOTICE, EventEncoder

from ._run_log import RunLog

ServedRunState: TypeAlias = RunStatus | Literal['running']
"""What became of a run. One that may still resume is `suspended`, and never `failed`."""


@dataclass(kw_only=True, eq=False)
class ServerRun:
    """A run. Whoever has it may read its log, wait for its end, and cancel it."""

    id: str
    """As the store knows it, from before it begins."""
    conversation_id: str
    """The conversation."""
    base_id: str
    """The version that it goes on from."""
    owner: str
    """Whose conversation that is."""
    key_id: str | None
    """The key that started it; `None` where none did."""
    agent_name: str
    """The agent."""
    session_id: str | None
    """The caller's own id."""
    log: RunLog
    """What it tells: `StreamEvent`s as JSON. It is closed when the run has ended."""
    renderings: Mapping[str, RunLog]
    """What it tells in other forms, by name."""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When it began."""
    ended_at: datetime | None = None
    """When it ended."""
    state: ServedRunState = 'running'
    """What became of it."""
    version_id: str | None = None
    """The version that it ended with; `None` until then, and of a run of which nothing was kept."""
    output: str | None = None
    """Its answer as text."""
    error: ErrorEvent | None = None
    """Why it failed."""
    usage: RunUsage = field(default_factory=RunUsage)
    """What it has used by itself."""
    _begun: anyio.Event = field(default_factory=anyio.Event)
    _token: CancellationToken = field(default_factory=CancellationToken)
    _ended: anyio.Event = field(default_factory=anyio.Event)
    _notices: EventEncoder = field(default_factory=EventEncoder)

    @property
    def token(self) -> CancellationToken:
        """What stops it."""
        return self._token

    def cancel(self) -> None:
        """Stop it; what it has done is kept. Cancelling what has ended does nothing."""
        self._token.cancel()

    async def wait_begun(self) -> None:
        """Wait until the store knows of it, or it has ended without: what is told of it then is true after a crash."""
        await self._begun.wait()

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._ended.wait()

    @property
    def outcome(self) -> RunStatus | None:
        """What became of it; `None` while it works."""
        return None if self.state == 'running' else self.state

    def begin(self) -> None:
        """Take note that the store knows of it."""
        self._begun.set()

    def tell(self, event: StreamEvent) -> None:
        """Append an event to the log, and before a batch of calls a notice of it."""
        is_due = bool(self._notices.encode(event)) and isinstance(event, (Call, CallDelta))
        for each in [NoticeEvent(text=NOTICE), event] if is_due else [event]:
            self.log.append(STREAM_EVENTS.dump_json(each))
        match event:
            case ErrorEvent():
                self.error = event
            case EndEvent():
                self.state = event.status or 'complete'
                self.version_id, self.output = event.version_id, event.output
            case _:
                pass

    def end(self) -> None:
        """Let nothing more come, and wake whoever waits. Renderings close their logs themselves."""
        self.ended_at = datetime.now(UTC)
        self.log.close()
        self._begun.set()
        self._ended.set()
