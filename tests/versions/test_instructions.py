"""Instructions of a conversation: kept with its versions, and told to whichever agent goes on with it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest

from pydantic_deep.fluent import prompt
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import ValidationError, VersionedAgent

from .conftest import SpyStore

pytestmark = pytest.mark.anyio


def told(model: ScriptedModel) -> list[str | None]:
    """Return the instructions of each request."""
    last = [request.messages[-1] for request in model.requests]
    return [message.instructions for message in last if isinstance(message, ModelRequest)]


def agent_of(store: SpyStore, model: ScriptedModel, instructions: str = 'Be an analyst.') -> VersionedAgent[Any, Any]:
    return VersionedAgent(Agent[Any, Any](model, name='analyst', instructions=instructions), store)


async def test_a_conversation_has_instructions_of_its_own_wherever_it_is_loaded(store: SpyStore):
    """`create(instructions=…)` gives a conversation instructions beside those of its agent. They are kept with its
    versions, and hold in each turn, in whichever process and under whichever agent it is loaded; a replay has them too.
    """
    model, other, third = ScriptedModel('one', 'two'), ScriptedModel('three'), ScriptedModel('four')
    root = await agent_of(store, model).create(instructions='Speak like a pirate.')
    first = await root.advance('go')
    await first.advance('on')
    assert told(model) == ['Be an analyst.\n\nSpeak like a pirate.'] * 2
    assert (await first.replay()).difference is None

    loaded = await agent_of(store, other, 'Be brief.').load(first.id)
    assert loaded.instructions == ('Speak like a pirate.',)
    assert loaded.model_settings == {}
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


async def test_what_a_change_does_not_name_stays(store: SpyStore):
    root = await agent_of(store, ScriptedModel()).create(
        instructions=['A.', 'B.'], model='scripted', model_settings={'temperature': 0}
    )
    cold = await root.with_metadata(model_settings={'temperature': 1})
    assert (cold.instructions, cold.model_settings) == (('A.', 'B.'), {'temperature': 1})
    named = await cold.with_metadata(name='x')
    assert (named.instructions, named.model_settings) == (('A.', 'B.'), {'temperature': 1})


async def test_what_a_builder_told_the_agent_is_not_forgotten_with_a_store(store: SpyStore):
    """`prompt(agent, store=…, conversation_id=…)` goes on with the instructions that earlier builders of the
    conversation have given, in the order in which they were given, each once.
    """
    model = ScriptedModel('one', 'two', 'three')
    agent = Agent(model, instructions='Be an analyst.')
    await prompt(agent, store=store, conversation_id='c').instructions('Speak like a pirate.').user('Go.').prompt()
    await prompt(agent, store=store, conversation_id='c').user('On.').prompt()
    again = prompt(agent, store=store, conversation_id='c').instructions('Be brief.')
    await again.instructions('Speak like a pirate.').user('On.').prompt()
    pirate = 'Be an analyst.\n\nSpeak like a pirate.'
    assert told(model) == [pirate, pirate, f'{pirate}\n\nBe brief.']
