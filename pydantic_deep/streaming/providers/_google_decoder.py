"""`GoogleDecoder`: decodes streams of `:streamGenerateContent?alt=sse`.

The format: https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pydantic_deep.streaming._events import ErrorEvent, FinishReason, StreamEvent, TextEvent, ThinkingEvent, UsageEvent
from pydantic_deep.streaming._protocol import Frame

from ._json_decoder import JsonDecoder, JsonObject, count_of, object_of, objects_of, parse_object, render_args, text_of

_REASONS: Final[dict[str, FinishReason]] = {
    'STOP': 'stop',
    'MAX_TOKENS': 'length',
    'CONTINUATION': 'length',
    'SAFETY': 'content_filter',
    'RECITATION': 'content_filter',
    'BLOCKLIST': 'content_filter',
    'PROHIBITED_CONTENT': 'content_filter',
    'SPII': 'content_filter',
    'IMAGE_SAFETY': 'content_filter',
    'IMAGE_PROHIBITED_CONTENT': 'content_filter',
    'IMAGE_RECITATION': 'content_filter',
    'MODEL_ARMOR': 'content_filter',
    'ESCALATION': 'content_filter',
}
"""Any other reason (`MALFORMED_FUNCTION_CALL`, `OTHER`, …) is a failure."""

_UNSPECIFIED: Final = ('', 'FINISH_REASON_UNSPECIFIED', 'BLOCKED_REASON_UNSPECIFIED')


class GoogleDecoder(JsonDecoder):
    """Decodes the chunks of a generated answer. Only candidate 0 is decoded.

    The `finishReason` ends the answer, and a blocked prompt ends it with the reason `content_filter`. The stream has no
    end marker, so `finish` emits the end. Calls arrive complete; a call without an id gets one from the answer's id and
    its position. A signature on a part that is not a thought becomes a preceding `ThinkingEvent` without text.
    Arguments in pieces, which Vertex AI sends on request, are an error of kind `unsupported`.
    """

    def remove_calls(self, frame: Frame) -> Frame | None:
        """Return the frame without its tool calls, or `None` if nothing else remains."""
        body = parse_object(frame.data) or {}
        candidates = objects_of(body.get('candidates'))
        has_calls = False
        for content in (object_of(candidate.get('content')) for candidate in candidates):
            parts = objects_of(content.get('parts'))
            remaining = [part for part in parts if 'functionCall' not in part]
            if len(remaining) < len(parts):
                has_calls = True
                content['parts'] = [*remaining]
        if not has_calls:
            return frame
        has_more = any(object_of(c.get('content')).get('parts') or c.get('finishReason') for c in candidates)
        if not has_more and not body.get('usageMetadata'):
            return None
        return replace(frame, data=json.dumps(body, separators=(',', ':')))

    def _read(self, body: JsonObject) -> Iterator[StreamEvent]:
        candidates = objects_of(body.get('candidates'))
        feedback = object_of(body.get('promptFeedback'))
        if candidates or feedback or body.get('responseId'):
            yield from self._start(body.get('responseId'), body.get('modelVersion'))
        if text_of(feedback.get('blockReason')) not in _UNSPECIFIED:
            self._reason = 'content_filter'
        for candidate in candidates:
            if candidate.get('index') in (0, None):
                for part in objects_of(object_of(candidate.get('content')).get('parts')):
                    yield from self._read_part(part)
                if (reason := text_of(candidate.get('finishReason'))) not in _UNSPECIFIED:
                    self._reason = _REASONS.get(reason, 'error')
        if usage := object_of(body.get('usageMetadata')):
            yield from self._use(_usage(usage))

    def _read_part(self, part: JsonObject) -> Iterator[StreamEvent]:
        text, signature = text_of(part.get('text')), text_of(part.get('thoughtSignature')) or None
        is_thought = part.get('thought') is True
        if signature or (text and is_thought):
            yield ThinkingEvent(text=text if is_thought else '', signature=signature)
        if text and not is_thought:
            yield TextEvent(text=text)
        if isinstance(call := part.get('functionCall'), dict):
            if call.get('partialArgs') or call.get('willContinue'):
                message = 'The arguments of a call come in pieces. Ask without `streamFunctionCallArguments`.'
                yield ErrorEvent(kind='unsupported', message=message)
            else:
                yield from self._read_call(call)

    def _read_call(self, call: JsonObject) -> Iterator[StreamEvent]:
        place = self._calls.next_index
        args = call.get('args')
        yield from self._calls.begin(
            place,
            id=self._call_id(text_of(call.get('id')), place),
            name=text_of(call.get('name')),
            args=render_args({} if args is None else args),
        )
        yield from self._calls.close(place)


def _usage(usage: JsonObject) -> UsageEvent:
    return UsageEvent(
        input_tokens=count_of(usage.get('promptTokenCount')) + count_of(usage.get('toolUsePromptTokenCount')),
        output_tokens=count_of(usage.get('candidatesTokenCount')) + count_of(usage.get('thoughtsTokenCount')),
        cache_read_tokens=count_of(usage.get('cachedContentTokenCount')),
        requests=1,
    )
