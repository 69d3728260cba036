"""Requests that do not begin with the whole previous request, and their reports."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, Conversation
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.caching import CacheWatch
from pydantic_deep.testing import ScriptedModel, call

from .conftest import broken_by, events_of, nothing, prompt

pytestmark = pytest.mark.anyio


async def test_append_only_run_reports_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert await broken_by(nothing) == []
    assert caplog.messages == []


async def test_next_turn_from_json_reports_nothing() -> None:
    agent = create_deep_agent(ScriptedModel(call('ls'), 'one', call('ls'), 'two'), capabilities=[CacheWatch()])
    deps = DeepAgentDeps()
    first = await agent.run('go', deps=deps)
    history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(first.all_messages()))

    assert await events_of(agent, 'again', message_history=history, deps=deps) == []


async def test_changed_instructions_in_the_next_turn_are_reported() -> None:
    first = await Agent(ScriptedModel('one'), instructions='Be brief.').run('go')
    other = Agent(ScriptedModel('two'), instructions='Be long.', capabilities=[CacheWatch()])

    events = await events_of(other, 'again', conversation=first.conversation)

    assert events == [('instructions', '3 of 9 characters are as before')]


async def test_history_without_instructions_reports_nothing() -> None:
    agent = Agent(ScriptedModel('two'), instructions='Be long.', capabilities=[CacheWatch()])

    assert await events_of(agent, 'again', message_history=[prompt('a'), ModelResponse([TextPart('b')])]) == []


@pytest.mark.parametrize(
    'history', [[ModelResponse([TextPart('b')])], [prompt('a', 'Be long.'), prompt('b', 'Be long.')]]
)
async def test_history_without_a_complete_exchange_reports_nothing(history: list[ModelMessage]) -> None:
    agent = Agent(ScriptedModel('two'), instructions='Be brief.', capabilities=[CacheWatch()])

    assert await events_of(agent, 'again', message_history=history) == []


async def test_runs_of_one_agent_are_compared_separately() -> None:
    agent = Agent(ScriptedModel('one', 'two'), capabilities=[CacheWatch()])

    assert await events_of(agent, 'first') == []
    assert await events_of(agent, 'second') == []


async def test_watch_does_not_change_the_run() -> None:
    def make(*capabilities: Any) -> Agent[None, str]:
        return Agent(ScriptedModel('one'), capabilities=list(capabilities))

    watched: AgentRunResult[str] = await make(CacheWatch()).run('go', conversation=Conversation(conversation_id='a'))
    plain: AgentRunResult[str] = await make().run('go', conversation=Conversation(conversation_id='a'))

    assert [[part.part_kind for part in message.parts] for message in watched.all_messages()] == [
        [part.part_kind for part in message.parts] for message in plain.all_messages()
    ]
