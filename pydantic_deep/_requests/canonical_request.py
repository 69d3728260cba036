"""The canonical form of a request: its content without values that differ from run to run.

Two requests are the same if their canonical forms are equal. The form contains the instructions, the tools, everything
else that shapes the response, and the messages. It does not contain times, ids of runs, conversations and providers,
usage, or pydantic-ai's `metadata` for the application. Files and diffs of requests are in `testing`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from pydantic import JsonValue
from pydantic_ai.messages import InstructionPart, ModelMessage, ModelMessagesTypeAdapter, ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_core import to_jsonable_python

JsonObject: TypeAlias = dict[str, JsonValue]

Match: TypeAlias = Literal['everything', 'prompt']
"""The parts of a request that must match the recording: `everything`, or with `prompt` everything but tool results."""

_UNSENT = frozenset({'timestamp', 'id', 'provider_name', 'provider_details', 'signature', 'metadata'})
"""Fields of a part that differ from run to run, or that no model receives."""

_CONTENT_FIELDS = {0: {'kind', 'parts'}}
"""The fields of a message that are serialized; usage and times are skipped."""

_UNSENT_SETTINGS = frozenset({'timeout', 'request_timeout', 'extra_headers', 'cache'})
"""Settings that do not shape the response; headers may contain secrets."""

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(',', ':'))
"""Shared encoder: `json.dumps` would create one per digest."""


@dataclass(frozen=True, kw_only=True)
class CanonicalRequest:
    """A request in canonical form."""

    instructions: str | None
    tools: list[JsonObject]
    options: JsonObject
    """Everything else that shapes the response: output mode and schema, native tools, settings."""
    messages: list[JsonObject]

    def for_matching(self, match: Match) -> CanonicalRequest:
        """Return the request without the parts that need not match."""
        if match == 'everything':
            return self
        return CanonicalRequest(
            instructions=self.instructions,
            tools=self.tools,
            options=self.options,
            messages=[_without_results(message) for message in self.messages],
        )

    def head_digest(self) -> str:
        """Return the digest of everything but the messages."""
        return digest([self.instructions, cast(JsonValue, self.tools), self.options])

    def chain(self) -> list[str]:
        """Return one digest per prefix of the history, including the empty one: equal digests mean equal prefixes."""
        return chain_digests(self.messages)


def canonical_request(
    messages: Sequence[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
) -> CanonicalRequest:
    """Return the canonical form of a request, as the model receives it."""
    return CanonicalRequest(
        instructions=_instructions(messages, parameters),
        tools=[_tool(tool) for tool in parameters.function_tools],
        options=_options(settings, parameters),
        messages=[canonical_message(message) for message in messages],
    )


def canonical_message(message: ModelMessage, *, keep_bytes: bool = False) -> JsonObject:
    """Return the canonical form of a message: its kind and its parts.

    Args:
        message: A request or a response.
        keep_bytes: Whether to include the bytes of files instead of their digest.
    """
    dumped = cast(JsonObject, ModelMessagesTypeAdapter.dump_python([message], mode='json', include=_CONTENT_FIELDS)[0])
    parts = [_part(part, keep_bytes=keep_bytes) for part in cast(list[JsonObject], dumped['parts'])]
    return {'kind': dumped['kind'], 'parts': cast(JsonValue, parts)}


def canonical_settings(settings: ModelSettings | None) -> JsonObject:
    """Return the settings that shape the response. A value that JSON cannot represent is replaced by its type."""
    relevant = {k: v for k, v in (settings or {}).items() if k not in _UNSENT_SETTINGS and v is not None}
    return to_jsonable_python(relevant, fallback=lambda value: f'<{type(value).__name__}>')


def nearest(candidates: Sequence[CanonicalRequest], request: CanonicalRequest) -> int | None:
    """Return the index of the candidate that is most similar to a request, above all in the common prefix of their
    histories.
    """
    chain = request.chain()

    def likeness(index: int) -> tuple[int, int, int, int]:
        other = candidates[index]
        common = sum(a == b for a, b in zip(chain, other.chain(), strict=False))
        heads = (other.instructions == request.instructions, other.tools == request.tools)
        return common, -abs(len(other.messages) - len(request.messages)), sum(heads), -index

    return max(range(len(candidates)), key=likeness, default=None)


def digest(value: JsonValue) -> str:
    """Return the SHA-256 of a JSON value, independent of the order of keys."""
    return hashlib.sha256(_ENCODER.encode(value).encode()).hexdigest()


def chain_digests(messages: Iterable[JsonObject]) -> list[str]:
    """Return one digest per prefix of a history, the empty one first."""
    chain = ['']
    for message in messages:
        chain.append(digest([chain[-1], message]))
    return chain


def _instructions(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> str | None:
    if parameters.instruction_parts is not None:
        return InstructionPart.join(parameters.instruction_parts)
    # Only if a model is called without an agent.
    texts = [message.instructions for message in messages if isinstance(message, ModelRequest)]
    return texts[-1] if texts else None


def _tool(tool: ToolDefinition) -> JsonObject:
    rest: JsonObject = {'strict': tool.strict, 'defer_loading': tool.defer_loading or None}
    named: JsonObject = {'name': tool.name, 'description': tool.description, 'parameters': tool.parameters_json_schema}
    return _drop_none({**named, **rest})


def _options(settings: ModelSettings | None, parameters: ModelRequestParameters) -> JsonObject:
    output = parameters.output_object
    options: dict[str, object] = {
        'output_mode': parameters.output_mode,
        'output_tools': [_tool(tool) for tool in parameters.output_tools],
        'output_schema': output.json_schema if output else None,
        'allow_text_output': None if parameters.allow_text_output else False,
        'native_tools': [to_jsonable_python(tool, exclude_none=True) for tool in parameters.native_tools],
        'settings': canonical_settings(settings),
    }
    return {key: cast(JsonValue, value) for key, value in options.items() if value not in (None, [], {})}


def _part(part: JsonObject, *, keep_bytes: bool) -> JsonObject:
    fields = _drop_none({key: value for key, value in part.items() if key not in _UNSENT})
    if isinstance(fields.get('args'), str):
        fields['args'] = _parse_args(cast(str, fields['args']))
    return fields if keep_bytes else cast(JsonObject, _without_bytes(fields))


def _parse_args(text: str) -> JsonValue:
    """Return the arguments of a call as an object, as a stream delivers them as text. Other JSON stays text."""
    try:
        parsed: JsonValue = json.loads(text)
    except ValueError:
        return text
    return parsed if isinstance(parsed, dict) else text


def _without_bytes(value: JsonValue) -> JsonValue:
    """Replace the bytes of files with their digest."""
    if isinstance(value, list):
        return [_without_bytes(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get('kind') == 'binary' and isinstance(value.get('data'), str):
        return {'kind': 'binary', 'media_type': value.get('media_type'), 'sha256': digest(value['data'])}
    return {key: _without_bytes(item) for key, item in value.items()}


def _without_results(message: JsonObject) -> JsonObject:
    """Reduce tool results to the calls that they belong to."""
    parts = cast(list[JsonObject], message['parts'])
    reduced = [_without_result(part) if part['part_kind'] == 'tool-return' else part for part in parts]
    return {**message, 'parts': cast(JsonValue, reduced)}


def _without_result(part: JsonObject) -> JsonObject:
    return {key: part[key] for key in ('tool_name', 'tool_call_id', 'part_kind')}


def _drop_none(mapping: Mapping[str, JsonValue]) -> JsonObject:
    return {key: value for key, value in mapping.items() if value is not None}
