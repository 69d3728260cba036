"""The requirements of pydantic-ai's providers: a key in the environment and a package.

They are in a table because a query to pydantic-ai would import the package of every provider. A test compares the
table with pydantic-ai. Providers that are not in the table can be used too; `models` has less information about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

from pydantic_ai.models import known_model_names, parse_model_id


@dataclass(frozen=True, kw_only=True)
class Provider:
    """The requirements of a provider."""

    variables: tuple[str, ...] = ()
    """Environment variables, one of which must be set; `()` if a key is not sufficient or the variable is unknown."""
    package: str | None = None
    """The module that must be importable; `None` if it is unknown."""
    extra: str | None = None
    """The extra of `pydantic-ai-slim` that installs the package."""


PROVIDERS: Mapping[str, Provider] = {
    'anthropic': Provider(variables=('ANTHROPIC_API_KEY',), package='anthropic', extra='anthropic'),
    'bedrock': Provider(package='boto3', extra='bedrock'),
    'bedrock-mantle': Provider(variables=('AWS_BEARER_TOKEN_BEDROCK',), package='openai', extra='openai'),
    'cerebras': Provider(variables=('CEREBRAS_API_KEY',), package='openai', extra='openai'),
    'cohere': Provider(variables=('CO_API_KEY',), package='cohere', extra='cohere'),
    'crusoe': Provider(variables=('CRUSOE_API_KEY',), package='openai', extra='openai'),
    'deepseek': Provider(variables=('DEEPSEEK_API_KEY',), package='openai', extra='openai'),
    'google': Provider(variables=('GOOGLE_API_KEY', 'GEMINI_API_KEY'), package='google.genai', extra='google'),
    'google-cloud': Provider(package='google.genai', extra='google'),
    'groq': Provider(variables=('GROQ_API_KEY',), package='groq', extra='groq'),
    'heroku': Provider(variables=('HEROKU_INFERENCE_KEY',), package='openai', extra='openai'),
    'huggingface': Provider(variables=('HF_TOKEN',), package='huggingface_hub', extra='huggingface'),
    'meta': Provider(variables=('META_API_KEY',), package='openai', extra='openai'),
    'mistral': Provider(variables=('MISTRAL_API_KEY',), package='mistralai', extra='mistral'),
    'moonshotai': Provider(variables=('MOONSHOTAI_API_KEY',), package='openai', extra='openai'),
    'ollama': Provider(variables=('OLLAMA_BASE_URL',), package='openai', extra='openai'),
    'openai': Provider(variables=('OPENAI_API_KEY', 'OPENAI_BASE_URL'), package='openai', extra='openai'),
    'openai-chat': Provider(variables=('OPENAI_API_KEY', 'OPENAI_BASE_URL'), package='openai', extra='openai'),
    'openrouter': Provider(variables=('OPENROUTER_API_KEY',), package='openai', extra='openai'),
    'snowflake': Provider(package='openai', extra='openai'),
    'vllm': Provider(variables=('VLLM_BASE_URL',), package='openai', extra='openai'),
    'xai': Provider(variables=('XAI_API_KEY',), package='xai_sdk', extra='xai'),
    'zai': Provider(variables=('ZAI_API_KEY',), package='openai', extra='openai'),
}
"""Requirements by provider, the part of a model name before the colon."""

_UNKNOWN = Provider()

_UNLISTED = ('test', 'gateway/')
"""Prefixes of model names that do not belong to a provider."""


@dataclass(frozen=True, kw_only=True)
class ProviderState:
    """Whether a provider can be used, and its requirements."""

    name: str
    variables: tuple[str, ...]
    set_variable: str | None
    """The name of the variable that is set, never its value."""
    extra: str | None
    is_installed: bool | None
    """Whether the package is installed; `None` if the package is unknown."""
    models: list[str] = field(default_factory=list[str])
    """Model names that pydantic-ai knows. A provider may accept others."""

    @property
    def is_ready(self) -> bool:
        """Whether the key is set and the package is installed."""
        return self.set_variable is not None and self.is_installed is True


def list_providers(variables: Mapping[str, str]) -> list[ProviderState]:
    """Return all providers that have known models or are in the table, sorted by name."""
    models: dict[str, list[str]] = {name: [] for name in PROVIDERS}
    for model in known_model_names():
        name, _ = parse_model_id(model)
        if name and not name.startswith(_UNLISTED):
            models.setdefault(name, []).append(model)
    return [describe_provider(name, variables, models[name]) for name in sorted(models)]


def describe_provider(name: str, variables: Mapping[str, str], models: list[str]) -> ProviderState:
    """Return whether a provider can be used."""
    provider = PROVIDERS.get(name, _UNKNOWN)
    return ProviderState(
        name=name,
        variables=provider.variables,
        set_variable=next((v for v in provider.variables if variables.get(v)), None),
        extra=provider.extra,
        is_installed=None if provider.package is None else _is_installed(provider.package),
        models=sorted(models),
    )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package of a dotted name is missing
        return False
