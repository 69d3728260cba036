"""The `models` command."""

from __future__ import annotations

import json
from collections.abc import Callable

from pydantic_ai.models import known_model_names
from typer.testing import Result

Invoke = Callable[..., Result]


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
