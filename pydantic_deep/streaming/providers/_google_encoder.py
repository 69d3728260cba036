"""Encode responses for Google's API: <https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse>."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic_deep.streaming._events import ErrorEvent, FinishReason, StreamEvent, ThinkingEvent, UsageEvent
from pydantic_deep.streaming._json import render_json
from pydantic_deep.streaming._protocol import Frame

from ._answer import AnswerEncoder, Call, Json, read_answer

FINISH_REASONS: Mapping[FinishReason, str] = {
    'stop': 'STOP',
    'length': 'MAX_TOKENS',
    'content_filter': 'SAFETY',
    'tool_call': 'STOP',
}
"""Google's finish reasons, keyed by ours. Calls end with a normal `STOP` there. An error has none."""

_STATUSES: Mapping[int, str] = {429: 'RESOURCE_EXHAUSTED', 503: 'UNAVAILABLE', 504: 'DEADLINE_EXCEEDED'}


class GoogleEncoder(AnswerEncoder):
    """Encodes a stream as chunks of `streamGenerateContent?alt=sse`.

    After an error, the finish reason is omitted: the official clients raise `APIError`. Thinking is encoded as parts
    with `thought`.
    """

    def _start_frames(self) -> list[Frame]:
        return []

    def _text_frames(self, text: str) -> list[Frame]:
        return [self._chunk({'text': text})]

    def _thinking_frames(self, event: ThinkingEvent) -> list[Frame]:
        return [self._chunk(_thought(event))]

    def _call_frames(self, call: Call) -> list[Frame]:
        return [self._chunk(_function_call(call))]

    def _error_frames(self, error: ErrorEvent) -> list[Frame]:
        return [Frame(data=render_json(google_error(error)))]

    def _end_frames(self, reason: FinishReason) -> list[Frame]:
        candidate = _candidate([{'text': ''}]) | {'finishReason': FINISH_REASONS[reason]}
        return [self._frame(candidate)]

    def _chunk(self, part: Json) -> Frame:
        return self._frame(_candidate([part]))

    def _frame(self, candidate: Json) -> Frame:
        return Frame(data=render_json(_body(candidate, self._usage, self._id, self._model)))


def google_response(
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
        id: The id of the answer. Defaults to that of the stream.
        tool_calls: Whether to include tool calls because the client answers them.
        thinking: Whether to include thinking, as parts with `thought`.
    """
    answer = read_answer(events, tool_calls=tool_calls)
    if answer.error is not None:
        return google_error(answer.error)
    parts = [_thought(event) for event in answer.thoughts] if thinking else []
    if answer.text:
        parts.append({'text': answer.text})
    parts += [_function_call(call) for call in answer.calls]
    candidate = _candidate(parts) | {'finishReason': FINISH_REASONS[answer.finish_reason]}
    return _body(candidate, answer.usage, id or answer.id, model or answer.model)


def google_error(error: ErrorEvent) -> Json:
    """Return the body of an error, streamed or not. In a stream, the official clients recognize it by its first key."""
    status = error.status or 500
    name = _STATUSES.get(status, 'INVALID_ARGUMENT' if status < 500 else 'INTERNAL')
    return {'error': {'code': status, 'message': error.message, 'status': name}}


def _candidate(parts: list[Json]) -> Json:
    return {'content': {'role': 'model', 'parts': [*parts]}, 'index': 0}


def _function_call(call: Call) -> Json:
    return {'functionCall': {'id': call.id, 'name': call.name, 'args': call.args_object}}


def _thought(event: ThinkingEvent) -> Json:
    signature: Json = {} if event.signature is None else {'thoughtSignature': event.signature}
    return {'text': event.text, 'thought': True, **signature}


def _body(candidate: Json, usage: UsageEvent, id: str | None, model: str | None) -> Json:
    return {
        'candidates': [candidate],
        'usageMetadata': {
            'promptTokenCount': usage.input_tokens,
            'candidatesTokenCount': usage.output_tokens,
            'totalTokenCount': usage.input_tokens + usage.output_tokens,
            'cachedContentTokenCount': usage.cache_read_tokens,
        },
        'modelVersion': model or 'agent',
        'responseId': id or 'response',
    }
