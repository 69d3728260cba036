"""`prompt`: a provider or a model alone is enough."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent

from pydantic_deep import DeepAgentDeps, Model, create_deep_agent
from pydantic_deep.fluent import prompt
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ('provider', 'model'),
    [
        ('anthropic', Model.CLAUDE_OPUS),
        ('openai', Model.GPT),
        ('google', Model.GEMINI_PRO),
        ('mistral', Model.MISTRAL_LARGE),
        ('openai:gpt-5', 'openai:gpt-5'),
    ],
)
def test_provider_selects_its_newest_large_model(provider: str, model: str) -> None:
    """001-22: `.provider('anthropic')`."""
    assert repr(prompt(Agent(name='a')).provider(provider)).endswith(f': model {model!r}>')


async def test_prompt_with_a_model_uses_a_deep_agent() -> None:
    model = ScriptedModel('Hi.')
    conversation = prompt(model).user('Hello').start()
    assert await conversation.run() == 'Hi.'
    deep = ScriptedModel('Hi.')
    await create_deep_agent(deep).run('Hello', deps=DeepAgentDeps())
    assert model.requests[0].tool_names == deep.requests[0].tool_names
