"""`OpenaiDecoder`: decodes streams of `/v1/chat/completions`, from OpenAI and compatible servers.

The format: https://platform.openai.com/docs/api-reference/chat-streaming
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from pydantic_deep.streaming._events import FinishReason, StreamEvent, TextEvent, ThinkingEvent, UsageEvent
from pydantic_deep.streaming._protocol import Frame

from ._call_pieces import MAX_CALL_CHARS
from ._json_decoder import JsonDecoder, JsonObject, count_of, index_of, object_of, objects_of, parse_object, text_of

_REASONS: Final[dict[str, FinishReason]] = {
    'stop': 'stop',
    'length': 'length',
    'content_filter': 'content_filter',
    'tool_calls': 'tool_call',
    'function_call': 'tool_call',
}

_LEGACY = -1
"""Placeholder index of the single legacy `function_call`, which predates `tool_calls`."""


class OpenaiDecoder(JsonDecoder):
    """Decodes chat completion chunks. Only choice 0 is decoded.

    The `finish_reason` ends the answer. Usage may follow it, and `[DONE]`, which not all servers send. An unknown
    reason becomes `error`, and a refusal becomes text with the reason `content_filter`. Some servers send several calls
    with the same index, or with none: different ids make them different calls.
    """

    def __init__(self, *, max_call_chars: int = MAX_CALL_CHARS) -> None:
        """Create a decoder for one stream.

        Args:
            max_call_chars: Maximum number of characters in all tool calls of the answer. Beyond it, an error of kind
                `too_large` ends the stream.
        """
        super().__init__(max_call_chars=max_call_chars)
        self._place_by_index: dict[int | None, int] = {}
        self._has_refused = False

    def remove_calls(self, frame: Frame) -> Frame | None:
        """Return the frame without its tool calls, or `None` if nothing else remains."""
        body = parse_object(frame.data) or {}
        deltas = [object_of(choice.get('delta')) for choice in objects_of(body.get('choices'))]
        removed = [delta.pop(key, None) for delta in deltas for key in ('tool_calls', 'function_call')]
        if not any(removed):
            return frame
        has_more = any(value for delta in deltas for key, value in delta.items() if key != 'role')
        if not (has_more or body.get('usage') or any(c.get('finish_reason') for c in objects_of(body['choices']))):
            return None
        return replace(frame, data=json.dumps(body, separators=(',', ':')))

    def _frame_events(self, frame: Frame) -> Iterator[StreamEvent]:
        if frame.data.strip() == '[DONE]':
            yield from self._end()
        else:
            yield from super()._frame_events(frame)

    def _read(self, body: JsonObject) -> Iterator[StreamEvent]:
        choices = objects_of(body.get('choices'))
        if choices or body.get('id'):  # Azure's first chunk has neither, only the filter results of the prompt
            yield from self._start(body.get('id'), body.get('model'))
        for choice in choices:
            if choice.get('index') in (0, None):
                yield from self._read_delta(object_of(choice.get('delta')))
                yield from self._read_reason(text_of(choice.get('finish_reason')))
        if usage := object_of(body.get('usage')):
            yield from self._use(_usage(usage))

    def _read_delta(self, delta: JsonObject) -> Iterator[StreamEvent]:
        if thinking := text_of(delta.get('reasoning_content')) or text_of(delta.get('reasoning')):
            yield ThinkingEvent(text=thinking)
        if text := text_of(delta.get('content')):
            yield TextEvent(text=text)
        if refusal := text_of(delta.get('refusal')):
            self._has_refused = True
            yield TextEvent(text=refusal)
        for piece in objects_of(delta.get('tool_calls')):
            yield from self._read_call(index_of(piece.get('index')), text_of(piece.get('id')), piece.get('function'))
        if function := object_of(delta.get('function_call')):
            yield from self._read_call(_LEGACY, '', function)

    def _read_call(self, index: int | None, id: str, function: JsonValue) -> Iterator[StreamEvent]:
        name, args = (text_of(object_of(function).get(key)) for key in ('name', 'arguments'))
        place = self._place_by_index.get(index)
        if place is not None and not (id and name and id != self._calls.id_of(place)):
            yield from self._calls.add(place, args)
            return
        is_free = index is not None and index >= 0 and index not in self._calls
        place = index if is_free and index is not None else self._calls.next_index
        yield from self._calls.begin(place, id=self._call_id(id, place), name=name, args=args)
        self._place_by_index[index] = place

    def _read_reason(self, reason: str) -> Iterator[StreamEvent]:
        if reason:
            self._reason = 'content_filter' if self._has_refused else _REASONS.get(reason, 'error')
            yield from self._calls.close_all()


def _usage(usage: JsonObject) -> UsageEvent:
    details = object_of(usage.get('prompt_tokens_details'))
    return UsageEvent(
        input_tokens=count_of(usage.get('prompt_tokens')),
        output_tokens=count_of(usage.get('completion_tokens')),
        cache_read_tokens=count_of(details.get('cached_tokens')),
        cache_write_tokens=count_of(details.get('cache_write_tokens')),
        requests=1,
    )
