"""Vercel AI: parses its requests, and renders runs as UI message streams (ai-sdk.dev, "Stream Protocols").

Only new messages, answers to approvals, and results of pending external calls are read from a request, not its history.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool
from pydantic.alias_generators import to_camel
from pydantic_ai import AgentRunResultEvent
from pydantic_ai.ui.vercel_ai import VercelAIEventStream
from pydantic_ai.ui.vercel_ai.response_types import (
    BaseChunk,
    DataChunk,
    FinishChunk,
    FinishReason,
    ToolApprovalRequestChunk,
    ToolInputAvailableChunk,
    ToolOutputAvailableChunk,
    ToolOutputDeniedChunk,
    ToolOutputErrorChunk,
)

from pydantic_deep.approvals import Approve, Decision, Deny
from pydantic_deep.server._turn_task import find_first_run
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.compat._client_tools import ClientResult
from pydantic_deep.server.compat._dialogue import (
    Content,
    Dialogue,
    DialogueMessage,
    build_dialogue,
    count_answered,
    file_from_url,
)
from pydantic_deep.server.runs._renderings import Event, Rendering
from pydantic_deep.streaming import Approval, ApprovalRequiredEvent, EndEvent, StreamEvent, TodosEvent, ToolResultEvent
from pydantic_deep.streaming import FinishReason as EventFinishReason

from ._extra_events import (
    PASSING_EVENTS,
    ExtraEvents,
    LoggedEvent,
    PublicError,
    approval_details,
    call_id_of,
    event_fields,
)
from ._run_stream import RunStream, shortened_id
from ._turns import Place

VERCEL: Final = 'vercel'
"""The name of the rendering."""

HEADER: Final = {'x-vercel-ai-ui-message-stream': 'v1'}
"""The header by which clients recognize the protocol."""

_FINISH_REASONS: Final[Mapping[EventFinishReason, FinishReason]] = {
    'stop': 'stop',
    'length': 'length',
    'content_filter': 'content-filter',
    'tool_call': 'tool-calls',
    'error': 'error',
}

_SDK_VERSION: Final = 6
"""The first version of the AI SDK with approvals. Version 7 uses the same protocol."""


class _Lenient(BaseModel):
    """Accepts camel case names and ignores unknown fields, which newer clients send."""

    model_config = ConfigDict(extra='ignore', alias_generator=to_camel)


class VercelApproval(_Lenient):
    """A decision on an approval."""

    id: str
    """The id of the approval."""
    approved: StrictBool | None = None
    """Whether the call is approved; null while there is no decision."""
    reason: str | None = None
    """The reason for the decision."""


class VercelPart(_Lenient):
    """A part of a message."""

    type: str
    """The type of the part. `text` and `file` are read from user messages, tool parts for decisions."""
    text: str = ''
    """The text of the part."""
    url: str = ''
    """For a file: a `data:` URL. Other URLs are rejected."""
    state: str | None = None
    """For a call: its state."""
    approval: VercelApproval | None = None
    """For a call: the decision."""
    tool_call_id: str | None = None
    """For a call: its id."""
    output: JsonValue = None
    """For a call in the state `output-available`: the result."""
    error_text: str = ''
    """For a call in the state `output-error`: why it failed."""


class VercelMessage(_Lenient):
    """A message of the dialogue."""

    role: Literal['system', 'user', 'assistant']
    """The author of the message."""
    id: str = ''
    """The id of the message. That of an answer is the id of its first run."""
    parts: list[VercelPart]
    """The parts of the message."""


class VercelRequest(_Lenient):
    """The request of `DefaultChatTransport`. Other fields are ignored: the server has the history."""

    id: Annotated[str, Field(min_length=1, max_length=200)]
    """The client's own id of the chat."""
    messages: list[VercelMessage]
    """The dialogue. User messages after the last answer are new; without any, the last message contains decisions."""
    trigger: Literal['submit-message', 'regenerate-message'] = 'submit-message'
    """The trigger of the request. Another answer is on a branch: the earlier one is preserved."""
    message_id: str | None = None
    """The message that the last one replaces, if a user edited it. The turn is then on a branch."""


def parse_vercel_request(body: VercelRequest) -> Dialogue:
    """Parse the new prompt or the decisions of a request.

    Raises:
        ServerError: The request has an unsupported option, or neither a prompt nor a decision.
    """
    answered = count_answered(message.role for message in body.messages)
    new = [message for message in body.messages[answered:] if message.role == 'user']
    last = body.messages[-1:]
    results = [result for message in last if message.role == 'assistant' for result in _results(message)]
    dialogue = build_dialogue(
        system=(),
        messages=[DialogueMessage(role='user', content=_content(message)) for message in new],
        decisions={id: decision for message in last for id, decision in _decisions(message)},
        model_settings={},
        continues=not results,
    )
    return replace(dialogue, results=results)


def place_in_vercel(body: VercelRequest) -> Place:
    """Return where the new messages of a request continue its chat: before an edited one, or else at the end."""
    answered = count_answered(message.role for message in body.messages)
    is_edited = body.trigger == 'regenerate-message' or (
        body.messages[answered:] != [] and body.message_id == body.messages[-1].id
    )
    return Place(answer_id=body.messages[answered - 1].id if is_edited and answered else None, is_edited=is_edited)


def render_vercel(access: Access, agent: str, *, continues_answer: bool = False) -> Rendering:
    """Return a rendering of a run as a UI message stream, one frame per chunk.

    Args:
        access: The access of the caller.
        agent: The name of the agent.
        continues_answer: Whether the client continues its last answer, whose id remains. By default, the answer has the id
            of the first run of its turn.
    """
    served = access.agent(agent)

    async def render(id: str, events: AsyncIterator[Event]) -> AsyncGenerator[bytes]:
        answer_id = None if continues_answer else await find_first_run(access.state, id)
        stream = _VercelStream(agent=served, id=id, sdk_version=_SDK_VERSION, server_message_id=answer_id)
        async for chunk in stream.transform_stream(events):
            yield stream.encode_event(chunk).encode()

    return render


@dataclass(kw_only=True)
class _VercelStream(RunStream, VercelAIEventStream[Any, Any]):
    """pydantic-ai's stream with extra events and pending calls of subagents, and without secrets in errors."""

    extra_events: ExtraEvents = field(default_factory=ExtraEvents)
    finish_reason: FinishReason = None
    """Why the answer ended, from the log of a run."""

    async def handle_event(self, event: Event) -> AsyncIterator[BaseChunk]:
        async for chunk in super().handle_event(event):
            yield chunk
        if isinstance(event, LoggedEvent) and isinstance(event.event, EndEvent):
            self.finish_reason = _FINISH_REASONS[event.event.finish_reason]
        for extra in self.extra_events.translate(event):
            for chunk in await self._chunks_of(extra):
                yield chunk

    async def handle_run_result(self, event: AgentRunResultEvent[Any]) -> AsyncIterator[BaseChunk]:
        async for chunk in super().handle_run_result(event):
            if not isinstance(chunk, ToolApprovalRequestChunk):  # it refers to the delegation, not to the pending call
                yield chunk

    async def after_stream(self) -> AsyncIterator[BaseChunk]:
        async for chunk in super().after_stream():
            if isinstance(chunk, FinishChunk) and self.finish_reason is not None:
                chunk = chunk.model_copy(update={'finish_reason': self.finish_reason})
            yield chunk

    async def on_error(self, error: Exception) -> AsyncIterator[BaseChunk]:
        async for chunk in super().on_error(PublicError.of(error)):
            yield chunk

    async def _chunks_of(self, event: StreamEvent) -> list[BaseChunk]:
        match event:
            case ApprovalRequiredEvent():
                return [chunk for approval in event.approvals for chunk in _chunks_of_approval(approval)]
            case ToolResultEvent():
                id = (await self.calls()).subagent_calls.get(shortened_id(event.id))
                return [] if id is None else [_chunk_of_result(id, event)]
            case _:
                is_plan, is_passing = isinstance(event, TodosEvent), isinstance(event, PASSING_EVENTS)
                return [
                    DataChunk(
                        type=f'data-{event.type}',
                        id='todos' if is_plan else None,  # a part with an id replaces the previous one
                        data=event_fields(event),
                        transient=is_passing or None,
                    )
                ]


def _chunks_of_approval(approval: Approval) -> list[BaseChunk]:
    call_id = call_id_of(approval)
    chunks: list[BaseChunk] = [DataChunk(type='data-approval', id=approval.id, data=approval_details(approval))]
    if approval.path:  # a call of a subagent, which is not in the stream yet
        chunks.append(ToolInputAvailableChunk(tool_call_id=call_id, tool_name=approval.tool, input=approval.args))
    elif 'approve' not in approval.decisions:  # the client runs the tool, and sends the result
        return chunks
    return [*chunks, ToolApprovalRequestChunk(approval_id=approval.id, tool_call_id=call_id)]


def _chunk_of_result(id: str, result: ToolResultEvent) -> BaseChunk:
    match result.outcome:
        case 'denied':
            return ToolOutputDeniedChunk(tool_call_id=id)
        case 'success' | 'interrupted':
            return ToolOutputAvailableChunk(tool_call_id=id, output=result.content)
        case _:
            return ToolOutputErrorChunk(tool_call_id=id, error_text=result.content)


def _decisions(message: VercelMessage) -> list[tuple[str, Decision]]:
    """Return the decisions since the last answer. Parts of earlier decisions have another state."""
    decisions: list[tuple[str, Decision]] = []
    for part in message.parts if message.role == 'assistant' else ():
        approval = part.approval
        if part.state == 'approval-responded' and approval is not None and approval.approved is not None:
            denied = Deny(approval.reason) if approval.reason else Deny()
            decisions.append((approval.id, Approve() if approval.approved else denied))
    return decisions


def _results(message: VercelMessage) -> list[ClientResult]:
    """Return the results of all calls of an answer. Only those of pending external calls are used."""
    return [
        ClientResult(
            id=part.tool_call_id, name='', content=part.error_text if is_error else part.output, is_error=is_error
        )
        for part in message.parts
        if (is_error := part.state == 'output-error') or part.state == 'output-available'
    ]


def _content(message: VercelMessage) -> tuple[Content, ...]:
    pieces: list[Content] = []
    for part in message.parts:
        if part.type == 'text' and part.text:
            pieces.append(part.text)
        elif part.type == 'file':
            pieces.append(file_from_url(part.url))
    return tuple(pieces)
