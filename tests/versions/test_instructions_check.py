"""Instructions of a conversation: stored with its versions and used by every agent that continues it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest

from pydantic_deep import create_deep_agent
from pydantic_deep.fluent import prompt
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import InstructionsWarning, ValidationError, VersionedAgent

from .conftest import SpyStore

pytestmark = pytest.mark.anyio


def told(model: ScriptedModel) -> list[str | None]:
    """Return the instructions of each request."""
    last = [request.messages[-1] for request in model.requests]
    return [message.instructions for message in last if isinstance(message, ModelRequest)]


def agent_of(store: SpyStore, model: ScriptedModel, instructions: str = 'Be an analyst.') -> VersionedAgent[Any, Any]:
    return VersionedAgent(Agent[Any, Any](model, name='analyst', instructions=instructions), store)


async def test_conversation_instructions_apply_wherever_it_is_loaded(store: SpyStore):
    """`create(instructions=…)` adds instructions of the conversation to those of its agent. They are stored with its
    versions and apply in each turn, in every process and under every agent that loads it, and in replays."""
    model, other, third = ScriptedModel('one', 'two'), ScriptedModel('three'), ScriptedModel('four')
    root = await agent_of(store, model).create(instructions='Speak like a pirate.')
    first = await root.advance('go')
    await first.advance('on')
    assert told(model) == ['Be an analyst.\n\nSpeak like a pirate.'] * 2
    assert (await first.replay()).difference is None

    loaded = await agent_of(store, other, 'Be brief.').load(first.id)
    assert loaded.instructions == ('Speak like a pirate.',)
    assert loaded.model_settings == {}
    with pytest.warns(InstructionsWarning):
        later = await loaded.advance('on')
    assert told(other) == ['Be brief.\n\nSpeak like a pirate.']

    plain = await later.with_metadata({'mine': True}, instructions=())
    await (await agent_of(store, third).load(plain.id)).advance('on')
    assert told(third) == ['Be an analyst.']


@pytest.mark.parametrize('instructions', ['', ' ', ['Be brief.', '']])
async def test_blank_instructions_are_refused(store: SpyStore, instructions: Any):
    with pytest.raises(ValidationError) as caught:
        await agent_of(store, ScriptedModel()).create(instructions=instructions)
    assert caught.value.field == 'instructions'


async def test_with_metadata_preserves_omitted_options(store: SpyStore):
    root = await agent_of(store, ScriptedModel()).create(
        instructions=['A.', 'B.'], model='scripted', model_settings={'temperature': 0}
    )
    cold = await root.with_metadata(model_settings={'temperature': 1})
    assert (cold.instructions, cold.model_settings) == (('A.', 'B.'), {'temperature': 1})
    named = await cold.with_metadata(name='x')
    assert (named.instructions, named.model_settings) == (('A.', 'B.'), {'temperature': 1})


async def test_builder_instructions_are_remembered_with_a_store(store: SpyStore):
    """`prompt(agent, store=…, conversation_id=…)` continues with the instructions that earlier builders of the
    conversation set, in the order in which they were set, each once."""
    model = ScriptedModel('one', 'two', 'three')
    agent = Agent(model, instructions='Be an analyst.')
    await prompt(agent, store=store, conversation_id='c').instructions('Speak like a pirate.').user('Go.').prompt()
    await prompt(agent, store=store, conversation_id='c').user('On.').prompt()
    again = prompt(agent, store=store, conversation_id='c').instructions('Be brief.')
    await again.instructions('Speak like a pirate.').user('On.').prompt()
    pirate = 'Be an analyst.\n\nSpeak like a pirate.'
    assert told(model) == [pirate, pirate, f'{pirate}\n\nBe brief.']


def deep_agent_of(store: SpyStore, *steps: str, instructions: str | list[str] | None) -> VersionedAgent[Any, Any]:
    return VersionedAgent(create_deep_agent(ScriptedModel(*steps), name='analyst', instructions=instructions), store)


async def test_version_stores_the_instructions_of_its_agent(store: SpyStore):
    """Each version of a turn stores the literal instructions of its agent, without those of capabilities. The next turn
    uses the instructions of the agent that runs it."""
    agent = deep_agent_of(store, 'one', instructions=['Be an analyst.', 'Be brief.'])
    root = await agent.create(instructions='Speak like a pirate.')
    first = await root.advance('go')
    assert (root.agent_instructions, first.agent_instructions) == ('', 'Be an analyst.\n\nBe brief.')
    assert (await first.with_metadata({'a': 1})).agent_instructions == first.agent_instructions
    assert first.model_settings == {}


async def test_loading_under_an_agent_with_other_instructions_warns_once(store: SpyStore):
    """Loading a version under an agent with different instructions warns once per conversation: the warning quotes both
    and explains how to keep the old ones. Later turns use the instructions of the agent."""
    long = 'Be an analyst of sales. ' * 10
    first = await (await deep_agent_of(store, 'one', instructions=long).create()).advance('go')
    other = deep_agent_of(store, 'two', instructions='Be brief.')

    with pytest.warns(InstructionsWarning) as caught:
        loaded = await other.load(first.id)

    [warning] = caught
    assert str(warning.message) == (
        f"The version {first.id} was created with the instructions '{long[:59]}…', but this agent has 'Be brief.'. Turns "
        'use those of the agent. To use the others, load the version with an agent that has '
        '`instructions=version.agent_instructions`.'
    )
    await other.load(first.id)
    second = await loaded.advance('on')
    assert second.agent_instructions == 'Be brief.'
    kept = deep_agent_of(store, 'two', instructions=loaded.agent_instructions)
    assert (await (await kept.load(first.id)).advance('on')).agent_instructions == long.strip()


async def test_conversation_handle_warns_about_changed_instructions(store: SpyStore):
    agent = deep_agent_of(store, 'one', instructions='Be an analyst.')
    root = await agent.create()
    await agent.conversation(root.conversation_id).advance('go')
    with pytest.warns(InstructionsWarning, match='this agent has none'):
        await deep_agent_of(store, instructions=None).conversation(root.conversation_id).head()


async def test_instructions_of_plain_agents_are_compared_with_the_first_request(store: SpyStore):
    """Instructions returned by functions are not compared: a date would differ each time."""

    def dated(day: str, instructions: str) -> VersionedAgent[Any, Any]:
        agent = Agent[Any, Any](ScriptedModel('answer'), name='analyst', instructions=[instructions, lambda: day])
        return VersionedAgent(agent, store)

    first = await (await dated('Monday', 'Be brief.').create()).advance('go')
    second = await (await dated('Tuesday', 'Be brief.').load(first.id)).advance('on')
    assert second.agent_instructions == 'Be brief.'
    third = await dated('Tuesday', 'Be long.').load(second.id)
    with pytest.warns(InstructionsWarning, match=r"'Be brief\.', but this agent has 'Be long\.'"):
        await third.advance('on')


async def test_prompt_with_a_store_warns_about_changed_instructions(store: SpyStore):
    await (
        prompt(create_deep_agent(ScriptedModel('one'), instructions='A.'), store=store, conversation_id='c')
        .user('Go.')
        .prompt()
    )
    other = create_deep_agent(ScriptedModel('two'), instructions='B.')
    with pytest.warns(InstructionsWarning):
        await prompt(other, store=store, conversation_id='c').user('On.').prompt()
