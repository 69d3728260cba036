"""AG-UI: parses its requests, and renders a run as its events (docs.ag-ui.com, "Events", "Interrupts").

Only the new messages and the answers to interrupts of a `RunAgentInput` are read, not its history, state and context.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    Interrupt,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    StateSnapshotEvent,
)
from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.ui.ag_ui import AGUIEventStream

from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond
from pydantic_deep.server.compat._dialogue import (
    Content,
    Dialogue,
    DialogueMessage,
    build_dialogue,
    file_from_base64,
    file_from_url,
    invalid_request,
)
from pydantic_deep.server.runs._renderings import Event, Rendering
from pydantic_deep.streaming import Approval, ApprovalRequiredEvent, StreamEvent, TodosEvent, ToolResultEvent

from ._extra_events import ExtraEvents, PublicError, approval_details, call_id_of, event_fields

AG_UI: Final = 'ag-ui'
"""The name of the rendering."""

NAMESPACE: Final = 'pydantic-deep.'
"""The prefix of the names of custom events."""


class _Lenient(BaseModel):
    """New fields come, and clients send what they do not need."""

    model_config = ConfigDict(extra='ignore', alias_generator=to_camel)


class AgUiMessage(_Lenient):
    """A message. Only those of the user after the last answer are read."""

    role: str
    """Who says it."""
    content: JsonValue = None
    """The words: a text, or parts of which some may be files, never by a URL but `data:`."""


class AgUiResume(_Lenient):
    """An answer to an interrupt."""

    interrupt_id: str
    """The interrupt."""
    status: Literal['resolved', 'cancelled']
    """`cancelled` denies the call."""
    payload: JsonValue = None
    """What was decided, as the interrupt's `responseSchema` says."""


class AgUiRequest(_Lenient):
    """A `RunAgentInput`. What is not named here is ignored: the server has the history and the state."""

    thread_id: Annotated[str, Field(min_length=1, max_length=200)]
    """The client's own id of the dialogue."""
    run_id: Annotated[str, Field(min_length=1, max_length=200)]
    """The client's own id of what it asks for: events have it."""
    messages: list[AgUiMessage] = []
    """The dialogue."""
    tools: list[JsonValue] = []
    """Refused, unless it is empty: agents bring their own tools, and call none of a client."""
    resume: list[AgUiResume] | None = None
    """Answers to what waits."""


class _Source(_Lenient):
    type: Literal['data', 'url']
    value: str
    mime_type: str = ''


class _Part(_Lenient):
    type: str
    text: str = ''
    source: _Source | None = None
    mime_type: str = ''
    data: str | None = None
    url: str | None = None


_CONTENT: Final[TypeAdapter[str | list[_Part]]] = TypeAdapter(str | list[_Part])


class _Payload(_Lenient):
    """What an interrupt is answered with, in the words that pydantic-ai's interrupts have too."""

    approved: StrictBool
    edited_args: dict[str, JsonValue] | None = None
    reason: str | None = None
    content: JsonValue = None
    digest: str | None = None


def parse_ag_ui_request(body: AgUiRequest) -> Dialogue:
    """Parse the new prompt or the decisions of a request.

    Raises:
        ServerError: The request has an unsupported option, or neither a prompt nor a decision.
    """
    if body.tools:
        raise invalid_request(
            'The agents of this server bring their own tools and call none of a client: leave `tools` empty.'
        )
    answered = max((at for at, each in enumerate(body.messages, start=1) if each.role == 'assistant'), default=0)
    new = [each for each in body.messages[answered:] if each.role == 'user']
    return build_dialogue(
        system=(),
        messages=[DialogueMessage(role='user', content=_content(each.content)) for each in new],
        decisions={each.interrupt_id: _decision(each) for each in body.resume or ()},
        model_settings={},
    )


def render_ag_ui(thread_id: str, run_id: str) -> Rendering:
    """Return the rendering of a run as events of AG-UI, one frame each, with the ids of the client."""

    async def render(events: AsyncIterator[Event]) -> AsyncGenerator[bytes]:
        stream = _AgUiStream(thread_id=thread_id, run_id=run_id)
        async for event in stream.transform_stream(events):
            yield stream.encode_event(event).encode()

    return render


@dataclass
class _AgUiStream(AGUIEventStream[Any, Any]):
    """pydantic-ai's stream with extra events and pending calls of subagents, and without secrets in errors."""

    extra_events: ExtraEvents = field(default_factory=ExtraEvents)
    approvals: list[Approval] = field(default_factory=list[Approval])

    async def handle_event(self, event: Event) -> AsyncIterator[BaseEvent]:
        async for each in super().handle_event(event):
            yield each
        for extra in self.extra_events.translate(event):
            if isinstance(extra, ApprovalRequiredEvent):
                self.approvals = extra.approvals
            elif not isinstance(extra, ToolResultEvent):
                yield _event_of(extra)

    async def on_error(self, error: Exception) -> AsyncIterator[BaseEvent]:
        public_error = PublicError(error)
        async for event in super().on_error(public_error):
            yield event.model_copy(update={'code': public_error.kind}) if isinstance(event, RunErrorEvent) else event

    async def on_cancelled(self, cancelled: RunCancelled) -> AsyncIterator[BaseEvent]:
        async for event in self.on_error(cancelled):  # an error, where pydantic-ai would send a normal end
            yield event

    async def after_stream(self) -> AsyncIterator[BaseEvent]:
        async for event in super().after_stream():
            if isinstance(event, RunFinishedEvent) and self.approvals:
                outcome = RunFinishedInterruptOutcome(interrupts=[_interrupt_of(each) for each in self.approvals])
                event = event.model_copy(update={'outcome': outcome})
            yield event


def _event_of(event: StreamEvent) -> BaseEvent:
    """Return todos as the shared state, and all other events as custom events."""
    now = time.time_ns() // 1_000_000
    fields = event_fields(event)
    if isinstance(event, TodosEvent):
        return StateSnapshotEvent(snapshot=fields, timestamp=now)
    return CustomEvent(name=f'{NAMESPACE}{event.type}', value=fields, timestamp=now)


def _interrupt_of(approval: Approval) -> Interrupt:
    return Interrupt(
        id=approval.id,
        reason='tool_call',
        tool_call_id=None if approval.path else call_id_of(approval),  # calls of subagents are not in the stream
        message=f'{" > ".join([*approval.path, approval.tool])} waits for a person.',
        response_schema=_schema_for(approval.decisions),
        metadata=approval_details(approval),
    )


def _schema_for(decisions: list[str]) -> dict[str, Any]:
    """Return the schema of the answers that a call accepts."""
    taken: dict[str, Any] = {
        'approved': {'type': 'boolean'},
        'digest': {
            'type': 'string',
            'description': 'The `view.digest` of the call: with another the answer is refused.',
        },
    }
    if 'edit' in decisions:
        taken['editedArgs'] = {'type': 'object', 'description': 'All arguments, to run it with these.'}
    if 'respond' in decisions:
        taken['content'] = {'description': 'The result, given by the person in the place of the tool.'}
    if 'deny' in decisions:
        taken['reason'] = {'type': 'string', 'description': 'Why it is not approved.'}
    return {'type': 'object', 'properties': taken, 'required': ['approved']}


def _decision(entry: AgUiResume) -> Decision:
    if entry.status == 'cancelled':
        return Deny()
    try:
        payload = _Payload.model_validate(entry.payload)
    except ValidationError:
        raise invalid_request(
            'The `payload` of `resume` is no answer to an interrupt: send `{"approved": true}`, `{"approved": false, '
            '"reason": "…"}`, or what its `responseSchema` allows besides.'
        ) from None
    if not payload.approved:
        return Deny(payload.reason or Deny.reason, digest=payload.digest)
    if 'content' in payload.model_fields_set:
        return Respond(payload.content, digest=payload.digest)
    if payload.edited_args is not None:
        return Edit(payload.edited_args, digest=payload.digest)
    return Approve(digest=payload.digest)


def _content(content: JsonValue) -> tuple[Content, ...]:
    try:
        parts = _CONTENT.validate_python(content)
    except ValidationError:
        raise invalid_request('The `content` of a message of the user must be a text, or a list of parts.') from None
    if isinstance(parts, str):
        return (parts,) if parts else ()
    return tuple(piece for part in parts for piece in _piece(part))


def _piece(part: _Part) -> tuple[Content, ...]:
    if part.type == 'text':
        return (part.text,) if part.text else ()
    source = part.source
    if source is None and part.type == 'binary' and part.data is not None:
        return (file_from_base64(part.data, part.mime_type),)
    if source is not None and source.type == 'data':
        return (file_from_base64(source.value, source.mime_type),)
    return (file_from_url(source.value if source is not None else part.url or ''),)
