"""What pydantic-ai's streams for user interfaces skip, in words of ours: the plan, files, what happened, what waits.

Both protocols are told the same, each in its own way: `_ag_ui`, `_vercel`.
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from pydantic_deep.server.runs._pool import Event
from pydantic_deep.streaming import (
    STREAM_EVENTS,
    Approval,
    ApprovalRequiredEvent,
    FileEvent,
    RunEvents,
    StatusEvent,
    StreamEvent,
    TodosEvent,
    ToolResultEvent,
)
from pydantic_deep.streaming._failures import describe_failure

_TOLD: Final = (ApprovalRequiredEvent, FileEvent, StatusEvent, TodosEvent, ToolResultEvent)


class ToldError(Exception):
    """A failure in the words that a client may read: pydantic-ai's streams tell `str(error)`.

    Attributes:
        kind: What kind of failure, as `ErrorEvent` has it.
    """

    def __init__(self, error: BaseException) -> None:
        told = describe_failure(error)
        self.kind = told.kind
        super().__init__(told.message)


class News:
    """Finds in the events of one run what is told beside them. It has state: one for each run."""

    def __init__(self) -> None:
        self._events = RunEvents()

    def of(self, event: Event) -> list[StreamEvent]:
        """Return what an event tells that pydantic-ai's streams do not; results only of tools that subagents called."""
        found = [each for each in self._events.translate(event) if isinstance(each, _TOLD)]
        return [each for each in found if not isinstance(each, ToolResultEvent) or each.path]


def fields_of(event: StreamEvent) -> dict[str, JsonValue]:
    """Return what an event says, without its type."""
    return {name: value for name, value in STREAM_EVENTS.dump_python(event, mode='json').items() if name != 'type'}


def details_of(approval: Approval) -> dict[str, JsonValue]:
    """Return what a person needs to know of a call that waits."""
    [details] = STREAM_EVENTS.dump_python(ApprovalRequiredEvent(approvals=[approval]), mode='json')['approvals']
    return details


def call_id_of(approval: Approval) -> str:
    """Return the id of the call in the stream; of a subagent's, which is not in it, that of the approval."""
    return approval.id if approval.path else approval.id.replace('%2F', '/').replace('%25', '%')
