"""`AnthropicDecoder`: decodes streams of `/v1/messages`.

The format: https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from pydantic import JsonValue

from pydantic_deep.streaming._events import FinishReason, StreamEvent, TextEvent, ThinkingEvent, UsageEvent
from pydantic_deep.streaming._protocol import Frame

from ._call_pieces import MAX_CALL_CHARS
from ._json_decoder import JsonDecoder, JsonObject, count_of, index_of, object_of, parse_object, render_args, text_of

_REASONS: Final[dict[str, FinishReason]] = {
    'end_turn': 'stop',
    'stop_sequence': 'stop',
    'max_tokens': 'length',
    'model_context_window_exceeded': 'length',
    'pause_turn': 'length',  # not an end: the provider's own tools took long, and another request continues the turn
    'refusal': 'content_filter',
    'tool_use': 'tool_call',
}


class AnthropicDecoder(JsonDecoder):
    """Decodes the events of a message. The provider's own tools (`server_tool_use`) are skipped.

    The `stop_reason` ends the answer; an unknown one becomes `error`. Blocks may be interleaved. The contents of a
    redacted thought become its signature. Unknown types are ignored, as the provider recommends.
    """

    _status_by_type: ClassVar[Mapping[str, int]] = {
        'invalid_request_error': 400,
        'authentication_error': 401,
        'billing_error': 402,
        'permission_error': 403,
        'not_found_error': 404,
        'request_too_large': 413,
        'rate_limit_error': 429,
        'api_error': 500,
        'timeout_error': 504,
        'overloaded_error': 529,
    }

    def __init__(self, *, max_call_chars: int = MAX_CALL_CHARS) -> None:
        """Create a decoder for one stream.

        Args:
            max_call_chars: Maximum number of characters in all tool calls of the answer. Beyond it, an error of kind
                `too_large` ends the stream.
        """
        super().__init__(max_call_chars=max_call_chars)
        self._call_by_block: dict[int | None, int] = {}
        self._removed_blocks: set[int | None] = set()
        self._counts: dict[str, int] = {}

    def remove_calls(self, frame: Frame) -> Frame | None:
        """Return a frame unless it is part of a tool call. Pass all frames of the stream, in order."""
        body = parse_object(frame.data) or {}
        block = index_of(body.get('index'))
        match body.get('type'):
            case 'content_block_start' if object_of(body.get('content_block')).get('type') == 'tool_use':
                self._removed_blocks.add(block)
                return None
            case 'content_block_delta' if block in self._removed_blocks:
                return None
            case 'content_block_stop' if block in self._removed_blocks:
                self._removed_blocks.discard(block)
                return None
            case _:
                return frame

    def _read(self, body: JsonObject) -> Iterator[StreamEvent]:
        index = index_of(body.get('index'))
        match body.get('type'):
            case 'message_start':
                message = object_of(body.get('message'))
                yield from self._start(message.get('id'), message.get('model'))
                yield from self._read_usage(message.get('usage'))
            case 'content_block_start':
                yield from self._read_block(index, object_of(body.get('content_block')))
            case 'content_block_delta':
                yield from self._read_delta(index, object_of(body.get('delta')))
            case 'content_block_stop' if index in self._call_by_block:
                yield from self._calls.close(self._call_by_block.pop(index))
            case 'message_delta':
                if reason := text_of(object_of(body.get('delta')).get('stop_reason')):
                    self._reason = _REASONS.get(reason, 'error')
                yield from self._read_usage(body.get('usage'))
            case 'message_stop':
                yield from self._end()
            case _:
                pass

    def _read_block(self, index: int | None, block: JsonObject) -> Iterator[StreamEvent]:
        match block.get('type'):
            case 'text':
                yield from _text(block.get('text'))
            case 'thinking':
                yield from _thinking(block.get('thinking'), block.get('signature'))
            case 'redacted_thinking':
                yield from _thinking('', block.get('data'))
            case 'tool_use':
                place = self._calls.next_index
                id = self._call_id(text_of(block.get('id')), place)
                # Arguments come as deltas. A server that has them complete may send them here instead, or in addition.
                args = render_args(block.get('input') or {})
                yield from self._calls.begin(place, id=id, name=text_of(block.get('name')), fallback=args)
                self._call_by_block[index] = place
            case _:
                pass

    def _read_delta(self, index: int | None, delta: JsonObject) -> Iterator[StreamEvent]:
        match delta.get('type'):
            case 'text_delta':
                yield from _text(delta.get('text'))
            case 'thinking_delta':
                yield from _thinking(delta.get('thinking'), None)
            case 'signature_delta':
                yield from _thinking('', delta.get('signature'))
            case 'input_json_delta' if index in self._call_by_block:
                yield from self._calls.add(self._call_by_block[index], text_of(delta.get('partial_json')))
            case _:
                pass

    def _read_usage(self, usage: JsonValue) -> Iterator[StreamEvent]:
        """Yield the totals so far. Counts that are missing or null in an event keep their previous values."""
        for key, value in object_of(usage).items():
            if key in _COUNTS and value is not None:
                self._counts[key] = count_of(value)
        if self._counts:
            read, written = self._count('cache_read_input_tokens'), self._count('cache_creation_input_tokens')
            yield from self._use(
                UsageEvent(
                    input_tokens=self._count('input_tokens') + read + written,
                    output_tokens=self._count('output_tokens'),
                    cache_read_tokens=read,
                    cache_write_tokens=written,
                    requests=1,
                )
            )

    def _count(self, key: str) -> int:
        return self._counts.get(key, 0)


_COUNTS: Final = {'input_tokens', 'output_tokens', 'cache_read_input_tokens', 'cache_creation_input_tokens'}


def _text(text: JsonValue) -> Iterator[StreamEvent]:
    if piece := text_of(text):
        yield TextEvent(text=piece)


def _thinking(text: JsonValue, signature: JsonValue) -> Iterator[StreamEvent]:
    piece, mark = text_of(text), text_of(signature)
    if piece or mark:
        yield ThinkingEvent(text=piece, signature=mark or None)
