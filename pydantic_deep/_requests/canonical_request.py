"""What a request says to a model, without what differs from run to run.

Two requests are the same when their canonical forms are. In them are the instructions, the tools, what shapes the
answer, and the messages; not in them are times, the ids of runs, conversations and providers, usage, and what
pydantic-ai keeps for the application (`metadata`). Not here: files and diffs of them (`testing`).
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
"""A JSON object."""

Match: TypeAlias = Literal['everything', 'prompt']
"""What of a request must be as recorded: all of it, or all but the results of tools."""

_UNSENT = frozenset({'timestamp', 'id', 'provider_name', 'provider_details', 'signature', 'metadata'})
"""Fields of a part that differ from run to run, or that no model reads."""

_SAID = {0: {'kind', 'parts'}}
"""What a message says; usage and times are not written down first."""

_UNSENT_SETTINGS = frozenset({'timeout', 'request_timeout', 'extra_headers', 'cache'})
"""Settings that do not shape the answer; headers may hold secrets."""

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(',', ':'))
"""`json.dumps` would make one for each digest."""


@dataclass(frozen=True, kw_only=True)
class CanonicalRequest:
    """A request in canonical form."""

    instructions: str | None
    tools: list[JsonObject]
    options: JsonObject
    """What else shapes the answer: output mode and schema, native tools, settings."""
    messages: list[JsonObject]

    def for_matching(self, match: Match) -> CanonicalRequest:
        """Return the request with nothing in it but what must match."""
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
        """Return a digest for each length of the history, 0 included: equal digests, equal beginnings."""
        return chain_digests(self.messages)


def canonical_request(
    messages: Sequence[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
) -> CanonicalRequest:
    """Return what a request says, as a model is handed it."""
    return CanonicalRequest(
        instructions=_instructions(messages, parameters),
        tools=[_tool(tool) for tool in parameters.function_tools],
        options=_options(settings, parameters),
        messages=[canonical_message(message) for message in messages],
    )


def canonical_message(message: ModelMessage, *, keep_bytes: bool = False) -> JsonObject:
    """Return what a message says: its kind and its parts.

    Args:
        message: A request or a response.
        keep_bytes: Keep the bytes of files instead of their digest.
    """
    dumped = cast(JsonObject, ModelMessagesTypeAdapter.dump_python([message], mode='json', include=_SAID)[0])
    parts = [_part(part, keep_bytes=keep_bytes) for part in cast(list[JsonObject], dumped['parts'])]
    return {'kind': dumped['kind'], 'parts': cast(JsonValue, parts)}


def canonical_settings(settings: ModelSettings | None) -> JsonObject:
    """Return the settings that shape an answer; of a value that JSON cannot hold, its type."""
    given = {k: v for k, v in (settings or {}).items() if k not in _UNSENT_SETTINGS and v is not None}
    return to_jsonable_python(given, fallback=lambda value: f'<{type(value).__name__}>')


def nearest(candidates: Sequence[CanonicalRequest], request: CanonicalRequest) -> int | None:
    """Return the index of the candidate most like a request: the longest common beginning of their histories first."""
    chain = request.chain()

    def likeness(index: int) -> tuple[int, int, int, int]:
        other = candidates[index]
        common = sum(a == b for a, b in zip(chain, other.chain(), strict=False))
        heads = (other.instructions == request.instructions, other.tools == request.tools)
        return common, -abs(len(other.messages) - len(request.messages)), sum(heads), -index

    return max(range(len(candidates)), key=likeness, default=None)


def digest(value: JsonValue) -> str:
    """Return the SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(_ENCODER.encode(value).encode()).hexdigest()


def chain_digests(messages: Iterable[JsonObject]) -> list[str]:
    """Return a digest for each beginning of a history, the empty one first."""
    chain = ['']
    for message in messages:
        chain.append(digest([chain[-1], message]))
    return chain


def _instructions(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> str | None:
    if parameters.instruction_parts is not None:
        return InstructionPart.join(parameters.instruction_parts)
    # Only where a model is called without an agent.
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
    kept = _drop_none({key: value for key, value in part.items() if key not in _UNSENT})
    if isinstance(kept.get('args'), str):
        kept['args'] = _parse_args(cast(str, kept['args']))
    return kept if keep_bytes else cast(JsonObject, _without_bytes(kept))


def _parse_args(text: str) -> JsonValue:
    """Return the arguments of a call as an object: a stream brings them as text. What is no object stays text."""
    try:
        parsed: JsonValue = json.loads(text)
    except ValueError:
        return text
    return parsed if isinstance(parsed, dict) else text


def _without_bytes(value: JsonValue) -> JsonValue:
    """Replace the bytes of files by their digest."""
    if isinstance(value, list):
        return [_without_bytes(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get('kind') == 'binary' and isinstance(value.get('data'), str):
        return {'kind': 'binary', 'media_type': value.get('media_type'), 'sha256': digest(value['data'])}
    return {key: _without_bytes(item) for key, item in value.items()}


def _without_results(message: JsonObject) -> JsonObject:
    """Leave of a tool's result only which call it answers."""
    parts = cast(list[JsonObject], message['parts'])
    kept = [_without_result(part) if part['part_kind'] == 'tool-return' else part for part in parts]
    return {**message, 'parts': cast(JsonValue, kept)}


def _without_result(part: JsonObject) -> JsonObject:
    return {key: part[key] for key in ('tool_name', 'tool_call_id', 'part_kind')}


def _drop_none(mapping: Mapping[str, JsonValue]) -> JsonObject:
    return {key: value for key, value in mapping.items() if value is not None}
