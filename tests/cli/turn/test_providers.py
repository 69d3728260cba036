"""Providers: their keys in the environment, and their packages."""

from __future__ import annotations

import pytest
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import infer_model

from pydantic_deep.cli.turn._providers import PROVIDERS, describe_provider, list_providers


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
