"""Selection of the model."""

from __future__ import annotations

import pytest
from pydantic_ai.models import known_model_names
from pydantic_ai.models.test import TestModel

from pydantic_deep.cli.turn._models import DEFAULT_MODELS, UnusableModelError, choose_model, open_model
from pydantic_deep.cli.turn._providers import PROVIDERS


@pytest.mark.parametrize(
    ('named', 'variables', 'chosen'),
    [
        ('a:b', {'PYDANTIC_DEEP_MODEL': 'c:d', 'ANTHROPIC_API_KEY': 'k'}, 'a:b'),
        (None, {'PYDANTIC_DEEP_MODEL': 'c:d', 'ANTHROPIC_API_KEY': 'k'}, 'c:d'),
        (None, {'OPENAI_API_KEY': 'k', 'ANTHROPIC_API_KEY': 'k'}, DEFAULT_MODELS['ANTHROPIC_API_KEY']),
        (None, {'OPENAI_API_KEY': 'k', 'ANTHROPIC_API_KEY': ''}, DEFAULT_MODELS['OPENAI_API_KEY']),
        (None, {'GEMINI_API_KEY': 'k'}, DEFAULT_MODELS['GEMINI_API_KEY']),
    ],
)
def test_model_option_precedes_the_variable_and_the_key(
    named: str | None, variables: dict[str, str], chosen: str
) -> None:
    assert choose_model(named, variables) == chosen


def test_missing_model_names_the_variables_to_set() -> None:
    with pytest.raises(UnusableModelError, match=r'^No model to use\. Set ANTHROPIC_API_KEY, OPENAI_API_KEY or'):
        choose_model(None, {'OPENAI_BASE_URL': 'http://127.0.0.1:1/v1'})


def test_default_models_are_known_to_pydantic_ai() -> None:
    assert set(DEFAULT_MODELS.values()) <= set(known_model_names())


@pytest.mark.parametrize(
    ('name', 'sentence'),
    [
        (
            'anthropic:claude-opus-5-5',
            "'anthropic:claude-opus-5-5' needs the environment variable ANTHROPIC_API_KEY, which is not set.",
        ),
        (
            'google:x',
            "'google:x' needs the environment variable GOOGLE_API_KEY or GEMINI_API_KEY, which is not set.",
        ),
        (
            'anthropc:claude-opus-5-5',
            "'anthropc:claude-opus-5-5' cannot be used. Unknown model: anthropc:claude-opus-5-5. "
            "Did you mean 'anthropic:claude-opus-5-5'? `pydantic-deep models` lists providers, `pydantic-deep models PROVIDER` their models.",
        ),
        (
            'nonsense',
            "'nonsense' cannot be used. Unknown model: nonsense. `pydantic-deep models` lists providers, `pydantic-deep models PROVIDER` their models.",
        ),
        ('groq:x', "'groq:x' needs a package that is not installed. Install it: pip install 'pydantic-ai-slim[groq]'"),
    ],
)
def test_unusable_model_error_contains_a_remedy(name: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        for variable in provider.variables:
            monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UnusableModelError) as caught:
        open_model(name, {})
    assert str(caught.value) == sentence


def test_any_provider_error_becomes_an_unusable_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError('no credentials')

    monkeypatch.setattr('pydantic_deep.cli.turn._models.infer_model', refuse)
    with pytest.raises(UnusableModelError, match=r"^'a:b' cannot be opened\. OSError: no credentials$"):
        open_model('a:b', {})


def test_custom_models_take_precedence() -> None:
    own = TestModel()
    assert open_model('test', {'test': own}) is own
    assert open_model('test', {}) is not own
