"""The events of a run as clients of other APIs get them, from its log or from the store."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import TypeAlias

from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._ownership import Access, AuthorizedRun
from pydantic_deep.server.runs._run_log import LogDiscardedError
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.server.runs._stored_run_events import follow_stored_run, stored_run_events
from pydantic_deep.streaming import (
    Approval,
    ApprovalRequiredEvent,
    EndEvent,
    ErrorEvent,
    EventGroup,
    RetriedEvent,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
    decode_entry,
    groups_of,
    is_selected,
    text_of_entry,
)

from ._client_results import is_client_call
from ._written_answer import OUTPUT_TOOL, Schema, WrittenAnswer

ClientEvent: TypeAlias = StreamEvent | bytes | None
"""An event; or a text of the agent itself as JSON, which encoders insert into a frame without parsing it; or `None` while
a client gets no events."""

_READ_GROUPS = EventGroup.tool_results | EventGroup.thinking
"""The groups of events that a response needs. Pieces of calls are read only for an answer by a schema."""

ANSWER_CHANGED = ErrorEvent(
    kind='answer_changed',
    message='The model has written its answer again, differently from the part that was sent. The complete answer is '
    'stored: read it with `GET /api/runs/{id}` or `GET /v1/responses/resp_{id}`, with the id of this response, or repeat '
    'the request without a stream.',
    status=502,
)
"""The error after a part of an answer by a schema that is not the beginning of the final one."""

POLL_SECONDS = 0.5
"""Interval, in seconds, at which the store is polled for a streamed run of another process."""


def _is_read(event: StreamEvent) -> bool:
    return not groups_of(event) & ~_READ_GROUPS


async def run_events(
    state: ServerState, run: ServerRun, *, has_call_deltas: bool = False
) -> AsyncGenerator[ClientEvent]:
    """Yield the events of a run, and `None` while a client gets none.

    Pieces of calls are included only if `has_call_deltas`.

    If the log is removed or replaced while it is read, the events stop without an end event, which readers treat as an
    error.
    """
    keepalive_seconds, last_yielded = state.settings.keepalive_seconds, monotonic()
    log, has_events = run.log, False
    groups = _READ_GROUPS | EventGroup.call_deltas if has_call_deltas else _READ_GROUPS
    while log is not None and not has_events:  # the log of a queued run is replaced when a worker claims the run
        with suppress(LogDiscardedError):
            async with aclosing(log.batches(idle_seconds=keepalive_seconds)) as batches:
                async for batch in batches:
                    entries = [entry for _, entry in batch if is_selected(entry, groups)]
                    has_events = has_events or bool(entries)
                    if not entries and monotonic() - last_yielded < keepalive_seconds:
                        continue
                    last_yielded = monotonic()
                    for entry in entries:
                        yield text_of_entry(entry) or decode_entry(entry)
                    if not entries:
                        yield None
        log = log.successor


async def stored_events(run: AuthorizedRun) -> AsyncGenerator[ClientEvent]:
    """Yield the events of a run so far, as the store has them."""
    if run.stored is not None:
        for event in await stored_run_events(run.agent, run.stored):
            if _is_read(event):
                yield event
    elif run.local is not None and run.local.error is not None:  # it failed before it was stored
        yield StartEvent(id=run.id)
        yield run.local.error


async def followed_events(state: ServerState, run: AuthorizedRun) -> AsyncGenerator[ClientEvent]:
    """Yield the events of a run of another process, as the store gets them, and `None` while there are none."""
    assert run.stored is not None  # noqa: S101 - a run that is not in this process is in the store
    batches = follow_stored_run(state.runs, run.agent, run.stored, after=0, poll_seconds=POLL_SECONDS)
    async with aclosing(batches):
        async for batch in batches:
            for _, event in batch:
                if _is_read(event):
                    yield event
            if not batch:
                yield None


async def client_events(
    access: Access,
    events: AsyncGenerator[ClientEvent],
    *,
    schema: Schema | None,
    is_streamed: bool = False,
    is_plain: bool = False,
) -> AsyncGenerator[ClientEvent]:
    """Yield the events of a run for its client. Pending calls have the ids of the inbox.

    The only calls are those of the client's tools. With a schema of the answer, the only text is the output.

    Args:
        access: The access of the caller.
        events: The events of the run.
        schema: The schema of the answer.
        is_streamed: Whether the parts of such an answer that are certain are yielded while the model writes them, so that
            the events may end with an error after them. Otherwise, the output is only in the end event.
        is_plain: Whether such an answer is a string without quotes, which is not streamed.
    """
    if schema is not None:
        answer = _StreamedOutput(WrittenAnswer(schema)) if is_streamed and not is_plain else None
        events = _output_events(access, events, answer, is_plain=is_plain)
    required: ApprovalRequiredEvent | None = None
    async with aclosing(events):
        async for event in events:
            if isinstance(event, ApprovalRequiredEvent):
                required = event  # the ids are in the version that the end event names
                continue
            if isinstance(event, EndEvent) and required is not None:
                for call in await _pending_events(access, required, event):
                    yield call
            yield event


async def _output_events(
    access: Access, events: AsyncGenerator[ClientEvent], streamed: _StreamedOutput | None, *, is_plain: bool
) -> AsyncGenerator[ClientEvent]:
    """Yield the events of a run with a schema. Texts are pieces of the output, which is JSON unless it is plain."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, EndEvent) and event.output is not None and not is_plain:
                event = await _with_json_output(access, event)
            text = '' if event is None or streamed is None else streamed.text_of(event)
            if text:
                yield TextEvent(text=text)
            elif isinstance(event, ToolCallDeltaEvent | TextEvent | bytes | RetriedEvent):
                pass
            elif streamed is None or not streamed.answer.has_begun:
                yield event
            elif isinstance(event, EndEvent):
                rest = streamed.answer.rest_of(event.output)
                if rest is None:
                    yield ANSWER_CHANGED
                    return
                if rest:
                    yield TextEvent(text=rest)
                yield event
            elif not isinstance(event, ThinkingEvent | ToolResultEvent):  # they would end the text
                yield event


@dataclass
class _StreamedOutput:
    """Recognizes the pieces of the output among the events of a run."""

    answer: WrittenAnswer
    call: int | None = None
    """The index of the call of the output tool that is being written."""
    is_in_text: bool = False

    def text_of(self, event: StreamEvent | bytes) -> str:
        """Return the text that became certain with an event."""
        match event:
            case bytes():
                return self._add_text(json.loads(event))
            case ToolCallDeltaEvent(path=[], name=name) if name == OUTPUT_TOOL:
                self.call, self.is_in_text = event.index, False
                self.answer.begin()
                return self.answer.add(event.args)
            case ToolCallDeltaEvent(path=[], name=None) if event.index == self.call:
                return self.answer.add(event.args)
            case RetriedEvent(path=[]) | ToolResultEvent(path=[]) | UsageEvent():  # another response follows
                self.call, self.is_in_text = None, False
            case _:
                pass
        return ''

    def _add_text(self, text: str) -> str:
        """Add a piece of a text, which is the output if the model writes outputs without a tool."""
        if not self.is_in_text:
            self.call, self.is_in_text = None, True
            self.answer.begin()
        return self.answer.add(text)


async def parse_texts(events: AsyncGenerator[ClientEvent]) -> AsyncGenerator[StreamEvent | None]:
    """Yield events with their texts parsed, for readers that do not send each event at once."""
    async with aclosing(events):
        async for event in events:
            yield TextEvent(text=json.loads(event)) if isinstance(event, bytes) else event


async def _pending_events(access: Access, required: ApprovalRequiredEvent, end: EndEvent) -> list[StreamEvent]:
    """Return the calls of the client's tools, and the approvals that are pending beside them."""
    version = await access.version(end.version_id or '')
    names = {tool.name for tool in await version.external_tools()}
    records = await access.state.store.approvals(status=None, version_id=version.id, limit=1000)
    record_by_pending = {record.pending_id: record for record in records}
    events: list[StreamEvent] = []
    others: list[Approval] = []
    for approval in required.approvals:
        record = record_by_pending[approval.id]
        if is_client_call(record, names):
            events.append(ToolCallEvent(id=record.id, name=approval.tool, args=json.dumps(approval.args)))
        else:
            others.append(replace(approval, id=record.id))
    return [*events, replace(required, approvals=others)] if others else events


async def _with_json_output(access: Access, end: EndEvent) -> EndEvent:
    """Return the end with its output as JSON, also if the output is a string."""
    version = await access.state.store.version(end.version_id or '')
    return replace(end, output=version.output)
