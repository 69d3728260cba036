"""Encode completions as OpenAI's API does: <https://platform.openai.com/docs/api-reference/chat-streaming>."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from pydantic_deep.streaming._events import ErrorEvent, FinishReason, StreamEvent, ThinkingEvent, UsageEvent
from pydantic_deep.streaming._json import render_json
from pydantic_deep.streaming._protocol import Frame

from ._answer import AnswerEncoder, Call, Json, read_answer

FINISH_REASONS: Mapping[FinishReason, str] = {
    'stop': 'stop',
    'length': 'length',
    'content_filter': 'content_filter',
    'tool_call': 'tool_calls',
}
"""OpenAI's finish reasons, keyed by ours. An error has none."""


class OpenaiEncoder(AnswerEncoder):
    """Encodes a stream as `chat.completion.chunk`s. After an error, `[DONE]` is omitted: the official clients raise."""

    def __init__(
        self,
        *,
        model: str | None = None,
        id: str | None = None,
        created: int | None = None,
        include_usage: bool = False,
        tool_calls: bool = False,
        thinking: bool = False,
    ) -> None:
        """Create an encoder for one stream.

        Args:
            model: The name of the model. Defaults to that of the stream.
            id: The id of the answer. Defaults to that of the stream.
            created: Creation time in seconds since 1970. Defaults to now.
            include_usage: Whether the client asked for usage (`stream_options`).
            tool_calls: Whether to encode tool calls because the client answers them.
            thinking: Whether to encode thinking as `reasoning_content`, an extension of many servers.
        """
        super().__init__(model=model, id=id, tool_calls=tool_calls, thinking=thinking)
        self._created = int(time.time()) if created is None else created
        self._include_usage = include_usage
        self._call_count = 0

    def _start_frames(self) -> list[Frame]:
        return [self._chunk({'role': 'assistant', 'content': ''})]

    def _text_frames(self, text: str) -> list[Frame]:
        return [self._chunk({'content': text})]

    def _thinking_frames(self, event: ThinkingEvent) -> list[Frame]:
        return [self._chunk({'reasoning_content': event.text})] if event.text else []

    def _call_frames(self, call: Call) -> list[Frame]:
        tool_call: Json = {'index': self._call_count, **_tool_call(call)}
        self._call_count += 1
        return [self._chunk({'tool_calls': [tool_call]})]

    def _error_frames(self, error: ErrorEvent) -> list[Frame]:
        return [Frame(data=render_json(openai_error(error)))]

    def _end_frames(self, reason: FinishReason) -> list[Frame]:
        frames = [self._chunk({}, finish_reason=FINISH_REASONS[reason])]
        if self._include_usage:
            frames.append(self._frame([], usage=_usage(self._usage)))
        return frames

    def _close_frames(self) -> list[Frame]:
        return [Frame(data='[DONE]')]

    def _chunk(self, delta: Json, finish_reason: str | None = None) -> Frame:
        return self._frame([{'index': 0, 'delta': delta, 'logprobs': None, 'finish_reason': finish_reason}])

    def _frame(self, choices: list[JsonValue], usage: Json | None = None) -> Frame:
        chunk = _envelope('chat.completion.chunk', self._id, self._model, self._created)
        chunk['choices'] = choices
        if self._include_usage:
            chunk['usage'] = usage
        return Frame(data=render_json(chunk))


def openai_completion(
    events: Iterable[StreamEvent],
    *,
    model: str | None = None,
    id: str | None = None,
    created: int | None = None,
    tool_calls: bool = False,
    thinking: bool = False,
) -> Json:
    """Return the body of a non-streamed response, or of an error if the stream failed.

    Args:
        events: All events of the stream.
        model: The name of the model. Defaults to that of the stream.
        id: The id of the answer. Defaults to that of the stream.
        created: Creation time in seconds since 1970. Defaults to now.
        tool_calls: Whether to include tool calls because the client answers them.
        thinking: Whether to include thinking as `reasoning_content`.
    """
    answer = read_answer(events, tool_calls=tool_calls)
    if answer.error is not None:
        return openai_error(answer.error)
    message: Json = {'role': 'assistant', 'content': answer.text or None, 'refusal': None}
    if thinking and answer.thoughts:
        message['reasoning_content'] = ''.join(event.text for event in answer.thoughts)
    if answer.calls:
        message['tool_calls'] = [_tool_call(call) for call in answer.calls]
    created = int(time.time()) if created is None else created
    body = _envelope('chat.completion', id or answer.id, model or answer.model, created)
    reason = FINISH_REASONS[answer.finish_reason]
    body['choices'] = [{'index': 0, 'message': message, 'logprobs': None, 'finish_reason': reason}]
    body['usage'] = _usage(answer.usage)
    return body


def openai_error(error: ErrorEvent) -> Json:
    """Return the body of an error, streamed or not."""
    status = error.status or 500
    kind = 'rate_limit_error' if status == 429 else 'invalid_request_error' if status < 500 else 'server_error'
    return {'error': {'message': error.message, 'type': kind, 'param': None, 'code': error.kind}}


def _envelope(object: str, id: str | None, model: str | None, created: int) -> Json:
    return {'id': id or 'chatcmpl', 'object': object, 'created': created, 'model': model or 'agent'}


def _tool_call(call: Call) -> Json:
    return {'id': call.id, 'type': 'function', 'function': {'name': call.name, 'arguments': call.args}}


def _usage(usage: UsageEvent) -> Json:
    return {
        'prompt_tokens': usage.input_tokens,
        'completion_tokens': usage.output_tokens,
        'total_tokens': usage.input_tokens + usage.output_tokens,
        'prompt_tokens_details': {
            'cached_tokens': usage.cache_read_tokens,
            'cache_write_tokens': usage.cache_write_tokens,
        },
    }
