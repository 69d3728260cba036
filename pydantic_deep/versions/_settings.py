"""The settings, instructions and metadata of a version as JSON, and which settings a version can have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from pydantic_ai.settings import ModelSettings
from pydantic_core import PydanticSerializationError, to_json

from pydantic_deep._checks import check_numbers, check_text

from .errors import ValidationError

_MODEL = 'model'
"""The key of the model among stored settings. No setting has that name, and none may."""

_INSTRUCTIONS = 'instructions'
"""The key of the instructions of a conversation among stored settings."""

_OF_AGENT = 'agent_instructions'
"""The key of the literal instructions of the agent among stored settings."""

_PROVIDERS = (
    'anthropic_', 'bedrock_', 'cerebras_', 'cohere_', 'google_', 'groq_', 'huggingface_', 'mistral_', 'openai_',
    'openrouter_', 'xai_',
)  # fmt: skip
"""How the names of settings begin that only one provider knows."""

_HEADERS = 'extra_headers'
_BODY = 'extra_body'
_SENT = ('messages', 'model', 'tools', 'input', 'contents', 'system', 'instructions')
"""What a request consists of on the wires of OpenAI, Anthropic and Google: no setting may replace it."""


def check_settings(settings: Mapping[str, object]) -> None:
    """Refuse what no turn can be made with, or what a store must not keep: it has the settings of turns too.

    Raises:
        ValidationError: One is no setting of a model, holds keys or NaN, or would replace messages, model or tools.
    """
    check_numbers(settings)
    for name, value in settings.items():
        if name not in ModelSettings.__annotations__ and not name.startswith(_PROVIDERS):
            raise ValidationError(
                name, 'this is no setting of a model. A version keeps those of `pydantic_ai.ModelSettings`.'
            )
        if name == _HEADERS:
            raise ValidationError(
                name, 'the store would keep them, with the keys in them. Give them to the provider, or to the agent.'
            )
        try:
            json.dumps(value, allow_nan=False, skipkeys=True, default=repr)
        except ValueError as error:
            raise ValidationError(name, f'JSON cannot hold this: {error}.') from None
        if name == _BODY and isinstance(value, Mapping) and (sent := sorted(set(_SENT) & {str(key) for key in value})):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any mapping
            raise ValidationError(name, f'it would replace {", ".join(sent)}. Settings cannot do that.')


def dump_settings(settings: Mapping[str, object] | None, model: str | None, instructions: Sequence[str] = ()) -> str:
    """Return settings as a version keeps them, with the model and the instructions of its conversation.

    Raises:
        ValidationError: As by `check_settings`; or one is no JSON, or an instruction is blank or no text.
    """
    kept = dict(settings or {})
    check_settings(kept)
    try:
        text = to_json(kept).decode()
    except PydanticSerializationError as error:
        raise ValidationError(', '.join(kept), f'JSON cannot hold this: {error}.') from None
    for instruction in instructions:
        check_text(_INSTRUCTIONS, instruction)
    beside: dict[str, object] = {} if model is None else {_MODEL: model}
    if instructions:
        beside[_INSTRUCTIONS] = list(instructions)
    return json.dumps({**json.loads(text), **beside}) if beside else text


def load_settings(text: str) -> tuple[ModelSettings, str | None]:
    """Return the settings, and the model that was asked for, from what `dump_settings` wrote."""
    settings = cast('dict[str, object]', json.loads(text))
    model = settings.pop(_MODEL, None)
    settings.pop(_INSTRUCTIONS, None)
    settings.pop(_OF_AGENT, None)
    return cast('ModelSettings', settings), cast('str | None', model)


def load_instructions(text: str) -> tuple[str, ...]:
    """Return the instructions of a conversation from what `dump_settings` wrote."""
    return tuple(cast('dict[str, list[str]]', json.loads(text)).get(_INSTRUCTIONS, ()))


def with_agent_instructions(text: str, instructions: str) -> str:
    """Return what `dump_settings` wrote with the literal instructions of the agent that turns were made with."""
    if load_agent_instructions(text) == instructions:
        return text
    kept = cast('dict[str, object]', json.loads(text))
    kept.pop(_OF_AGENT, None)
    return json.dumps({**kept, _OF_AGENT: instructions} if instructions else kept)


def load_agent_instructions(text: str) -> str:
    """Return the literal instructions of the agent that the last turn was made with; empty if it had none, or no turn."""
    return cast('dict[str, str]', json.loads(text)).get(_OF_AGENT, '')


def listed(instructions: str | Sequence[str]) -> Sequence[str]:
    """Return one text, or several, as several."""
    if isinstance(instructions, str) or not isinstance(cast('object', instructions), Sequence):
        return [cast('str', instructions)]
    return instructions


def dump_metadata(metadata: Mapping[str, object] | None) -> str:
    """Return metadata as a version stores them.

    Raises:
        ValidationError: They are no JSON.
    """
    try:
        text = json.dumps(dict(metadata or {}), sort_keys=True, allow_nan=False)
        json.dumps(json.loads(text), ensure_ascii=False).encode()  # no half of a surrogate pair
        return text
    except (TypeError, ValueError) as error:
        raise ValidationError('metadata', f'JSON cannot hold this: {error}.') from None
