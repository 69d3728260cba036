"""Encode responses as OpenAI's Responses API does: <https://platform.openai.com/docs/api-reference/responses-streaming>.

The mapping of a run to the output items of a response:

- Text is a `message`. A tool result or a thought after it ends the message, which then has the phase `commentary`; the
  last message has the phase `final_answer`.
- Thinking is the summary of a `reasoning` item, if the client asked for summaries.
- A pending approval is an `mcp_approval_request`. It has two fields more than OpenAI's: the `view` of the call, and the
  `path` of subagents that leads to it.
- A call that the client answers is a `function_call`, whose `call_id` is the id of the call. Other tool activity is
  hidden.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, Literal

from pydantic import JsonValue

from pydantic_deep.streaming._events import (
    Approval,
    ApprovalRequiredEvent,
    EndEvent,
    ErrorEvent,
    RetriedEvent,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from pydantic_deep.streaming._frames import render_frames
from pydantic_deep.streaming._json import render_json
from pydantic_deep.streaming._lines import BROKEN_OFF
from pydantic_deep.streaming._protocol import Frame

from ._answer import INTERRUPTED, SEPARATOR, AnswerText, Json
from ._text_pieces import MARK, TextPieces, split_at_mark

_INCOMPLETE: Final = {'length': 'max_output_tokens', 'content_filter': 'content_filter'}
"""OpenAI's reasons for an incomplete response, keyed by our finish reasons."""

_ENDINGS: Final = {'completed': 'completed', 'incomplete': 'incomplete', 'failed': 'failed', 'cancelled': 'failed'}
"""The last event of a response, keyed by its status. OpenAI has no event for a cancelled one."""


class _Position(Enum):
    before_text = auto()
    before_calls = auto()
    last = auto()


_BEFORE_TEXT, _BEFORE_CALLS, _LAST = _Position


@dataclass(kw_only=True)
class _Item(ABC):
    """An output item while its content arrives."""

    id: str
    pieces: TextPieces = field(default_factory=TextPieces)
    status: Literal['in_progress', 'completed', 'incomplete'] = 'in_progress'

    @property
    def text(self) -> str:
        """The content so far."""
        return self.pieces.text

    @abstractmethod
    def empty(self) -> Json:
        """Return the item without its content."""

    @abstractmethod
    def item(self) -> Json:
        """Return the item with its content so far."""


@dataclass(kw_only=True)
class _Message(_Item):
    phase: Literal['commentary', 'final_answer'] | None = None

    def empty(self) -> Json:
        return {'id': self.id, 'type': 'message', 'role': 'assistant', 'status': self.status, 'content': []}

    def item(self) -> Json:
        phase: Json = {} if self.phase is None else {'phase': self.phase}
        return {**self.empty(), 'content': [_text_part(self.text)], **phase}


@dataclass(kw_only=True)
class _Reasoning(_Item):
    def empty(self) -> Json:
        return {'id': self.id, 'type': 'reasoning', 'status': self.status, 'summary': []}

    def item(self) -> Json:
        return {**self.empty(), 'summary': [_summary_part(self.text)]}


@dataclass(kw_only=True)
class _Call(_Item):
    call_id: str
    name: str

    def empty(self) -> Json:
        fields: Json = {'id': self.id, 'type': 'function_call', 'status': self.status}
        return {**fields, 'call_id': self.call_id, 'name': self.name, 'arguments': ''}

    def item(self) -> Json:
        return {**self.empty(), 'arguments': self.text}


class ResponsesEncoder:
    """An `Encoder` of one response. `response` is the whole response so far."""

    def __init__(
        self,
        *,
        id: str | None = None,
        model: str | None = None,
        created_at: int | None = None,
        completed_at: int | None = None,
        tool_calls: bool = False,
        thinking: bool = False,
        fields: Mapping[str, JsonValue] | None = None,
    ) -> None:
        """Create an encoder for one response.

        Args:
            id: The id of the response. Defaults to that of the stream, with the prefix `resp_`.
            model: The name of the model. Defaults to that of the stream.
            created_at: Creation time in seconds since 1970. Defaults to now.
            completed_at: When the response was completed. Defaults to the time when its end is encoded.
            tool_calls: Whether to encode tool calls because the client answers them.
            thinking: Whether to encode the model's thinking as summaries of reasoning.
            fields: Other fields of the response, such as those of the request that OpenAI repeats in it.
        """
        self._completed_at = completed_at
        self._tool_calls = tool_calls
        self._thinking = thinking
        self._answer = AnswerText()
        self._open: _Item | None = None
        self._output: list[JsonValue] = []
        self._number = 0
        self._around_text: tuple[bytes, bytes, bytes] | None = None
        self._has_begun = self._is_running = self._is_over = False
        self._response: Json = {
            'id': id,
            'object': 'response',
            'created_at': int(time.time()) if created_at is None else created_at,
            'status': 'in_progress',
            'completed_at': None,
            'background': False,
            'error': None,
            'frequency_penalty': 0,
            'incomplete_details': None,
            'instructions': None,
            'max_output_tokens': None,
            'max_tool_calls': None,
            'metadata': {},
            'model': model,
            'output': self._output,
            'parallel_tool_calls': True,
            'presence_penalty': 0,
            'previous_response_id': None,
            'prompt_cache_key': None,
            'reasoning': {'effort': None, 'summary': None},
            'safety_identifier': None,
            'service_tier': 'default',
            'store': True,
            'temperature': 1,
            'text': {'format': {'type': 'text'}},
            'tool_choice': 'auto',
            'tools': [],
            'top_logprobs': 0,
            'top_p': 1,
            'truncation': 'disabled',
            'usage': None,
            'user': None,
            **(fields or {}),
        }

    @property
    def response(self) -> Json:
        """The response so far. Text of a message that is not complete is included."""
        return {**self._response, 'output': [*self._output, *([] if self._open is None else [self._open.item()])]}

    @property
    def text(self) -> str:
        """The text of all messages so far."""
        return self._answer.text

    def begin(self, *, is_queued: bool = False) -> Sequence[Frame]:
        """Return the first frames, before the first event of the run.

        Args:
            is_queued: Whether no worker executes the run yet.
        """
        self._has_begun = True
        self._response['id'] = self._response['id'] or 'resp'
        self._response['model'] = self._response['model'] or 'agent'
        if not is_queued:
            return [self._response_frame('created')]
        self._response['status'] = 'queued'
        return [self._response_frame('created'), self._response_frame('queued')]

    def encode(self, event: StreamEvent) -> Sequence[Frame]:
        """Return the frames of an event, none after the end or an error."""
        self._around_text = None
        if self._is_over:
            return []
        match event:
            case StartEvent():
                return self._start(event)
            case TextEvent(path=[]):
                self._answer.add(event.text)
                return self._write_text(event.text)
            case ThinkingEvent(path=[]) if self._thinking:
                return self._write_thought(event)
            case ToolResultEvent(path=[]):
                self._answer.start_paragraph()
                return self._close(_BEFORE_TEXT)
            case RetriedEvent(path=[], void_text=void) if void:
                return self._write_text(self._answer.mark_void())
            case ToolCallEvent(path=[]) if self._tool_calls:
                return [*self._run_if_needed(), *self._close(_BEFORE_CALLS), *self._call_frames(event)]
            case ApprovalRequiredEvent():
                return [
                    *self._run_if_needed(),
                    *self._close(_BEFORE_CALLS),
                    *(frame for approval in event.approvals for frame in self._approval_frames(approval)),
                ]
            case UsageEvent():
                self._response['usage'] = _usage(event)
                return []
            case ErrorEvent():
                return self._fail(event)
            case EndEvent():
                return self._finish(event)
            case _:
                return []

    def render_text(self, text: bytes) -> bytes:
        """Return the rendered frames of a `TextEvent` of the agent itself, whose text is given as JSON.

        A text after a text is inserted into a frame that was rendered once, with its own number.
        """
        message = self._open
        if self._around_text is None or message is None:
            frames = self.encode(TextEvent(text=json.loads(text)))
            self._around_text = self._split_text_frame()
            return render_frames(frames)
        self._answer.add_json(text)
        message.pieces.append_json(text)
        before, after_number, end = self._around_text
        number, self._number = self._number, self._number + 1
        return b'%b%d%b%b%b' % (before, number, after_number, text, end)

    def finish(self) -> Sequence[Frame]:
        """Return the frames that close the stream: none after an end, and an `error` if the stream was cut.

        A cut stream is no failed response: the run may continue, and can be retrieved.
        """
        if self._is_over:
            return []
        self._is_over = True
        return [self._frame('error', code=BROKEN_OFF.kind, message=BROKEN_OFF.message, param=None)]

    def _start(self, start: StartEvent) -> list[Frame]:
        self._response['id'] = self._response['id'] or f'resp_{start.id}'
        self._response['model'] = self._response['model'] or start.model
        return self._run_if_needed()

    def _run_if_needed(self) -> list[Frame]:
        if self._is_running:
            return []
        frames = [] if self._has_begun else [*self.begin()]
        self._is_running = True
        self._response['status'] = 'in_progress'
        return [*frames, self._response_frame('in_progress')]

    def _write_text(self, text: str) -> list[Frame]:
        frames, message = self._run_if_needed(), self._open
        if not isinstance(message, _Message):
            frames += self._close(_BEFORE_TEXT)
            message = _Message(id=self._next_id('msg'))
            frames += self._open_item(message)
            frames.append(self._item_frame(message, 'content_part.added', content_index=0, part=_text_part('')))
        return [*frames, self._text_delta(message, text)]

    def _text_delta(self, message: _Message, text: str) -> Frame:
        message.pieces.append(text)
        return self._text_frame(message, text)

    def _text_frame(self, message: _Item, text: str) -> Frame:
        return self._item_frame(message, 'output_text.delta', content_index=0, delta=text, logprobs=[])

    def _split_text_frame(self) -> tuple[bytes, bytes, bytes] | None:
        """Return the bytes of the next text's frame before its number, between number and text, and after the text."""
        if self._is_over or self._open is None:
            return None
        number = self._number
        before, end = split_at_mark([self._text_frame(self._open, MARK)])
        self._number = number
        start, _, after_number = before.partition(b'%d' % number)
        return start, after_number, end

    def _write_thought(self, event: ThinkingEvent) -> list[Frame]:
        frames, thought = self._run_if_needed(), self._open
        if event.text:
            if not isinstance(thought, _Reasoning):
                frames += self._close(_BEFORE_TEXT)
                thought = _Reasoning(id=self._next_id('rs'))
                frames += self._open_item(thought)
                part = _summary_part('')
                frames.append(self._item_frame(thought, 'reasoning_summary_part.added', summary_index=0, part=part))
            thought.pieces.append(event.text)
            delta = event.text
            frames.append(self._item_frame(thought, 'reasoning_summary_text.delta', summary_index=0, delta=delta))
        if event.signature is not None and isinstance(thought, _Reasoning):
            frames += self._close()
        return frames

    def _open_item(self, item: _Item) -> list[Frame]:
        self._open = item
        return [self._frame('response.output_item.added', output_index=len(self._output), item=item.empty())]

    def _close(self, position: _Position = _LAST, *, is_cut: bool = False) -> list[Frame]:
        """Complete the open item, if there is one.

        Args:
            position: What follows it. Text is separated from more text, since clients join the texts of all messages.
            is_cut: Whether the run ended in the middle of the item.
        """
        item = self._open
        if item is None:
            return []
        frames: list[Frame] = []
        if isinstance(item, _Message):
            item.phase = 'final_answer' if position is _LAST else 'commentary'
            if position is _BEFORE_TEXT:
                frames.append(self._text_delta(item, SEPARATOR))
            frames += [
                self._item_frame(item, 'output_text.done', content_index=0, text=item.text, logprobs=[]),
                self._item_frame(item, 'content_part.done', content_index=0, part=_text_part(item.text)),
            ]
        elif isinstance(item, _Reasoning):
            frames += [
                self._item_frame(item, 'reasoning_summary_text.done', summary_index=0, text=item.text),
                self._item_frame(item, 'reasoning_summary_part.done', summary_index=0, part=_summary_part(item.text)),
            ]
        item.status = 'incomplete' if is_cut else 'completed'
        frames.append(self._frame('response.output_item.done', output_index=len(self._output), item=item.item()))
        self._output.append(item.item())
        self._open = None
        return frames

    def _call_frames(self, call: ToolCallEvent) -> list[Frame]:
        item = _Call(id=self._next_id('fc'), call_id=call.id, name=call.name)
        frames = self._open_item(item)
        item.pieces.append(call.args)
        return [
            *frames,
            self._item_frame(item, 'function_call_arguments.delta', delta=call.args),
            self._item_frame(item, 'function_call_arguments.done', name=call.name, arguments=call.args),
            *self._close(),
        ]

    def _approval_frames(self, approval: Approval) -> list[Frame]:
        item: Json = {
            'id': f'mcpr_{approval.id}',
            'type': 'mcp_approval_request',
            'server_label': self._response['model'],
            'name': approval.tool,
            'arguments': render_json(approval.args),
            'path': [*approval.path],
            'view': approval.view.model_dump(mode='json'),
        }
        index = len(self._output)
        self._output.append(item)
        return [
            self._frame('response.output_item.added', output_index=index, item=item),
            self._frame('response.output_item.done', output_index=index, item=item),
        ]

    def _fail(self, error: ErrorEvent) -> list[Frame]:
        self._response['error'] = _error(error)
        return self._end('cancelled' if error.kind == 'cancelled' else 'failed')

    def _finish(self, end: EndEvent) -> list[Frame]:
        if end.finish_reason == 'error' or end.status in ('failed', 'interrupted'):
            return self._fail(INTERRUPTED)
        frames: list[Frame] = []
        rest = self._answer.rest_of(end.output)
        if rest:
            self._answer.add(rest)
            frames += self._write_text(rest)
        reason = _INCOMPLETE.get(end.finish_reason)
        if reason is not None:
            self._response['incomplete_details'] = {'reason': reason}
            return [*frames, *self._end('incomplete')]
        return [*frames, *self._end('completed')]

    def _end(self, status: str) -> list[Frame]:
        frames = [*self._run_if_needed(), *self._close(is_cut=status != 'completed')]
        self._is_over = True
        self._response['status'] = status
        if status == 'cancelled':
            self._response['error'] = None
        if status == 'completed':
            self._response['completed_at'] = int(time.time()) if self._completed_at is None else self._completed_at
        return [*frames, self._response_frame(_ENDINGS[status])]

    def _next_id(self, prefix: str) -> str:
        """Return the id of the next item, which contains the id of the response."""
        return f'{prefix}_{str(self._response["id"]).removeprefix("resp_")}_{len(self._output)}'

    def _item_frame(self, item: _Item, type: str, **values: JsonValue) -> Frame:
        return self._frame(f'response.{type}', item_id=item.id, output_index=len(self._output), **values)

    def _response_frame(self, type: str) -> Frame:
        return self._frame(f'response.{type}', response=self._response)

    def _frame(self, type: str, **values: JsonValue) -> Frame:
        data: Json = {'type': type, 'sequence_number': self._number, **values}
        self._number += 1
        return Frame(event=type, data=render_json(data))


def openai_response(
    events: Iterable[StreamEvent],
    *,
    id: str | None = None,
    model: str | None = None,
    created_at: int | None = None,
    completed_at: int | None = None,
    tool_calls: bool = False,
    thinking: bool = False,
    fields: Mapping[str, JsonValue] | None = None,
) -> Json:
    """Return a response that is not streamed. Without an end event, it is in progress.

    Args:
        events: The events so far. Text that became void is omitted.
        id: As in `ResponsesEncoder`.
        model: As in `ResponsesEncoder`.
        created_at: As in `ResponsesEncoder`.
        completed_at: As in `ResponsesEncoder`.
        tool_calls: As in `ResponsesEncoder`.
        thinking: As in `ResponsesEncoder`.
        fields: As in `ResponsesEncoder`.
    """
    encoder = ResponsesEncoder(
        id=id,
        model=model,
        created_at=created_at,
        completed_at=completed_at,
        tool_calls=tool_calls,
        thinking=thinking,
        fields=fields,
    )
    for event in _without_void(events):
        encoder.encode(event)
    return encoder.response


def _without_void(events: Iterable[StreamEvent]) -> list[StreamEvent]:
    """Remove the text of failed attempts."""
    kept: list[StreamEvent] = []
    for event in events:
        if not isinstance(event, RetriedEvent) or event.path:
            kept.append(event)
            continue
        left = len(event.void_text)
        for index in reversed(range(len(kept))):
            said = kept[index]
            if left and isinstance(said, TextEvent) and not said.path:
                cut = min(left, len(said.text))
                left -= cut
                kept[index] = replace(said, text=said.text[: len(said.text) - cut])
    return [event for event in kept if not isinstance(event, TextEvent) or event.text]


def _text_part(text: str) -> Json:
    return {'type': 'output_text', 'text': text, 'annotations': [], 'logprobs': []}


def _summary_part(text: str) -> Json:
    return {'type': 'summary_text', 'text': text}


def _error(error: ErrorEvent) -> Json:
    code = 'rate_limit_exceeded' if error.status == 429 else 'server_error'
    return {'code': code, 'message': error.message, 'type': error.kind}


def _usage(usage: UsageEvent) -> Json:
    return {
        'input_tokens': usage.input_tokens,
        'input_tokens_details': {
            'cached_tokens': usage.cache_read_tokens,
            'cache_write_tokens': usage.cache_write_tokens,
        },
        'output_tokens': usage.output_tokens,
        'output_tokens_details': {'reasoning_tokens': 0},
        'total_tokens': usage.input_tokens + usage.output_tokens,
    }
