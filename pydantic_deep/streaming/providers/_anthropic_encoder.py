"""Encode messages in the format of Anthropic's API: <https://docs.anthropic.com/en/api/messages-streaming>."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic_deep.streaming._events import ErrorEvent, FinishReason, StreamEvent, ThinkingEvent, UsageEvent
from pydantic_deep.streaming._json import render_json
from pydantic_deep.streaming._protocol import Frame

from ._answer import AnswerEncoder, Call, Json, read_answer

STOP_REASONS: Mapping[FinishReason, str] = {
    'stop': 'end_turn',
    'length': 'max_tokens',
    'content_filter': 'refusal',
    'tool_call': 'tool_use',
}
"""Anthropic's stop reasons, keyed by ours. An error has none."""

_ERROR_TYPES: Mapping[int, str] = {429: 'rate_limit_error', 503: 'overloaded_error', 504: 'timeout_error'}


class AnthropicEncoder(AnswerEncoder):
    """Encodes a stream as the events of a message.

    After an error, `message_stop` is omitted, so that the official clients raise. Thinking is encoded only with its
    signature, because Anthropic does not accept it back without one.
    """

    def __init__(
        self, *, model: str | None = None, id: str | None = None, tool_calls: bool = False, thinking: bool = False
    ) -> None:
        """Create an encoder for one stream.

        Args:
            model: The name of the model. Defaults to that of the stream.
            id: The id of the message. Defaults to that of the stream.
            tool_calls: Whether to encode tool calls because the client answers them.
            thinking: Whether to encode signed thinking.
        """
        super().__init__(model=model, id=id, tool_calls=tool_calls, thinking=thinking)
        self._index = -1
        self._is_in_text = False
        self._thought = ''

    def _start_frames(self) -> list[Frame]:
        message = _envelope(self._id, self._model)
        message |= {'content': [], 'stop_reason': None, 'stop_sequence': None, 'usage': _usage(self._usage)}
        return [_frame({'type': 'message_start', 'message': message})]

    def _text_frames(self, text: str) -> list[Frame]:
        self._thought = ''
        frames = [] if self._is_in_text else self._open({'type': 'text', 'text': ''})
        self._is_in_text = True
        return [*frames, self._delta({'type': 'text_delta', 'text': text})]

    def _thinking_frames(self, event: ThinkingEvent) -> list[Frame]:
        self._thought += event.text
        if event.signature is None:
            return []
        thought, self._thought = self._thought, ''
        return [
            *self._open({'type': 'thinking', 'thinking': '', 'signature': ''}),
            self._delta({'type': 'thinking_delta', 'thinking': thought}),
            self._delta({'type': 'signature_delta', 'signature': event.signature}),
            *self._close_block(),
        ]

    def _call_frames(self, call: Call) -> list[Frame]:
        return [
            *self._open(_tool_use(call, {})),
            self._delta({'type': 'input_json_delta', 'partial_json': call.args}),
            *self._close_block(),
        ]

    def _error_frames(self, error: ErrorEvent) -> list[Frame]:
        return [_frame(anthropic_error(error))]

    def _end_frames(self, reason: FinishReason) -> list[Frame]:
        delta: Json = {'stop_reason': STOP_REASONS[reason], 'stop_sequence': None}
        return [
            *self._close_text(),
            _frame({'type': 'message_delta', 'delta': delta, 'usage': _usage(self._usage)}),
            _frame({'type': 'message_stop'}),
        ]

    def _open(self, block: Json) -> list[Frame]:
        """Open a block, after closing the open text block, if any."""
        before = self._close_text()
        self._index += 1
        return [*before, _frame({'type': 'content_block_start', 'index': self._index, 'content_block': block})]

    def _delta(self, delta: Json) -> Frame:
        return _frame({'type': 'content_block_delta', 'index': self._index, 'delta': delta})

    def _close_block(self) -> list[Frame]:
        return [_frame({'type': 'content_block_stop', 'index': self._index})]

    def _close_text(self) -> list[Frame]:
        was_in_text, self._is_in_text = self._is_in_text, False
        return self._close_block() if was_in_text else []


def anthropic_message(
    events: Iterable[StreamEvent],
    *,
    model: str | None = None,
    id: str | None = None,
    tool_calls: bool = False,
    thinking: bool = False,
) -> Json:
    """Return the body of a non-streamed response, or of an error if the stream failed.

    Args:
        events: All events of the stream.
        model: The name of the model. Defaults to that of the stream.
        id: The id of the message. Defaults to that of the stream.
        tool_calls: Whether to include tool calls because the client answers them.
        thinking: Whether to include signed thinking.
    """
    answer = read_answer(events, tool_calls=tool_calls)
    if answer.error is not None:
        return anthropic_error(answer.error)
    content = [_thought(event) for event in answer.thoughts if event.signature is not None] if thinking else []
    if answer.text:
        content.append({'type': 'text', 'text': answer.text})
    content += [_tool_use(call, call.args_object) for call in answer.calls]
    body = _envelope(id or answer.id, model or answer.model)
    body |= {'content': [*content], 'stop_reason': STOP_REASONS[answer.finish_reason], 'stop_sequence': None}
    body['usage'] = _usage(answer.usage)
    return body


def anthropic_error(error: ErrorEvent) -> Json:
    """Return the body of an error, streamed or not."""
    status = error.status or 500
    kind = _ERROR_TYPES.get(status, 'invalid_request_error' if status < 500 else 'api_error')
    return {'type': 'error', 'error': {'type': kind, 'message': error.message}}


def _envelope(id: str | None, model: str | None) -> Json:
    return {'id': id or 'msg', 'type': 'message', 'role': 'assistant', 'model': model or 'agent'}


def _tool_use(call: Call, args: Json) -> Json:
    return {'type': 'tool_use', 'id': call.id, 'name': call.name, 'input': args}


def _thought(event: ThinkingEvent) -> Json:
    return {'type': 'thinking', 'thinking': event.text, 'signature': event.signature}


def _frame(event: Json) -> Frame:
    return Frame(event=str(event['type']), data=render_json(event))


def _usage(usage: UsageEvent) -> Json:
    """Return usage as Anthropic counts it: cached tokens are not input tokens."""
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return {
        'input_tokens': max(usage.input_tokens - cached, 0),
        'output_tokens': usage.output_tokens,
        'cache_read_input_tokens': usage.cache_read_tokens,
        'cache_creation_input_tokens': usage.cache_write_tokens,
    }
