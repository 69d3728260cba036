"""AG-UI: parses its requests, and renders runs as its events (docs.ag-ui.com, "Events", "Interrupts", "Tools").

Only new messages, tools of the client, their results, and answers to interrupts are read from a `RunAgentInput`, not its
history, state and context. The id of the last answer is the place that new messages continue.
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
from pydantic_ai.messages import FunctionToolResultEvent
from pydantic_ai.ui.ag_ui import AGUIEventStream

from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond
from pydantic_deep.server._agents import ServedAgent
from pydantic_deep.server.compat._client_tools import ClientResult, client_tool, client_tools
from pydantic_deep.server.compat._dialogue import (
    Content,
    Dialogue,
    DialogueMessage,
    build_dialogue,
    count_answered,
    file_from_base64,
    file_from_url,
    invalid_request,
)
from pydantic_deep.server.runs._renderings import Event, Rendering
from pydantic_deep.streaming import Approval, ApprovalRequiredEvent, StreamEvent, TodosEvent, ToolResultEvent

from ._extra_events import ExtraEvents, PublicError, approval_details, call_id_of, event_fields
from ._run_stream import RunStream
from ._turns import Place

AG_UI: Final = 'ag-ui'
"""The name of the rendering."""

NAMESPACE: Final = 'pydantic-deep.'
"""The prefix of the names of custom events."""


class _Lenient(BaseModel):
    """Accepts camel case names and ignores unknown fields, which newer clients send."""

    model_config = ConfigDict(extra='ignore', alias_generator=to_camel)


class AgUiMessage(_Lenient):
    """A message. Only user messages and results of tools after the last answer are read."""

    role: str
    """The author of the message."""
    id: str = ''
    """The id of the message. That of an answer begins with the id of its run."""
    content: JsonValue = None
    """A string, or a list of parts. Files must be base64-encoded or `data:` URLs."""
    tool_call_id: str | None = None
    """For a result of a tool: the id of the call."""
    error: str | None = None
    """For a result of a tool: why the call failed."""


class AgUiTool(_Lenient):
    """A tool of the client."""

    name: str
    """The name of the tool."""
    description: str | None = None
    """What the tool does."""
    parameters: dict[str, JsonValue] | None = None
    """The JSON schema of the arguments."""


class AgUiResume(_Lenient):
    """An answer to an interrupt."""

    interrupt_id: str
    """The id of the interrupt."""
    status: Literal['resolved', 'cancelled']
    """`cancelled` denies the call."""
    payload: JsonValue = None
    """The decision, in the format of the interrupt's `responseSchema`."""


class AgUiRequest(_Lenient):
    """A `RunAgentInput`. Other fields are ignored: the server has the history and the state."""

    thread_id: Annotated[str, Field(min_length=1, max_length=200)]
    """The client's own id of the dialogue."""
    run_id: Annotated[str, Field(min_length=1, max_length=200)]
    """The client's own id of the request, which events contain."""
    messages: list[AgUiMessage] = []
    """The messages of the dialogue so far."""
    tools: list[AgUiTool] = []
    """Tools that the client runs. A call of one ends the run, and the next request has its result."""
    resume: list[AgUiResume] | None = None
    """Answers to pending approvals."""


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
    """The answer to an interrupt, in the format of pydantic-ai's interrupts."""

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
    answered = count_answered(message.role for message in body.messages)
    new = [message for message in body.messages[answered:] if message.role in ('user', 'tool')]
    declared = [client_tool(tool.name, description=tool.description, parameters=tool.parameters) for tool in body.tools]
    return build_dialogue(
        system=(),
        messages=[_message(message) for message in new],
        decisions={answer.interrupt_id: _decision(answer) for answer in body.resume or ()},
        model_settings={},
        tools=client_tools(declared, 'auto'),
    )


def place_in_ag_ui(body: AgUiRequest) -> Place:
    """Return where the new messages of a request continue its thread: after the last answer."""
    answered = count_answered(message.role for message in body.messages)
    return Place(answer_id=body.messages[answered - 1].id if answered else None)


def _message(message: AgUiMessage) -> DialogueMessage:
    if message.role == 'user':
        return DialogueMessage(role='user', content=_content(message.content))
    is_error = message.error is not None
    content = message.error if is_error else message.content
    result = ClientResult(id=message.tool_call_id, name='', content=content, is_error=is_error)
    return DialogueMessage(role='user', results=(result,))


def render_ag_ui(agent: ServedAgent, thread_id: str, run_id: str | None = None) -> Rendering:
    """Return a rendering of a run as AG-UI events, one frame each, with the ids of the client.

    Args:
        agent: The agent of the run.
        thread_id: The client's id of the thread.
        run_id: The client's id of the request; by default, the id of the run.
    """

    async def render(id: str, events: AsyncIterator[Event]) -> AsyncGenerator[bytes]:
        stream = _AgUiStream(agent=agent, id=id, thread_id=thread_id, run_id=run_id or id, message_id=f'{id}.0')
        async for event in stream.transform_stream(events):
            yield stream.encode_event(event).encode()

    return render


@dataclass(kw_only=True)
class _AgUiStream(RunStream, AGUIEventStream[Any, Any]):
    """pydantic-ai's stream with extra events and pending calls of subagents, and without secrets in errors."""

    extra_events: ExtraEvents = field(default_factory=ExtraEvents)
    approvals: list[Approval] = field(default_factory=list[Approval])

    async def handle_function_tool_result(self, event: FunctionToolResultEvent) -> AsyncIterator[BaseEvent]:
        if event.part.tool_call_id not in (await self.calls()).client_results:  # which the client has already
            async for base_event in super().handle_function_tool_result(event):
                yield base_event

    async def handle_event(self, event: Event) -> AsyncIterator[BaseEvent]:
        async for base_event in super().handle_event(event):
            yield base_event
        for extra in self.extra_events.translate(event):
            if isinstance(extra, ApprovalRequiredEvent):
                tools = (await self.calls()).client_tools  # a call of the client ends the run, and is no interrupt
                self.approvals = [each for each in extra.approvals if each.path or each.tool not in tools]
            elif not isinstance(extra, ToolResultEvent):
                yield _event_of(extra)

    async def on_error(self, error: Exception) -> AsyncIterator[BaseEvent]:
        public_error = PublicError.of(error)
        async for event in super().on_error(public_error):
            yield event.model_copy(update={'code': public_error.kind}) if isinstance(event, RunErrorEvent) else event

    async def on_cancelled(self, cancelled: RunCancelled) -> AsyncIterator[BaseEvent]:
        async for event in self.on_error(cancelled):  # an error, where pydantic-ai would send a normal end
            yield event

    async def after_stream(self) -> AsyncIterator[BaseEvent]:
        async for event in super().after_stream():
            if isinstance(event, RunFinishedEvent) and self.approvals:
                interrupts = [_interrupt_of(approval) for approval in self.approvals]
                outcome = RunFinishedInterruptOutcome(interrupts=interrupts)
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
    properties: dict[str, Any] = {
        'approved': {'type': 'boolean'},
        'digest': {
            'type': 'string',
            'description': 'The `view.digest` of the call. An answer with another digest is refused.',
        },
    }
    if 'edit' in decisions:
        properties['editedArgs'] = {'type': 'object', 'description': 'The complete arguments to run the call with.'}
    if 'respond' in decisions:
        properties['content'] = {'description': 'The result that the person gives in place of the tool.'}
    if 'deny' in decisions:
        properties['reason'] = {'type': 'string', 'description': 'Why the call is denied.'}
    return {'type': 'object', 'properties': properties, 'required': ['approved']}


def _decision(entry: AgUiResume) -> Decision:
    if entry.status == 'cancelled':
        return Deny()
    try:
        payload = _Payload.model_validate(entry.payload)
    except ValidationError:
        raise invalid_request(
            'The `payload` of `resume` is not an answer to an interrupt. Send `{"approved": true}`, `{"approved": '
            'false, "reason": "…"}`, or another answer that its `responseSchema` allows.'
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
        raise invalid_request('The `content` of a user message must be a string or a list of parts.') from None
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
