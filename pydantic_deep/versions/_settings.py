"""Model settings, instructions and metadata of a version as JSON, and the validation of settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import cast

from pydantic_ai.settings import ModelSettings
from pydantic_core import PydanticSerializationError, to_json

from pydantic_deep._checks import check_numbers, check_object, check_text

from .errors import ValidationError

_MODEL = 'model'
"""The key of the model among stored settings. No setting has this name."""

_INSTRUCTIONS = 'instructions'
"""The key of the instructions of a conversation among stored settings."""

_OF_AGENT = 'agent_instructions'
"""The key of the agent's literal instructions among stored settings."""

_PROVIDERS = (
    'anthropic_', 'bedrock_', 'cerebras_', 'cohere_', 'google_', 'groq_', 'huggingface_', 'mistral_', 'openai_',
    'openrouter_', 'xai_',
)  # fmt: skip
"""Prefixes of the names of provider-specific settings."""

_HEADERS = 'extra_headers'
_BODY = 'extra_body'
_SENT = ('messages', 'model', 'tools', 'input', 'contents', 'system', 'instructions')
"""The parts of a request in the APIs of OpenAI, Anthropic and Google, which no setting may replace."""


def check_settings(settings: Mapping[str, object]) -> None:
    """Validate model settings for a turn and for the store, which also has the settings of turns.

    Raises:
        ValidationError: A name is not a model setting, or is that of headers, which may contain API keys; or a value
            contains NaN, or would replace messages, model or tools.
    """
    check_numbers(settings)
    for name, value in settings.items():
        if name not in ModelSettings.__annotations__ and not name.startswith(_PROVIDERS):
            raise ValidationError(
                name, 'this is not a model setting. Versions accept those of `pydantic_ai.ModelSettings`.'
            )
        if name == _HEADERS:
            raise ValidationError(
                name, 'headers may contain keys, which must not be stored. Set them on the provider or the agent.'
            )
        try:
            json.dumps(value, allow_nan=False, skipkeys=True, default=repr)
        except ValueError as error:
            raise ValidationError(name, f'JSON cannot hold this: {error}.') from None
        if name == _BODY and isinstance(value, Mapping) and (sent := sorted(set(_SENT) & {str(key) for key in value})):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any mapping
            raise ValidationError(name, f'it would replace {", ".join(sent)}. Settings cannot do that.')


def dump_settings(settings: Mapping[str, object] | None, model: str | None, instructions: Sequence[str] = ()) -> str:
    """Return settings as JSON, with the model and the instructions of the conversation.

    Raises:
        ValidationError: `check_settings` raises it, a setting is not JSON, or an instruction is blank or not a string.
    """
    if settings is not None:
        check_settings(settings)
    values = dict(settings or {})
    try:
        text = to_json(values).decode()
    except PydanticSerializationError as error:
        raise ValidationError(', '.join(values), f'JSON cannot hold this: {error}.') from None
    for instruction in instructions:
        check_text(_INSTRUCTIONS, instruction)
    beside: dict[str, object] = {} if model is None else {_MODEL: model}
    if instructions:
        beside[_INSTRUCTIONS] = list(instructions)
    return json.dumps({**json.loads(text), **beside}) if beside else text


def load_settings(text: str) -> tuple[ModelSettings, str | None]:
    """Return the settings and the requested model from the JSON of `dump_settings`."""
    settings = cast('dict[str, object]', json.loads(text))
    model = settings.pop(_MODEL, None)
    settings.pop(_INSTRUCTIONS, None)
    settings.pop(_OF_AGENT, None)
    return cast('ModelSettings', settings), cast('str | None', model)


def load_instructions(text: str) -> tuple[str, ...]:
    """Return the instructions of the conversation from the JSON of `dump_settings`."""
    return tuple(cast('dict[str, list[str]]', json.loads(text)).get(_INSTRUCTIONS, ()))


def with_agent_instructions(text: str, instructions: str) -> str:
    """Return the JSON of `dump_settings` with the agent's literal instructions added."""
    if load_agent_instructions(text) == instructions:
        return text
    document = cast('dict[str, object]', json.loads(text))
    document.pop(_OF_AGENT, None)
    return json.dumps({**document, _OF_AGENT: instructions} if instructions else document)


def load_agent_instructions(text: str) -> str:
    """Return the agent's literal instructions in the last turn; empty if it had none, or there was no turn."""
    return cast('dict[str, str]', json.loads(text)).get(_OF_AGENT, '')


def listed(instructions: str | Sequence[str]) -> Sequence[str]:
    """Return instructions as a sequence: one text becomes a list."""
    if isinstance(instructions, str) or not isinstance(cast('object', instructions), Sequence):
        return [cast('str', instructions)]
    return instructions


def dump_metadata(metadata: Mapping[str, object] | None) -> str:
    """Return metadata as JSON.

    Raises:
        ValidationError: The metadata is not JSON.
    """
    check_object('metadata', metadata, (Mapping, NoneType), "For example, `{'project': 'a'}`.")
    try:
        text = json.dumps(dict(metadata or {}), sort_keys=True, allow_nan=False)
        json.dumps(json.loads(text), ensure_ascii=False).encode()  # raises for a lone surrogate
        return text
    except (TypeError, ValueError) as error:
        raise ValidationError('metadata', f'JSON cannot hold this: {error}.') from None
