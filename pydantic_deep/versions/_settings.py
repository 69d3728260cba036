"""The defaults of a version's turns: which settings a user may keep in a version, and the model that was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from pydantic_ai.settings import ModelSettings
from pydantic_core import PydanticSerializationError, to_json

from .errors import ValidationError

_MODEL = 'model'
"""The key of the model among stored settings. No setting has that name, and none may."""

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


def dump_settings(settings: Mapping[str, object] | None, model: str | None) -> str:
    """Return settings as a version keeps them.

    Raises:
        ValidationError: As by `check_settings`; or one is no JSON.
    """
    kept = dict(settings or {})
    check_settings(kept)
    try:
        text = to_json(kept).decode()
    except PydanticSerializationError as error:
        raise ValidationError(', '.join(kept), f'JSON cannot hold this: {error}.') from None
    if model is None:
        return text
    return json.dumps({**json.loads(text), _MODEL: model})


def load_settings(text: str) -> tuple[ModelSettings, str | None]:
    """Return the settings, and the model that was asked for, from what `dump_settings` wrote."""
    settings = cast('dict[str, object]', json.loads(text))
    model = settings.pop(_MODEL, None)
    return cast('ModelSettings', settings), cast('str | None', model)
