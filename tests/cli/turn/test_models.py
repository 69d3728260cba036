"""Selection of the model, and the `models` command."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import infer_model, known_model_names
from pydantic_ai.models.test import TestModel
from typer.testing import Result

from pydantic_deep.cli.turn._models import DEFAULT_MODELS, UnusableModelError, choose_model, open_model
from pydantic_deep.cli.turn._providers import PROVIDERS, describe_provider, list_providers

Invoke = Callable[..., Result]


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


@pytest.mark.parametrize('name', ['anthropic', 'google', 'openai', 'openai-chat', 'deepseek', 'moonshotai', 'zai'])
def test_provider_variables_match_pydantic_ai(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = PROVIDERS[name]
    for variable in provider.variables:
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UserError, match=provider.variables[0]):
        infer_model(f'{name}:x')
    for variable in provider.variables:
        with monkeypatch.context() as patch:
            patch.setenv(variable, 'http://127.0.0.1:1/v1' if variable.endswith('URL') else 'k')
            assert infer_model(f'{name}:x').model_name == 'x'


def test_provider_package_is_detected_without_import() -> None:
    assert describe_provider('anthropic', {}, []).is_installed is True
    assert describe_provider('groq', {}, []).is_installed is False
    assert describe_provider('never-heard-of', {}, []).is_installed is None


def test_provider_with_a_missing_parent_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str) -> object:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr('pydantic_deep.cli.turn._providers.find_spec', find_spec)
    assert describe_provider('google', {}, []).is_installed is False


def test_key_makes_a_provider_ready_without_exposing_its_value() -> None:
    states = list_providers({'ANTHROPIC_API_KEY': 'sk-secret'})
    ready = [state for state in states if state.is_ready]
    assert [(state.name, state.set_variable) for state in ready] == [('anthropic', 'ANTHROPIC_API_KEY')]
    assert 'anthropic:claude-opus-5-5' in ready[0].models
    assert 'sk-secret' not in repr(states)


def test_models_table_lists_ready_providers_first(invoke: Invoke) -> None:
    result = invoke('models', variables={'OPENAI_API_KEY': 'sk-secret'})
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert [line.split()[0] for line in lines[:4]] == ['provider', 'openai', 'openai-chat', 'anthropic']
    assert 'OPENAI_API_KEY is set' in lines[1]
    assert 'groq is missing' in result.stdout
    assert 'sk-secret' not in result.stdout


def test_models_of_a_provider_are_listed(invoke: Invoke) -> None:
    result = invoke('models', 'anthropic')
    names = result.stdout.split()
    assert 'anthropic:claude-opus-5-5' in names
    assert names == sorted(name for name in known_model_names() if name.startswith('anthropic:'))


def test_unknown_provider_is_usage_error(invoke: Invoke) -> None:
    result = invoke('models', 'antropic')
    assert result.exit_code == 2
    assert 'there is no provider' in result.stderr


def test_models_json_contains_provider_states(invoke: Invoke) -> None:
    (state,) = json.loads(invoke('models', 'anthropic', '--json', variables={'ANTHROPIC_API_KEY': 'k'}).stdout)
    assert (state['name'], state['is_ready'], state['set_variable']) == ('anthropic', True, 'ANTHROPIC_API_KEY')
