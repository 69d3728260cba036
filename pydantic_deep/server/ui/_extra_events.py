"""Events that pydantic-ai's streams for user interfaces lack: todos, files, status and pending approvals.

Both protocols, `_ag_ui` and `_vercel`, encode the same events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from pydantic_deep._messages.call_ids import unescape_call_id
from pydantic_deep.server.runs._renderings import Event
from pydantic_deep.streaming import (
    STREAM_EVENTS,
    Approval,
    ApprovalRequiredEvent,
    BudgetEvent,
    ErrorEvent,
    FileEvent,
    RetriedEvent,
    RunEvents,
    StatusEvent,
    StreamEvent,
    SummarizedEvent,
    TodosEvent,
    ToolResultEvent,
    describe_failure,
)

PASSING_EVENTS: Final = (SummarizedEvent, RetriedEvent, BudgetEvent, StatusEvent)
"""Transient events about the run, which are not part of its result."""

_EXTRA: Final = (ApprovalRequiredEvent, FileEvent, TodosEvent, ToolResultEvent, *PASSING_EVENTS)


class PublicError(Exception):
    """A failure with a message that clients may read: pydantic-ai's streams send `str(error)`.

    Attributes:
        kind: The kind of the failure, as in `ErrorEvent`.
    """

    def __init__(self, failure: ErrorEvent) -> None:
        super().__init__(failure.message)
        self.kind = failure.kind

    @classmethod
    def of(cls, error: Exception) -> PublicError:
        """Return the error for another one, without its secrets."""
        return error if isinstance(error, PublicError) else cls(describe_failure(error))


@dataclass(frozen=True)
class LoggedEvent:
    """An event from the log of a run, in a stream of events of pydantic-ai."""

    event: StreamEvent


class ExtraEvents:
    """Translates the events of one run to extra events. Stateful: create one for each run."""

    def __init__(self) -> None:
        self._events = RunEvents()
        self._is_logged = False

    def translate(self, event: Event | LoggedEvent) -> list[StreamEvent]:
        """Return the extra events of an event. Tool results are included only for subagents."""
        if isinstance(event, LoggedEvent):
            self._is_logged, all_events = True, [event.event]
        else:
            all_events = [] if self._is_logged else self._events.translate(event)
        extra = [translated for translated in all_events if isinstance(translated, _EXTRA)]
        return [translated for translated in extra if not isinstance(translated, ToolResultEvent) or translated.path]


def event_fields(event: StreamEvent) -> dict[str, JsonValue]:
    """Return the fields of an event without its type."""
    return {name: value for name, value in STREAM_EVENTS.dump_python(event, mode='json').items() if name != 'type'}


def approval_details(approval: Approval) -> dict[str, JsonValue]:
    """Return the fields of a pending approval for a person to review."""
    [details] = STREAM_EVENTS.dump_python(ApprovalRequiredEvent(approvals=[approval]), mode='json')['approvals']
    return details


def call_id_of(approval: Approval) -> str:
    """Return the id of the call in the stream. Calls of subagents are not in it and have the id of the approval."""
    return approval.id if approval.path else unescape_call_id(approval.id)
