"""Anthropic's SDK over HTTP: each request reads the prefix that the previous one cached."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from anthropic import AsyncAnthropic
from pydantic_ai import Agent, Conversation, ConversationTypeAdapter
from pydantic_ai.capabilities import Caching
from pydantic_ai.models import override_allow_model_requests
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.settings import ModelSettings

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.caching import CacheWatch

from .conftest import CachingServer

pytestmark = pytest.mark.anyio


FROM_THE_FIRST_ON = cast('ModelSettings', {'framing_announcement': 'always'})
"""Newer releases of pydantic-ai explain notices to models without a system role, by default with the first notice."""


def use(id: str, name: str, **args: Any) -> dict[str, Any]:
    return {'type': 'tool_use', 'id': id, 'name': name, 'input': args}


def say(text: str) -> dict[str, Any]:
    return {'type': 'text', 'text': text}


def make_agent(anthropic: CachingServer, *capabilities: Any) -> Agent[DeepAgentDeps, str]:
    client = AsyncAnthropic(api_key='key', base_url=anthropic.url, max_retries=0)
    model = AnthropicModel('claude-opus-4-1', provider=AnthropicProvider(anthropic_client=client))
    return create_deep_agent(
        model, instructions='Be brief.', capabilities=[CacheWatch(), *capabilities], model_settings=FROM_THE_FIRST_ON
    )


async def converse(agent: Agent[DeepAgentDeps, str]) -> None:
    """Run two turns with tool calls and a todo change, the second one from JSON."""
    deps, before = DeepAgentDeps(), ''
    for prompt in ('go', 'again'):
        conversation = ConversationTypeAdapter.validate_json(before) if before else Conversation()
        with override_allow_model_requests(True):
            result = await agent.run(prompt, deps=deps, conversation=conversation)
        before = ConversationTypeAdapter.dump_json(result.conversation).decode()


TODOS = [{'content': 'Look', 'status': 'in_progress'}]


async def test_each_request_reads_the_prefix_written_by_the_previous_one(
    anthropic: CachingServer, caplog: pytest.LogCaptureFixture
) -> None:
    anthropic.answers = [
        [say('First.'), use('a', 'ls'), use('b', 'write_todos', todos=TODOS)],
        [use('c', 'write_file', path='/a', content='text')],
        [say('Done.')],
        [use('d', 'ls')],
        [say('Done again.')],
    ]
    with caplog.at_level(logging.INFO, logger='pydantic_deep'):
        await converse(make_agent(anthropic, Caching()))

    assert len(anthropic.usages) == 5
    for before, after in zip(anthropic.usages, anthropic.usages[1:], strict=False):
        written = before['cache_read_input_tokens'] + before['cache_creation_input_tokens']
        assert written > 2_000
        assert after['cache_read_input_tokens'] == written
    assert caplog.messages == []


async def test_nothing_is_read_without_cache_breakpoints(anthropic: CachingServer) -> None:
    anthropic.answers = [[use('a', 'ls')], [say('Done.')], [say('Done again.')]]

    await converse(make_agent(anthropic, Caching(retention=False)))

    assert [usage['cache_read_input_tokens'] for usage in anthropic.usages] == [0, 0, 0]


async def test_prefix_reported_as_broken_is_not_read_from_the_cache(
    anthropic: CachingServer, caplog: pytest.LogCaptureFixture
) -> None:
    anthropic.answers = [[use('a', 'ls')], [say('Done.')], [say('Done again.')]]
    agent = make_agent(anthropic, Caching())

    @agent.instructions
    def changing() -> str:
        return f'{len(anthropic.requests)} requests were made.'

    with caplog.at_level(logging.INFO, logger='pydantic_deep'):
        await converse(agent)

    first, *others = anthropic.usages
    tools_and_static = others[0]['cache_read_input_tokens']
    assert 0 < tools_and_static < first['cache_creation_input_tokens']
    assert len([message for message in caplog.messages if 'instructions' in message]) == 2
