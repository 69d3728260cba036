"""Choosing the model by option, environment variable or API key, and creating it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model, parse_model_id

from pydantic_deep._text.escapes import is_blank
from pydantic_deep.errors import DeepAgentError

from ._providers import PROVIDERS

MODEL_VARIABLE = 'PYDANTIC_DEEP_MODEL'
"""The environment variable that names the model if `--model` is not set."""

DEFAULT_MODELS: Mapping[str, str] = {
    'ANTHROPIC_API_KEY': 'anthropic:claude-opus-5-5',
    'OPENAI_API_KEY': 'openai:gpt-6.1-sol',
    'GOOGLE_API_KEY': 'google:gemini-3.8-flash',
    'GEMINI_API_KEY': 'google:gemini-3.8-flash',
}
"""Default models by environment variable of the key. The first variable that is set counts."""


class UnusableModelError(DeepAgentError):
    """No model can be used: none is named and no key is set, or the named model cannot be created."""


def choose_model(named: str | None, variables: Mapping[str, str]) -> str:
    """Return the name of the model: of the option, of the environment, or the default for the key that is set.

    Args:
        named: The value of `--model`.
        variables: The environment variables.

    Raises:
        UnusableModelError: No model is named and no key is set, or the name is blank.
    """
    if named is not None and is_blank(named):
        raise UnusableModelError(f'--model is {named!r}. Name a model; `pydantic-deep models` lists them.')
    chosen = named or variables.get(MODEL_VARIABLE)
    if chosen:
        return chosen
    for variable, model in DEFAULT_MODELS.items():
        if variables.get(variable):
            return model
    raise UnusableModelError(
        'No model to use. Set ANTHROPIC_API_KEY, OPENAI_API_KEY or GOOGLE_API_KEY, or name a model with --model '
        f'or {MODEL_VARIABLE}; `pydantic-deep models` lists them.'
    )


def open_model(name: str, own: Mapping[str, Model]) -> Model:
    """Create the model with a name.

    Args:
        name: A key of `own`, or a `provider:model` of pydantic-ai.
        own: Models of the program that embeds the command line, by name.

    Raises:
        UnusableModelError: The provider is unknown, its package is not installed, or its key is not set.
    """
    if name in own:
        return own[name]
    try:
        return infer_model(name)
    except Exception as error:
        raise UnusableModelError(_describe_unusable(name, error)) from error


def _describe_unusable(name: str, error: Exception) -> str:
    """Return why a model cannot be created and how to fix that."""
    provider_name, _ = parse_model_id(name)
    provider = PROVIDERS.get(provider_name or '')
    if isinstance(error, ImportError):
        extra = provider.extra if provider else provider_name
        return f"{name!r} needs a package that is not installed. Install it: pip install 'pydantic-ai-slim[{extra}]'"
    if not isinstance(error, UserError):
        return f'{name!r} cannot be opened. {type(error).__name__}: {error}'
    if provider and provider.variables:
        return f'{name!r} needs the environment variable {" or ".join(provider.variables)}, which is not set.'
    reason = str(error) if str(error).endswith(('.', '?')) else f'{error}.'
    return f'{name!r} cannot be used. {reason} `pydantic-deep models` lists providers, `pydantic-deep models PROVIDER` their models.'
